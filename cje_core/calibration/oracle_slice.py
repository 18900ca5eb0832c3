"""The labelled slice: the calibrator that its labels teach, what is wrong with them, and all that follows from it.

Fitted once per data set (`fit_slice`): folds, calibrators without each fold and their held-out predictions, and the
error that comes from having learned the calibrator on so few labels (`calibration_part`).
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from cje_core.calibration.calibrator import (
    MODES,
    Calibrator,
    fit,
    index,
    mass_at,
    on_levels,
    predict,
    signed_index,
)
from cje_core.calibration.folds import FOLDS, MIN_LABELLED_CLUSTERS, UNKNOWN, assign_folds
from cje_core.calibration.isotonic import ends_of_blocks, pava_into, predict_at
from cje_core.calibration.two_stage import (
    MIN_ROWS,
    Basis,
    IndexMoves,
    evaluate_at,
    index_moves,
    locate,
    make_basis,
)
from cje_core.checks import BoolArray, FloatArray, IntArray, one_of
from cje_core.compiled import Kernel
from cje_core.data.arrays import Logged, Rows
from cje_core.inference.estimate import Status
from cje_core.inference.influence import Part, effective_clusters
from cje_core.inference.rank_test import RankTest, rank_test
from cje_core.inference.sums import sum_by

CALIBRATORS = ("default", "auto", *MODES)
DIRECTIONS = ("increasing", "decreasing")


class Own(NamedTuple):
    """The pooled fit at the labels that taught it."""

    block: IntArray  # (m,): constant block of each label
    block_weight: FloatArray  # label weight of each block
    residual: FloatArray  # (m,): see `calibration_part`


class FoldFits(NamedTuple):
    """Of each fold, what the labels outside it teach; NaN and no knots where every label lies in it."""

    mean: FloatArray  # (folds,) mean label
    knot: FloatArray  # (folds, most knots): the ends of constant blocks
    value: FloatArray
    n_knots: IntArray  # (folds,)


class _Slice(NamedTuple):
    status: Status  # OK, a flag (inverted or constant judge, constant labels) or a failure
    calibrator: Calibrator | None  # None exactly when the status is a failure
    z: FloatArray  # (m, 1 + features) of the rows that taught
    label: FloatArray  # (m,)
    weight: FloatArray  # (m,): 1 / label_prob
    prompt: IntArray  # (m,): codes into Rows.prompts
    fold: IntArray  # (n,) of every prompt; UNKNOWN for one that was not asked for, see `fit_slice`
    mode: str
    increasing: bool
    rank: RankTest | None = None  # of the judge's scores and the labels; None where it was not asked for
    kept: FoldFits | None = None  # read from a file, in place of fits of its own


class OracleSlice(_Slice):
    """The labelled slice that teaches, its calibrator and everything fitted once per data set.

    What follows from it is made when first asked for and kept.
    """

    def with_labels(
        self,
        calibrator: Calibrator | None,
        z: FloatArray,
        label: FloatArray,
        weight: FloatArray,
        prompt: IntArray,
    ) -> "OracleSlice":
        """The slice of other labels in the same folds: of what followed from the former ones nothing is left."""
        return OracleSlice(
            self.status, calibrator, z, label, weight, prompt, self.fold, self.mode, self.increasing
        )

    @cached_property
    def own(self) -> Own:
        """The pooled fit at its own labels, for `calibration_part`."""
        f = self.calibrator
        assert f is not None
        block = f.block[self.at]
        residual = self.label - f.value[self.at]
        count = np.bincount(block)
        size = count[block]
        pooled = np.sqrt((residual**2).sum() / max(len(residual) - np.count_nonzero(count), 1))
        residual = np.where(size > 1, residual * np.sqrt(size / np.maximum(size - 1, 1)), pooled)
        return Own(block, sum_by(f.block, f.weight, int(f.block[-1]) + 1), residual)

    @cached_property
    def at(self) -> IntArray:
        """(m,) place of each label among the knots."""
        f = self.calibrator
        assert f is not None
        return np.searchsorted(f.knot, index(f, self.z))

    @cached_property
    def left_out(self) -> dict[int, Calibrator | None]:
        """``f^(-k)`` by fold: those asked for so far, see `without`."""
        return {}

    def without(self, k: int) -> Calibrator | None:
        """``f^(-k)``, the calibrator that never saw fold k; None where every label lies there."""
        if k not in self.left_out:
            train: BoolArray = self.fold[self.prompt] != k
            self.left_out[k] = refit(self, train, self.basis) if train.any() else None
        return self.left_out[k]

    @cached_property
    def folds(self) -> FoldFits:
        """Without each fold: mean label, and of a calibrator that is monotone in the score the fit."""
        if self.kept is not None:
            return self.kept
        fold, f = self.fold[self.prompt], self.calibrator
        n_folds = int(self.fold.max(initial=0)) + 1
        monotone = f is not None and f.mode == self.mode == "monotone"
        level, at = (f.knot, self.at) if f is not None and monotone else (np.empty(0), fold)
        room = n_folds, len(level)
        out = FoldFits(np.empty(n_folds), np.empty(room), np.empty(room), np.zeros(n_folds, dtype=np.intp))
        fit_without_folds(at, fold, self.label, self.weight, level, *out)
        return out

    @cached_property
    def basis(self) -> Basis | None:
        """Knots of the first stage, if the mode has one."""
        return basis_of(self)

    @cached_property
    def index_moves(self) -> IndexMoves:
        """How its labels move a two-stage calibrator through the index."""
        f = self.calibrator
        assert f is not None and f.first_stage is not None
        taught = self.z, self.label, self.weight
        return index_moves(f.first_stage, *taught, monotone=self.mode == "two_stage_monotone")


def fit_slice(
    rows: Rows,
    *,
    direction: str = "increasing",
    calibrator: str = "default",
    logged: Logged | None = None,
    every_fold: bool = True,
    folds: str = "dealt",
) -> OracleSlice:
    """Fit the calibrator on the labels that teach and say what is wrong with them, if anything.

    Parameters
    ----------
    rows : Rows
    direction : {"increasing", "decreasing"}
        Whether a higher judge score means a better response.
    calibrator : {"default", "monotone", "two_stage", "two_stage_monotone", "auto"}
        ``default`` is two-stage where Z has covariates, else monotone. ``auto`` takes the two-stage one only if its
        cross-fitted squared error is lower by more than one standard error (`lower_risk`). The choice is made once, and
        `OracleSlice.mode` records it for folds and resamples. With fewer than 20 labels every choice comes down to
        ``monotone``, and the status says so where something else was asked for.
    logged : Logged, optional
        Its labels teach where no fresh response has a label that does (they are often the very same responses,
        so both together would count them twice).
    every_fold : bool
        False: only clusters with a label or a probe get a fold, all that an estimator of fresh responses asks for.
    folds : {"dealt", "hash"}
        Balanced over the labels, or the paper's ``hash(id) mod 5`` (`cje_core.calibration.folds.assign_folds`); folds
        that the data bring stay theirs.
    """
    one_of(direction, "direction", DIRECTIONS)
    one_of(calibrator, "calibrator", CALIBRATORS)
    one_of(folds, "folds", FOLDS)
    increasing = direction == "increasing"
    prompt, z, label, weight = teaching_labels(rows, logged)
    fold, n_clusters = slice_folds(rows, prompt, every_fold=every_fold, folds=folds)
    mode = calibrator
    if calibrator in ("default", "auto"):
        mode = "two_stage" if calibrator == "auto" or z.shape[1] > 1 else "monotone"
    dropped = mode != "monotone" and len(label) < MIN_ROWS
    mode = "monotone" if dropped else mode
    out = OracleSlice(Status.OK, None, z, label, weight, prompt, fold, mode, increasing)
    if n_clusters < MIN_LABELLED_CLUSTERS:
        return out._replace(status=Status.TOO_FEW_LABELS if len(label) else Status.NO_LABELS)
    status, sign = Status.OK, 1.0 if increasing else -1.0
    level, code = np.unique(signed_index(sign, None, z), return_inverse=True)
    if (label == label[0]).all():
        status = Status.CONSTANT_LABELS
    elif len(level) == 1:
        status = Status.CONSTANT_JUDGE
    else:
        rank = rank_test(code, label, rows.cluster[prompt], weight)
        out = out._replace(rank=rank)
        if rank.against():
            status = Status.INVERTED_JUDGE
        elif dropped and calibrator != "auto":
            status = Status.COVARIATES_DROPPED
    if calibrator == "auto" and not dropped:
        out = out._replace(mode=lower_risk(out, rows.cluster))
    if out.mode != "monotone":
        return out._replace(
            status=status, calibrator=fit(z, label, weight, mode=out.mode, increasing=increasing)
        )
    return out._replace(status=status, calibrator=on_levels("monotone", level, code, label, weight, sign))


class Labels(NamedTuple):
    """Labels that teach a calibrator."""

    prompt: IntArray  # (m,)
    z: FloatArray  # (m, 1 + features)
    label: FloatArray  # (m,)
    weight: FloatArray  # (m,)


def teaching_labels(rows: Rows, logged: Logged | None = None) -> Labels:
    """Labels of fresh responses that teach, or, where there are none, of the logged responses given."""
    if logged is not None and not rows.teaches.any():
        prompt = np.flatnonzero(np.isfinite(logged.label) & np.isfinite(logged.z).all(axis=1))
        return Labels(prompt, logged.z[prompt], logged.label[prompt], np.ones(len(prompt)))
    at = np.flatnonzero(rows.teaches)
    return Labels(rows.prompt[at], rows.z[at], rows.label[at], 1.0 / rows.label_prob[at])


def slice_folds(rows: Rows, prompt: IntArray, *, every_fold: bool, folds: str) -> tuple[IntArray, int]:
    """Fold of every prompt, by the prompts of the labels that teach, and the number of their clusters."""
    taught = np.zeros(len(rows.cluster_names), dtype=bool)
    taught[rows.cluster[prompt]] = True
    asked = np.full(len(taught), every_fold)
    asked[rows.cluster[rows.prompt[rows.labelled | rows.probe]]] = True
    of_cluster = assign_folds(
        rows.cluster_names, taught, dealt=folds == "dealt", asked=asked, given=rows.fold
    )
    fold = of_cluster if rows.cluster_names is rows.prompts else of_cluster[rows.cluster]
    return fold, int(np.count_nonzero(taught))


def refit(fitted: OracleSlice, train: BoolArray | IntArray, basis: Basis | None) -> Calibrator:
    """Calibrator of the slice's mode on some of its rows; `basis_of` gives the first stage the slice's own basis."""
    z, label, weight = fitted.z[train], fitted.label[train], fitted.weight[train]
    return fit(z, label, weight, mode=fitted.mode, increasing=fitted.increasing, basis=basis)


def lower_risk(fitted: OracleSlice, cluster: IntArray) -> str:
    """``two_stage`` if its cross-fitted risk is lower than the monotone one's by more than a standard error.

    The gain is the weighted mean of ``(Y - f_mono^(-k))^2 - (Y - f_two^(-k))^2`` over the slice, with a standard error
    by cluster (codes per prompt); the simpler calibrator has the benefit of the doubt. Rows come in canonical order
    (`unpack`), so the order of the input cannot decide.
    """
    loss = [
        (fitted.label - held_out(fitted._replace(mode=mode), fitted.z, fitted.prompt)) ** 2
        for mode in ("monotone", "two_stage")
    ]
    share = fitted.weight / fitted.weight.sum()
    difference = loss[0] - loss[1]
    gain = float((share * difference).sum())
    groups, code = np.unique(cluster[fitted.prompt], return_inverse=True)
    moves = sum_by(code, share * (difference - gain), len(groups))
    standard_error = np.sqrt(len(groups) / (len(groups) - 1) * (moves**2).sum())
    return "two_stage" if gain > standard_error else "monotone"


def held_out(fitted: OracleSlice, z: FloatArray, prompt: IntArray) -> FloatArray:
    """Predictions by the calibrator that never saw the row's fold, ``f^(-k)(Z)``, shape (r,).

    Rows of Z (r, 1 + features) come with the codes of their prompts, which say the fold. NaN where every label lies in
    the row's own fold, so nothing is left to fit on.
    """
    new_fold = fitted.fold[prompt]
    if (new_fold == UNKNOWN).any():
        raise ValueError("a prompt without labels has no fold here; fit the slice with every_fold=True")
    out, pooled = np.full(len(z), np.nan), fitted.calibrator
    if pooled is not None and pooled.mode == fitted.mode == "monotone":
        predict_without(index(pooled, z), new_fold, *fitted.folds[1:], out)
        return out
    for k in np.flatnonzero(np.bincount(new_fold)).tolist():
        f = fitted.without(k)
        if f is not None:
            mine = new_fold == k
            out[mine] = predict(f, z[mine])
    return out


@Kernel
def fit_without_folds(at, fold, label, weight, level, mean, knot, value, n_knots):  # type: ignore[no-untyped-def]
    """Fill `FoldFits`, given the level at which each label is; without levels the means alone."""
    size = len(level)
    total, summed, scratch = np.empty(size), np.empty(size), np.empty((2, size))
    block_end = np.empty(size, dtype=np.int64)
    for k in range(len(mean)):
        total[:], summed[:] = 0.0, 0.0
        all_weight = all_labels = 0.0
        for j in range(len(label)):
            if fold[j] != k:
                all_weight += weight[j]
                all_labels += weight[j] * label[j]
                if size:
                    total[at[j]] += weight[j]
                    summed[at[j]] += weight[j] * label[j]
        mean[k] = all_labels / all_weight if all_weight > 0 else np.nan
        n = 0
        for s in range(size):
            if total[s] > 0:
                knot[k, n], summed[n], total[n] = level[s], summed[s] / total[s], total[s]
                n += 1
        pava_into(summed, total, n, value[k], scratch[0], scratch[1], block_end)
        n_knots[k] = ends_of_blocks(knot[k], value[k], n)


@Kernel
def predict_without(score, fold, knot, value, n_knots, out):  # type: ignore[no-untyped-def]
    """Prediction of each row by the fit without its fold (filled), where there is one."""
    for i in range(len(score)):
        k = fold[i]
        if n_knots[k] > 0:
            out[i] = predict_at(score[i], knot[k], value[k], n_knots[k])


def mean_labels(fitted: OracleSlice) -> tuple[float, FloatArray]:
    """Weighted mean label of the slice, and of its labels outside each fold: what f and each f^(-k) hold on average.

    The second is of shape (folds,), NaN where every label lies in that fold.
    """
    return float(fitted.weight @ fitted.label / fitted.weight.sum()), fitted.folds.mean


def basis_of(fitted: OracleSlice) -> Basis | None:
    """Knots of the slice's first stage, if its mode has one."""
    if fitted.mode == "monotone":
        return None
    known = fitted.calibrator and fitted.calibrator.first_stage
    return known.basis if known else make_basis(fitted.z, fitted.increasing)


