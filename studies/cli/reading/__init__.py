"""Commands that read finished results: the report, single plots, pages for the documents.

Rule of this package: nothing here starts a run or changes results.
"""
