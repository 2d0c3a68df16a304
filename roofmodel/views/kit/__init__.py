"""Parts that several views share: canvas, labels, chart, columns, documents, formulas, roofline page, output files."""
