"""Statistical formulas on plain arrays, each written once: no labels, no policies' names, no input checks."""
