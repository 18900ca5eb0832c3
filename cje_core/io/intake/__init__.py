"""What comes before the rows of a file: its bytes, its text, the names of its fields, and formats of other tools.

Rule of this package: it knows files and names, not evaluation data; of the project it imports `cje_core.data.errors`
and what is beside it. Formats are found in `cje_core.io.readers` by name, none is imported here.
"""
