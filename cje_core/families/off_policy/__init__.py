"""Values from logged responses: logs and their weights, one policy's value, what labels add to its error, estimates.

Rule of this package: as for `cje_core.families`.
"""
