"""What a rate over replicates may be, by the exact binomial law."""

from scipy import stats

ALPHA = 2 * stats.norm.sf(5)  # two-sided probability of five standard errors


def within(rate, probability, n):
    """Whether a rate over n replicates lies inside the exact five-sigma bounds of a probability."""
    low, high = stats.binom.ppf([ALPHA / 2, 1 - ALPHA / 2], n, probability) / n
    return low <= rate <= high
