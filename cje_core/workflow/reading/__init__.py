"""What an analysis or a plan starts from: files, tables or evaluation data, read and checked with what is asked for.

Rule of this package: nothing is estimated here; pooled data are the exception, whose estimates need the rows once more.
"""
