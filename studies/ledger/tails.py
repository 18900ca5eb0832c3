"""Tails of weights in closed form, for the claims on gates and on teacher-forced likelihoods."""

from scipy import stats


def hill_limit(sd: float, share: float) -> float:
    """Limit of Hill's index of log-normal weights of log-sd `sd` over their largest `share`."""
    z = float(stats.norm.isf(share))
    return 1 / (sd * (float(stats.norm.pdf(z)) / share - z))
