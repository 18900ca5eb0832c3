"""Commands about a user's files: the demo data, what a file is, and the cache of log-likelihoods.

Rule of this package: as for `studies.cli`, of which it is a part; heavy libraries are imported inside the commands.
"""
