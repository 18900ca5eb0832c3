"""Slow, obvious second implementations for the worlds of cje_sim: plain Riemann sums and loops."""

import numpy as np


def kumaraswamy_integral(
    f, a: float, b: float, low: float = 0.0, high: float = 1.0, cells: int = 2_000_000
) -> float:
    """``E[f(S); low < S < high]`` as a midpoint sum over probability cells of the law, without splitting at
    kinks.
    """
    u = (np.arange(cells) + 0.5) / cells
    s = (1 - (1 - u) ** (1 / b)) ** (1 / a)
    return float(np.mean(np.where((s > low) & (s < high), f(s), 0.0)))


def oracle_variance(mean, *, spread=0.8, atoms=0.0):
    """``Var(Y | S, X)`` of `draw_oracle`: ``atoms m (1 - m) + (1 - atoms) (spread min(m, 1 - m))^2 / 3``."""
    return atoms * mean * (1 - mean) + (1 - atoms) * (spread * min(mean, 1 - mean)) ** 2 / 3


def proportional_allocation(sizes: list[int], total: int) -> list[int]:
    """Equal allocation by dealing labels one at a time, the stratum with the fewest and room first."""
    share = [0] * len(sizes)
    for _ in range(total):
        open_strata = [h for h in range(len(sizes)) if share[h] < sizes[h]]
        share[min(open_strata, key=lambda h: (share[h], h))] += 1
    return share


def finite_value(module, policy: int, judge_noise: float, surrogacy: float) -> float:
    """Value of a policy of the finite model by five nested loops."""
    pi, score_law, label_law = module.tables(judge_noise=judge_noise, surrogacy=surrogacy)
    total = 0.0
    for x, px in enumerate(module.PROMPTS):
        for a in range(pi.shape[2]):
            for s in range(len(module.JUDGE_LEVELS)):
                for y, value in enumerate(module.ORACLE_LEVELS):
                    total += px * pi[policy, x, a] * score_law[x, a, s] * label_law[x, a, s, y] * value
    return total


def plasmode_value(data, policy: int, bandwidth: float, use_covariates: bool) -> float:
    """Truth of a plasmode world, response by response; prompts that the first policy did not answer do not
    count.
    """
    judge, oracle = data["judge"].values, data["oracle"].values
    x = data["covariate"].values[..., 0]
    counts = data["evaluated"].values
    scale = [np.nanstd(judge), np.nanstd(x)]
    donors = [
        (judge[i], x[i], oracle[i])
        for i in np.ndindex(judge.shape)
        if i[0] == policy and np.isfinite(oracle[i])
    ]
    prompts = []
    for i in range(judge.shape[1]):
        if not counts[0, i].any():
            continue
        means = []
        for d in range(judge.shape[2]):
            if not counts[policy, i, d]:
                continue
            square = []
            for s, z, _ in donors:
                gap = ((judge[policy, i, d] - s) / scale[0]) ** 2
                square.append(gap + ((x[policy, i, d] - z) / scale[1]) ** 2 if use_covariates else gap)
            least = min(square)
            if bandwidth == 0:
                weight = [float(q - least < 1e-15) for q in square]
            else:
                weight = [np.exp(-(q - least) / (2 * bandwidth**2)) for q in square]
            means.append(sum(w * y for w, (_, _, y) in zip(weight, donors, strict=True)) / sum(weight))
        if means:
            prompts.append(sum(means) / len(means))
    return float(np.mean(prompts))
