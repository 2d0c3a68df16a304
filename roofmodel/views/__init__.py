"""Results -> rich text, JSON, CSV, Markdown, pictures."""
