"""Token sequences: laws with exact log-probabilities, sampling, and teacher forcing that fails.

laws
    `cje_sim.tokens.laws.iid_policy`, `cje_sim.tokens.laws.markov_policy` (with a given stationary law
    `cje_sim.tokens.laws.markov_with_stationary`), one law per prompt `cje_sim.tokens.laws.by_prompt`
teacher_forcing
    errors of recorded log-probabilities
calls
    logs and teacher-forced calls as tables, with violations planted: `cje_sim.tokens.calls.record`
kernels
    the loops behind both

Rule of this package: it imports nothing of the project.
"""
