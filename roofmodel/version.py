"""The version of roofmodel, from which the package's metadata is built. A checkout without installation has it too."""

__version__ = "0.1.0"
