"""What a posterior says about decisions: which policy is best, by how much one may be wrong, and what clears a bar.

All functions take an estimate with ``draws(policy, replicate)``: draws that belong to the same replicate share
weights and calibrator, so they are joint over policies. Probabilities are shares of draws; their Monte Carlo
standard error is that of a share of as many independent draws.

Values that differ by less than rounding are the same (`ROUNDING`), and tie.
"""

import numpy as np
import xarray as xr

from cje_core.checks import FloatArray

ROUNDING = 1e-9  # of the largest value: sums of floating-point numbers in another order differ by less


def decide(estimate: xr.Dataset, *, threshold: float | None = None) -> xr.Dataset:
    """Probability of being best, of each rank, of clearing a threshold, and the expected loss of shipping each policy.

    `threshold` is a value to clear, on the oracle scale. Over ``policy``: ``best``, ``best_mcse``, ``rank(policy,
    place)``, place 1 the best, ``expected_loss`` = E[max V - V], ``expected_loss_mcse``, ``above`` and ``above_mcse``
    (NaN without a threshold). Policies that tie on a draw share their places. Policies without draws have NaN and take
    no part; where they leave only one, there is nothing to be better than, and it has NaN as well (``above`` excepted).
    """
    if "draws" not in estimate:
        raise ValueError("this estimate has no draws; use a Bayesian estimator or the bootstrap")
    draws = estimate["draws"].transpose("policy", "replicate").values
    known = np.isfinite(draws).all(axis=1)
    n_policies, n_draws = draws.shape
    size = int(known.sum())
    best, loss, loss_mcse, above = (np.full(n_policies, np.nan) for _ in range(4))
    rank = np.full((n_policies, n_policies), np.nan)
    compared = size > 1 or n_policies == 1
    if size:
        live = draws[known]
        top = live.max(axis=0)
        regret = top - live
        loss[known] = regret.mean(axis=1)
        loss_mcse[known] = regret.std(axis=1, ddof=1) / np.sqrt(n_draws)
        shares = places(live)
        best[known] = shares[:, 0]
        rank[np.ix_(known, np.arange(size))] = shares
        if not compared:
            best[:] = loss[:] = loss_mcse[:] = rank[:] = np.nan
        if threshold is not None:
            above[known] = (live > threshold).mean(axis=1)
    return xr.Dataset(
        {
            "best": ("policy", best),
            "best_mcse": ("policy", _mcse(best, n_draws)),
            "rank": (("policy", "place"), rank),
            "expected_loss": ("policy", loss),
            "expected_loss_mcse": ("policy", loss_mcse),
            "above": ("policy", above),
            "above_mcse": ("policy", _mcse(above, n_draws)),
        },
        coords={"policy": estimate["policy"].values.astype(str), "place": np.arange(1, n_policies + 1)},
        attrs={
            "estimator": estimate.attrs["estimator"],
            "threshold": np.nan if threshold is None else threshold,
        },
    )


def places(live: FloatArray) -> FloatArray:
    """Share of the draws on which each policy has each place, shape (P, P); policies that tie share their places."""
    gap = live[None, :, :] - live[:, None, :]
    tolerance = ROUNDING * np.abs(live).max()
    above = (gap > tolerance).sum(axis=1)  # (P, draws): policies better than this one
    tied = (np.abs(gap) <= tolerance).sum(axis=1)
    place = np.arange(len(live))
    return np.stack(
        [np.where((above <= r) & (r < above + tied), 1.0 / tied, 0.0).mean(axis=1) for r in place], axis=1
    )


def _mcse(share: FloatArray, n_draws: int) -> FloatArray:
    return np.sqrt(share * (1 - share) / n_draws)
