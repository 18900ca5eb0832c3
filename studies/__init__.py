"""Simulation studies: every file here is one; beside them what runs, reports and prints them.

Rule of this package: it may import ``cje_core`` and ``cje_sim``; nothing imports it but the tests. A new study is one
file. ``engine`` runs them, ``report`` makes the page, ``cli`` is the command line; studies import the engine, never
each other's machinery.
"""

from cje_core import caches

caches.redirect()  # before a study imports matplotlib
