"""What estimators are assembled from, one file or folder per family.

Rule of this package: it imports `data` to `offpolicy`, and `bayes` for the posterior family. What a user calls is in
`cje_core.estimators`.
"""
