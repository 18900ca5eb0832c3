"""Target policies: what a logger becomes when it is pushed towards a reward.

tilts
    token policies again: `cje_sim.targets.tilts.token_tilt`, `cje_sim.targets.tilts.temperature`; rewards from
    `cje_sim.targets.tilts.utilities`

Rule of this package: it imports `tokens` and `exact`.
"""