def outside(taught: FloatArray, z: FloatArray) -> BoolArray:
    """Which responses lie outside the range of the labelled rows, by column of Z; shape of `z`."""
    return np.asarray((z < taught.min(axis=0)) | (z > taught.max(axis=0)))


def calibration_part(rows: Rows, fitted: OracleSlice, z: FloatArray, weight: FloatArray) -> Part:
    """Error of ``sum_j weight_j f(z_j)``, weights of any sign, that comes from having learned f on a finite slice.

    Monotone calibrator: the influence of labelled row i of block b is its leverage (`label_leverage`) times its
    residual ``Y_i - f_b``, scaled by ``sqrt(n_b / (n_b - 1))`` so that each block's noise is estimated without bias; a
    row alone in its block has residual zero by construction and takes the pooled residual standard deviation instead.
    The degrees of freedom are the `effective_clusters` of labels behind the functional, less one, and not their
    count: a policy that lives where the slice has nine labels rests on nine labels. Other residuals, and a jackknife:
    ``docs/decisions.md``.

    Two-stage calibrator: the same for the second stage, plus what the label moves through the index
    (`cje_core.calibration.two_stage.index_moves`); the degrees of freedom are counted by the second stage.
    """
    f = fitted.calibrator
    assert f is not None
    n, own = len(rows.prompts), fitted.own
    if f.first_stage is None:
        g = index(f, z)
    else:
        points = locate(f.first_stage.basis, z)
        g = evaluate_at(f.first_stage, points)
    of_block = sum_by(f.block, mass_at(f, g, weight), len(own.block_weight)) / own.block_weight
    leverage = of_block[own.block] * fitted.weight
    effective = effective_clusters(sum_by(fitted.prompt, np.abs(leverage), n), rows.cluster)
    if effective == 0:
        return Part(np.zeros(n), np.inf)
    df = max(effective - 1, 2.0)  # below 2 a t interval has no meaning left
    moves = leverage * own.residual
    if f.first_stage is not None:
        moves = moves + fitted.index_moves.influence(points, np.argsort(g), weight)
    return Part(n * sum_by(fitted.prompt, moves, n), df)
