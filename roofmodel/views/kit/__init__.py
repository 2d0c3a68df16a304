"""What all views share: canvas, labels, charts, tables, documents, formulas, pages, files."""
