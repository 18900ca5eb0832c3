"""How much room an interval leaves for outcomes that none of the labels shows, from one policy's labels and scores."""

import numpy as np

from cje_core.compiled import Kernel

CROWDED = 0.2  # weight where the labels crowd against an end of the scale, up to MANY of them
MANY = 30
DROPS = 0.5  # Jeffreys' weight, where labels far from the others were seen: there may be others of their kind
REACH = 2.0  # standard deviations of the scores beyond the labelled ones from which on one lies in a tail of its own
SEEN = 0.25  # share of the drops that a judge who sees some is expected to see at least


@Kernel
def share_beyond(score, weight, seen):  # type: ignore[no-untyped-def]
    """Return the share of a policy's responses whose score lies two deviations beyond any labelled one.

    Parameters
    ----------
    score, weight : arrays, shape (n,)
        Of all its responses; each counts with its weight.
    seen : array
        Scores of those with a label.

    Examples
    --------
    >>> score = np.append(np.linspace(0.6, 1.0, 98), [0.1, 0.2])
    >>> float(share_beyond.function(score, np.ones(100), score[:98]))
    0.02
    """
    total = weight.sum()
    mean = (weight * score).sum() / total
    spread = np.sqrt((weight * (score - mean) ** 2).sum() / total)
    below, above = seen.min() - REACH * spread, seen.max() + REACH * spread
    return (weight * ((score < below) | (score > above))).sum() / total


@Kernel
def crowding(label, low, high):  # type: ignore[no-untyped-def]
    """Return the weight c, see `unseen_weight`, of a long tail away from the end that the labels crowd against.

    ``.2 min(1, 30 / n)^1.5``, fading out where the nearer end is 1.5 to 3 standard deviations from their mean.
    """
    n, mean = len(label), label.mean()
    spread = np.sqrt(((label - mean) ** 2).sum() / max(n - 1, 1))
    if spread == 0:
        return 0.0
    distance = min(mean - low, high - mean) / spread
    return CROWDED * min(1.0, MANY / n) ** 1.5 * min(max(2 - distance / 1.5, 0.0), 1.0)


@Kernel
def unseen_weight(label, beyond, low, high):  # type: ignore[no-untyped-def]
    """Return the weight c of outcomes that n labels did not show, whose share is at most a quantile of Beta(c, n).

    The larger of two weights; each rises continuously from 0, so that one label more moves no interval by much.

    - A label lies far from the others, 10 to 20 times as far from the median as the quartile on its side and a quarter
      to half of the way to the end of the scale: 1/2.
    - Judge scores have a tail that no label covers, a share q of the responses. If the judge sees a quarter of all
      drops, 4 q of the responses drop; c is such that the 97.5% quantile of Beta(c, n) is about that, at most 1.

    Parameters
    ----------
    label : array, shape (n,)
        Labels of the policy's own.
    beyond : float
        Share q, see `share_beyond`.
    low, high : float
        Ends of the oracle's scale.

    Examples
    --------
    >>> near = np.linspace(0.88, 0.92, 30)
    >>> [round(float(unseen_weight.function(near, beyond, 0.0, 1.0)), 3) for beyond in (0.0, 0.02)]
    [0.0, 0.525]
    """
    n, weight = len(label), 0.0
    ordered = np.sort(label)
    median = ordered[n // 2]
    for side in (-1, 1):
        end, farthest = (low, ordered[0]) if side < 0 else (high, ordered[-1])
        quartile = ordered[n // 4] if side < 0 else ordered[n - 1 - n // 4]
        gap, usual, whole = abs(farthest - median), abs(quartile - median), abs(end - median)
        if gap > 10 * usual and gap > whole / 4:
            apart = 1.0 if gap >= 20 * usual else gap / usual / 10 - 1
            weight = max(weight, DROPS * apart * min(4 * gap / whole - 1, 1.0))
    if ordered[0] == ordered[-1]:  # then there is no interval to leave room beside
        return 0.0
    # 3.69 is the 97.5% quantile of n Beta(1, n), that of n Beta(c, n) is about 3.69 c^(2/3)
    return max(weight, min((n * beyond / SEEN / 3.69) ** 1.5, 1.0))
