"""Slow second implementations of the sensitivity bounds: root finding on the law of |T + t|, linear programmes."""

import numpy as np
from scipy import optimize, stats


def critical_value(t, df, ci_prob):
    """The c with P(|T_df + t| <= c) = ci_prob, by Brent's method on the distribution function of scipy.stats."""
    law = stats.norm(loc=t) if np.isinf(df) else stats.t(df, loc=t)
    return optimize.brentq(lambda c: law.cdf(c) - law.cdf(-c) - ci_prob, 0.0, t + 1e4, xtol=1e-13)


def tipping_by_scan(gap, std_error, df, ci_prob):
    """Bias at which the interval around `gap` reaches zero, by Brent's method on its own lower end."""

    def lower(bias):
        return gap - critical_value(bias / std_error, df, ci_prob) * std_error

    return 0.0 if lower(0.0) <= 0 else optimize.brentq(lower, 0.0, gap, xtol=1e-13)


def identified_set(law, base, first, second, delta, *, shared=False):
    """Smallest and largest V(first) - V(second) over all means of Y compatible with the base policy's labels.

    The unknowns are ``m_p(x, a, s) = E_p[Y | x, a, s]`` of every policy, each within the range of Y. The base policy's
    must give its known E[Y | S = s] at every s; every other policy's transport residual is at most delta.

    Parameters
    ----------
    law : DataArray (policy, x, a, s, y)
        `cje_sim.scenarios.finite_model.joint`.
    base, first : str
    second : str or None
        None for the level V(first).
    shared : bool
        One mean for all policies: the label's law depends on the response, never on who wrote it.
    """
    names = [str(p) for p in law.policy.values]
    cells = law.sum("y")
    n_cells = cells.isel(policy=0).size
    labels = law.sel(policy=base).sum(["x", "a"])
    f = (
        (labels * labels["y"]).sum("y") / labels.sum("y")
    ).values  # what n -> infinity labels of the base tell
    blocks = 1 if shared else len(names)

    def place(policy, row):
        """Coefficients of one policy's unknowns in the vector of all."""
        out = np.zeros(blocks * n_cells)
        at = 0 if shared else names.index(policy)
        out[at * n_cells : (at + 1) * n_cells] = row
        return out

    def mean(policy):
        return place(policy, cells.sel(policy=policy).values.ravel())

    equal, given = [], []
    for s in range(law.sizes["s"]):
        mass = cells.sel(policy=base).values.copy()
        total = mass[..., s].sum()
        mass[..., :s] = mass[..., s + 1 :] = 0
        equal.append(place(base, mass.ravel() / total))
        given.append(f[s])
    upper, limit = [], []
    for policy in names:
        if policy == base:
            continue
        value = float(cells.sel(policy=policy).sum(["x", "a"]).values @ f)
        upper += [mean(policy), -mean(policy)]
        limit += [value + delta, delta - value]
    goal = mean(first) - (mean(second) if second else 0)
    y = law["y"].values
    ends = []
    for sign in (1, -1):
        found = optimize.linprog(
            sign * goal,
            A_ub=np.array(upper),
            b_ub=limit,
            A_eq=np.array(equal),
            b_eq=given,
            bounds=(y.min(), y.max()),
        )
        assert found.status == 0, found.message
        ends.append(sign * found.fun)
    return np.array(ends)
