"""What runs a study: its definition, blocks of replicates, the runner, measures, the manifest.

Rule of this package: it imports `cje_core` and `cje_sim`, and no study by name.
"""
