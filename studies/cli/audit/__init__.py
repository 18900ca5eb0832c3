"""``cje-lab audit``: what a calibration, a judge and a server's log-likelihoods are tested for.

Rule of this package: commands read files and call the library; tables, JSON, files and computed help stand beside them.
"""
