"""A file larger than memory: read once, its responses apart by prompt on disk, here or on a Dask cluster.

Rule of this package: as for `cje_core.data`, of which it is a part; `distributed` is imported inside the function that
needs it.
"""
