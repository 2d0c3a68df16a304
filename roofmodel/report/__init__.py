"""What results share: base classes, tables, charts, canvas, documents, formulas, pages, progress, printing."""
