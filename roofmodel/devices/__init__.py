"""A device's YAML file -> a Device. Knows no models."""
