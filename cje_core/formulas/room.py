"""How much room an interval leaves for outcomes that none of the labels shows, from one policy's labels and scores."""

import numpy as np

from cje_core.compiled import Kernel

CROWDED = 0.2  # weight where the labels crowd against an end of the scale, up to MANY of them
MANY = 30
DROPS = 0.5  # Jeffreys' weight, where labels far from the others were seen: there may be others of their kind
REACH = 3.0  # quartile distances beyond the labelled scores from which on a score lies in a tail of its own
SEEN = 0.25  # share of the drops that a judge who sees some is expected to see at least


@Kernel
def unseen_weight(label, score, seen, low, high):  # type: ignore[no-untyped-def]
    """Return the weight c of outcomes that n labels did not show, whose share is at most a quantile of Beta(c, n).

    The largest of three weights; each rises continuously from 0, so that one label more moves no interval by much.

    - The labels crowd against an end of the scale, so the tail on the other side is long: ``.2 min(1, 30 / n)^1.5``,
      fading out where the nearer end is 1.5 to 3 standard deviations from their mean.
    - A label lies far from the others, 10 to 20 times as far from the median as the quartile on its side and a quarter
      to half of the way to the end of the scale: 1/2.
    - Judge scores have a tail that no label covers: a share q of the responses lies beyond the labelled scores by twice
      the distance from their median to their quartile. If the judge sees a quarter of all drops, 4 q of the responses
      drop; c is such that the 97.5% quantile of Beta(c, n) is about that, at most 1.

    Parameters
    ----------
    label : array, shape (n,)
        Labels of the policy's own.
    score, seen : arrays
        Judge scores of the policy's responses, and of those with a label.
    low, high : float
        Ends of the oracle's scale.

    Examples
    --------
    >>> near, score = np.linspace(0.88, 0.92, 30), np.linspace(0.6, 1.0, 300)
    >>> tail = np.where(score < 0.61, 0.2, score)
    >>> [float(unseen_weight.function(near, all_scores, score, 0.0, 1.0)) for all_scores in (score, tail)]
    [0.0, 0.807...]
    """
    n = len(label)
    ordered, mean = np.sort(label), label.mean()
    spread = np.sqrt(((label - mean) ** 2).sum() / max(n - 1, 1))
    if spread == 0:
        return 0.0
    distance = min(mean - low, high - mean) / spread
    weight = CROWDED * min(1.0, MANY / n) ** 1.5 * min(max(2 - distance / 1.5, 0.0), 1.0)
    median = ordered[n // 2]
    for side in (-1, 1):
        end, farthest = (low, ordered[0]) if side < 0 else (high, ordered[-1])
        quartile = ordered[n // 4] if side < 0 else ordered[n - 1 - n // 4]
        gap, usual, whole = abs(farthest - median), abs(quartile - median), abs(end - median)
        if gap > 10 * usual and gap > whole / 4:
            apart = 1.0 if gap >= 20 * usual else gap / usual / 10 - 1
            weight = max(weight, DROPS * apart * min(4 * gap / whole - 1, 1.0))
    ranked = np.sort(score)
    m = len(ranked)
    if m == 0:  # all that there is are labels
        return weight
    middle = ranked[m // 2]
    below = seen.min() - REACH * (middle - ranked[m // 4])
    above = seen.max() + REACH * (ranked[m - 1 - m // 4] - middle)
    beyond = ((ranked < below) | (ranked > above)).mean()
    # 3.69 is the 97.5% quantile of n Beta(1, n), that of n Beta(c, n) is about 3.69 c^(2/3)
    return max(weight, min((n * beyond / SEEN / 3.69) ** 1.5, 1.0))
