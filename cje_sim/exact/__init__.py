"""Exact theory of token policies (sums, paths, Markov chains, divergences, typicality) and of means of judged labels.

sums
    laws of sums of i.i.d. token scores, `cje_sim.exact.sums.log_cdf`
paths
    laws of sums over token paths with memory
markov
    KL, chi-square, coverage, and their rates (`cje_sim.exact.markov.rates`), of chains and stop tokens
divergences
    KL, chi-square, errors of weighted means, of i.i.d. tokens
typicality
    the logger's mass on the target's typical region (TTC)
judged_means
    variances of a mean label by judge, labels and garbling, of judges with few levels
efficiency
    tangent spaces, canonical gradients and efficiency bounds of finite models, by linear algebra
judge_models
    logged evaluation with a judge as such a model, `cje_sim.exact.judge_models.draw_model`, and gradients
    that are claimed of it

Rule of this package: of the other folders it imports `tokens`.
"""
