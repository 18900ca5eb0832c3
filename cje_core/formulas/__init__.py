"""Formulas of single data sets, on plain arrays: each is written once and called for a data set or for each of a block."""
