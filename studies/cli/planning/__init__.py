"""How `cje-lab plan` prints and writes a plan.

Rule of this package: as for `studies.cli`.
"""
