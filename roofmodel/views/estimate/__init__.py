"""An Estimate as terminal output, data, Markdown and pictures."""
