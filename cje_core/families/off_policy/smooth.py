"""A light smoother for the direct part of doubly robust values (the paper's g-hat).

The paper's direct part is the mean over prompts of ``g(x)``, the mean of q over the policy's fresh responses to x. A
regression of these means on prompt features with an intercept, taken at the prompts that it was fitted on, has the very
same mean: there is no Monte Carlo noise that a smoother could take off it. What it can do is speak for prompts that
have no fresh response, or draw on prompts whose features lie elsewhere by chance. So here

    DM = mean_U g_hat(x) + mean_fresh (q - g_hat(x)),      U the prompts with features or fresh responses

with g_hat a ridge regression of q on (1, s, s^2, covariates) of the prompt's *logged* response, held out by fold. Both
means estimate the same thing whatever g_hat is, so a wrong one costs precision and no bias, provided that the prompts
with fresh responses are a random part of U. Where every prompt of U has them the first mean and the last part of the
second cancel, and DM is the unsmoothed mean up to what the folds leave.

The variance is ``Var(q - g_hat) / n_fresh + Var(g_hat) / n_U + 2 Cov / n_U`` against ``Var(q) / n_fresh``: less by the
share of q that the features explain, times ``1 - n_fresh / n_U``.

DM is linear in q, ``sum_i w_i q_i`` over the fresh responses (`fresh_weights`), so labels enter its error as they enter
that of a plain mean.
"""

from typing import NamedTuple

import numpy as np

from cje_core.checks import BoolArray, FloatArray, IntArray

RIDGE = (
    1e-3  # of the features' second moments, in units of their spread: enough for features that say the same
)


class Smoothed(NamedTuple):
    """The weights that make the smoothed mean, and what its error needs."""

    weight: FloatArray  # (r,) of each fresh response; sums to one
    error: FloatArray  # (n,) error of the mean per prompt, sums to zero
    leverage: FloatArray  # (n,)


def features(z: FloatArray) -> FloatArray:
    """(n, d) features of each prompt's logged response: 1, score, its square, covariates; centred, 0 where unknown."""
    with_square = np.column_stack([z[:, :1], z[:, :1] ** 2, z[:, 1:]])
    known: BoolArray = np.asarray(np.isfinite(with_square).all(axis=1))
    if not known.any():
        return np.ones((len(z), 1))
    spread = with_square[known].std(axis=0)
    scaled = (with_square - with_square[known].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.column_stack([np.ones(len(z)), np.where(known[:, None], scaled, 0.0)])


def smoothed_mean(
    q: FloatArray, prompt: IntArray, mass: FloatArray, logged: FloatArray, fold: IntArray
) -> Smoothed:
    """Weights of the smoothed mean of q and its error.

    Parameters
    ----------
    q, mass : arrays, shape (r,)
        Held-out prediction of each fresh response, and its weight within its prompt (a prompt's sum to one).
    prompt : int array, shape (r,)
    logged : array, shape (n, 1 + covariates)
        Z of each prompt's logged response; NaN where there is none.
    fold : int array, shape (n,)
        Fold of each prompt; responses of one fold do not teach the g_hat of that fold.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> s = rng.random((200, 1))
    >>> at = np.arange(40)  # fresh responses to a fifth of the prompts; q is what the logged score says
    >>> found = smoothed_mean(s[at, 0], at, np.ones(40), s, np.arange(200) % 5)
    >>> bool(abs(found.weight @ s[at, 0] - s.mean()) < 0.02 * abs(s[at].mean() - s.mean()))
    True
    """
    h, share = features(logged), mass / mass.sum()
    inside: BoolArray = np.asarray(np.isfinite(logged).all(axis=1))
    inside[prompt] = True
    weight, g = share.copy(), np.zeros(len(h))
    folds = np.unique(fold[inside])
    if all((fold[prompt] == k).all() for k in np.unique(fold[prompt])):
        folds = folds[:0]  # no other fold teaches that of the responses: their plain mean
    for k in folds:
        rest, here = fold[prompt] != k, inside & (fold == k)
        rows = h[prompt[rest]]
        moments = rows.T @ (share[rest, None] * rows)
        penalty = RIDGE * np.trace(moments) / len(moments) * np.diag(np.r_[0.0, np.ones(len(moments) - 1)])
        solve = np.linalg.pinv(moments + penalty, hermitian=True) @ (rows.T * share[rest])
        g[here] = h[here] @ (solve @ q[rest])
        apart = h[here].sum(axis=0) / inside.sum() - (share[~rest, None] * h[prompt[~rest]]).sum(axis=0)
        weight[rest] += solve.T @ apart
    left = q - g[prompt]
    error = np.zeros(len(h))
    np.add.at(error, prompt, share * (left - share @ left))
    error[inside] += (g[inside] - g[inside].mean()) / inside.sum()
    leverage = np.where(inside, 1 / inside.sum(), 0.0)
    np.add.at(leverage, prompt, share)
    return Smoothed(weight, error, leverage)
