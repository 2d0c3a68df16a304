"""Models under sliders as one HTML page."""
