"""Cross-fitted least squares on features of prompt and response: the outcome model q(X, A) of doubly robust values.

For each fold k, ``q^(-k)(x) = x' beta_k`` with ``beta_k = argmin sum_{i not in k} (t_ki - x_i' beta)^2``, the sum over
logged responses outside the fold, x with an intercept and t_k their targets, which were made without fold k as well
(the paper's algorithm Calibrated-DR, where q is trained).
"""

from typing import NamedTuple

import numpy as np

from cje_core.checks import FloatArray, IntArray


class LinearOutcome(NamedTuple):
    """Predictions at the rows fitted on and at new rows, and what is needed to trace them back to the targets."""

    fitted: FloatArray  # (m,), out of fold
    predicted: FloatArray  # (r,), out of fold
    design: FloatArray  # (m, p), standardised, with an intercept
    new_design: FloatArray  # (r, p)
    inverse: FloatArray  # (folds, p, p): of the moments outside each fold
    fold: IntArray  # (m,)
    new_fold: IntArray  # (r,)

    def target_weights(self, weight: FloatArray, new_weight: FloatArray) -> FloatArray:
        """Return c of ``sum_j weight_j fitted_j + sum_j new_weight_j predicted_j = sum_i c_i t_i``, shape (m,).

        The target of row i differs between folds; c_i sums over the folds that row i was fitted for.
        """
        coefficient = np.zeros(len(self.design))
        for k, inverse in enumerate(self.inverse):
            mine, new = self.fold == k, self.new_fold == k
            moved = weight[mine] @ self.design[mine] + new_weight[new] @ self.new_design[new]
            coefficient += np.where(mine, 0.0, self.design @ (inverse @ moved))
        return coefficient


def linear_outcome(
    x: FloatArray, target: FloatArray, fold: IntArray, new_x: FloatArray, new_fold: IntArray
) -> LinearOutcome:
    """Fit least squares without each fold, and predict rows of that fold.

    Parameters
    ----------
    x : array, shape (m, features)
        Of the rows fitted on; columns that do not vary have no effect.
    target : array, shape (folds, m)
        Targets of the fit without fold k.
    fold : int array, shape (m,)
    new_x : array, shape (r, features)
    new_fold : int array, shape (r,)

    Examples
    --------
    >>> x = np.arange(6.0)[:, None]
    >>> model = linear_outcome(x, np.tile(2 * x[:, 0], (2, 1)), np.arange(6) % 2, np.array([[10.0]]), np.array([0]))
    >>> model.fitted.round(6).tolist(), model.predicted.round(6).tolist()
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [20.0])
    """
    center, spread = x.mean(axis=0), x.std(axis=0)
    scale = np.where(spread > 1e-9 * np.abs(center).clip(1e-300), spread, np.inf)
    design, new_design = (np.column_stack([np.ones(len(v)), (v - center) / scale]) for v in (x, new_x))
    n_folds = len(target)
    inverse = np.empty((n_folds, design.shape[1], design.shape[1]))
    fitted, predicted = np.full(len(x), np.nan), np.full(len(new_x), np.nan)
    for k in range(n_folds):
        outside = design[fold != k]
        inverse[k] = np.linalg.pinv(
            outside.T @ outside, hermitian=True
        )  # collinear features share their effect
        beta = inverse[k] @ (outside.T @ target[k, fold != k])
        fitted[fold == k], predicted[new_fold == k] = (
            design[fold == k] @ beta,
            new_design[new_fold == k] @ beta,
        )
    return LinearOutcome(fitted, predicted, design, new_design, inverse, fold, new_fold)
