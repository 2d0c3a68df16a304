"""Views of `roof jitter`: tables, data, picture and page."""
