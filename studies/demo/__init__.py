"""A small data set of a simulated arena that ships with the package, and how it is made.

Rule of this package: a world of `cje_sim` and its truth make the files; of the project it imports `cje_sim` alone.
"""
