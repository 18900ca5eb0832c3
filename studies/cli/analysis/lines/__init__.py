"""What is said of an analysis in lines: notes, cautions, assumptions, cohorts, support, the flow of rows.

Rule of this package: as for `studies.cli`.
"""
