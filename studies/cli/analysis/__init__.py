"""How `cje-lab analyze` prints, writes and draws an analysis.

Rule of this package: as for `studies.cli`.
"""
