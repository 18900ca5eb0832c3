"""The report of a directory of results, one self-contained HTML file.

Rule of this package: it imports `engine`.
"""
