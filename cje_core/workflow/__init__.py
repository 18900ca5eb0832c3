"""`analyze` and `plan` as library calls: files or data in, one object with every result out; in `steps`, files between.

Rule of this package: it imports everything in `cje_core` and prints nothing.
"""
