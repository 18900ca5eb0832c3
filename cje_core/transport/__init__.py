"""Does a calibration hold where it is used? Audits on probe labels, their size, drift, and bounds without.

Rule of this package: it imports `data`, `inference` and `calibration`.
"""
