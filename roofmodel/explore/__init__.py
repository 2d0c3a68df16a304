"""The page with sliders."""
