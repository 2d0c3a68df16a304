"""Engines: what runs a model, and what that changes in its expected times. YAML -> Engine."""
