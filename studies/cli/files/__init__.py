"""Commands about a user's files: the demo data, and what a file is.

Rule of this package: as for `studies.cli`, of which it is a part; heavy libraries are imported inside the commands.
"""
