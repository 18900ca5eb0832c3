"""Files and tables that become evaluation data, and what is written beside them.

Rule of this package: one parser per format gives one table, and the rules (scales, duplicates, ranges, keys, nearly
right names) run once, on columns, for every source. It imports `data`; simulators do not see it.
"""

from cje_core.io.frame import from_frame

__all__ = ["from_frame"]
