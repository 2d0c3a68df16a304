"""Files that serving benchmarks write -> a `ServingRun` each; a module for each tool."""
