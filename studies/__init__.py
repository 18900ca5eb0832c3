"""Simulation studies, the command line and the report.

Rule of this package: it may import ``cje_core`` and ``cje_sim``; nothing imports it but the tests. A file
without a leading underscore is a study; with underscore it is machinery.
"""

from cje_core import caches

caches.redirect()  # before a study imports matplotlib
