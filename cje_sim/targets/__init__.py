"""Target policies: what a logger becomes when it is pushed towards a reward.

tilts
    token policies again: `cje_sim.targets.tilts.token_tilt`, `cje_sim.targets.tilts.first_token_tilt`,
    `cje_sim.targets.tilts.additive_tilt`, `cje_sim.targets.tilts.temperature`,
    `cje_sim.targets.tilts.token_mixture`; rewards from `cje_sim.targets.tilts.utilities` and
    `cje_sim.targets.tilts.adversarial_utility`
responses
    whole responses: `cje_sim.targets.responses.CountTilt`, `cje_sim.targets.responses.EpsilonMixture`,
    `cje_sim.targets.responses.BestOfN`

Rule of this package: it imports `tokens` and `exact`.
"""
