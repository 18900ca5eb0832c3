"""Direct for one policy, on arrays: its route, value, influence and standard error (formulas in `direct`)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cje_core.calibration.calibrator import predict
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS, count_clusters
from cje_core.calibration.informative import Informative, informative
from cje_core.calibration.oracle_slice import OracleSlice, calibration_part, held_out, mean_labels
from cje_core.checks import FloatArray, IntArray
from cje_core.data import DataError
from cje_core.data.arrays import Rows, taken
from cje_core.families.direct import spline
from cje_core.families.direct.balance import (
    Lesson,
    balanced_residual,
    density_ratio_residual,
    make_lesson,
    supported,
)
from cje_core.families.direct.power_tuning import charge, tuned_prediction
from cje_core.families.direct.subgroups import shifts
from cje_core.families.finish import PolicyResult
from cje_core.families.fluctuation import targeted
from cje_core.formulas.borrowed import Borrowed, value_limits
from cje_core.inference.estimate import Status
from cje_core.inference.influence import (
    MeanOver,
    Part,
    combine,
    combine_errors,
    delete_group_variance,
    make_part,
    mean_of_rows,
    mean_part,
    pooled_df_of_one,
)
from cje_core.inference.sums import cluster_se, sum_by

BORROWED = ("spline", "balanced", "one_step", "plug_in")  # what a policy without labels of its own may get
F_KNOWN = ("cluster", "plugin_iid")  # kinds of inference that take f as known


class Options(NamedTuple):
    """What `estimate` was asked for, where it matters to one policy."""

    inference: str = "influence"
    correction: str = "theta_aug"
    normalise: str = "hajek"
    quantile: str = "t"
    power_tuned: bool = True
    borrowed: str = "plug_in"  # one of BORROWED
    scale: tuple[float, float] = (0.0, 1.0)  # declared oracle range
    judge_range: tuple[float, float] = (0.0, 1.0)  # declared
    group: IntArray | None = None  # (prompts,) groups in which the calibrator is shifted


class Lender(NamedTuple):
    """What the slice lends to policies without labels of their own, and whether it may: by a curve or by a lesson."""

    judge: Informative
    reach: FloatArray  # (m, 1 + features): Z of the labels that lend
    n_clusters: int  # of these labels
    lesson: Lesson | None = None  # None where the curve lends, or nothing may be lent
    shift: FloatArray | None = None  # (prompts,) of the calibrator in each prompt's group
    taught: spline.Taught | None = (
        None  # the curve of the spline posterior, where that is asked for and defined
    )


class Prediction(NamedTuple):
    """A policy's prediction ``h = offset + power * (f - center)``; untuned it is f itself."""

    power: float = 1.0  # weight of the calibrator
    offset: FloatArray = np.empty(0)  # per evaluated row
    own_offset: FloatArray = np.empty(0)  # per own labelled row
    centered: bool = False  # whether center is the mean label behind f (tuned) or zero
    power_curve: float = 0.0  # weight of the judge's curve, which sits in the offset
    spent: float = 0.0  # share of the labels' degrees of freedom that the weights cost


class PolicyFit(NamedTuple):
    """One policy's result, and what its replicates need to know."""

    result: PolicyResult
    prediction: Prediction = Prediction(power=np.nan, power_curve=np.nan)
    own: IntArray = np.empty(0, dtype=np.intp)  # labelled rows that correct
    left_out: FloatArray | None = None  # V^(-k) of the delete-one-fold jackknife
    moves: spline.SplineValue | None = None  # with the curve, of a value that the spline posterior made


def make_lender(rows: Rows, fitted: OracleSlice, options: Options) -> Lender | None:
    """The slice as a lender, None where no policy needs one."""
    if options.borrowed == "plug_in" or fitted.calibrator is None:
        return None
    if all(corrects(rows, p, options.correction)[1] for p in range(len(rows.policies))):
        return None
    judge, group = informative(rows, fitted), options.group
    lent = Lender(judge, fitted.z, int(np.count_nonzero(np.bincount(rows.cluster[fitted.prompt]))))
    if group is None:
        if options.borrowed == "spline" and not judge.informative:
            return lent  # nothing, then
        if options.borrowed == "spline" and spline.is_defined(rows, fitted):
            return lent._replace(taught=spline.teach(rows, fitted, options.judge_range, options.scale))
        return lent._replace(lesson=make_lesson(rows, fitted))
    of_label, asked = group[fitted.prompt], np.unique(group[rows.prompt[rows.evaluated]])
    if len(asked) == 1:
        within = of_label == asked[0]
        n_clusters = len(np.unique(rows.cluster[fitted.prompt[within]]))
        if n_clusters < MIN_LABELLED_CLUSTERS:
            return lent._replace(n_clusters=0, lesson=make_lesson(rows, fitted))
        return Lender(judge, fitted.z[within], n_clusters, make_lesson(rows, fitted, within))
    residual = fitted.label - held_out(fitted, fitted.z, fitted.prompt)
    by_prompt, shift = shifts(rows, fitted.fold, group, fitted.prompt, residual, fitted.weight)
    return lent._replace(lesson=make_lesson(rows, fitted, shift=shift), shift=by_prompt)


def corrects(rows: Rows, p: int, correction: str = "theta_aug") -> tuple[IntArray, bool]:
    """Evaluated rows of policy p with labels, and whether these correct its value."""
    at = np.flatnonzero(rows.labelled)
    own = at[(rows.policy[at] == p) & rows.evaluated[at]]
    return own, correction != "none" and count_clusters(rows, own) >= MIN_LABELLED_CLUSTERS


def fit_policy(
    rows: Rows, fitted: OracleSlice, p: int, options: Options, lender: Lender | None = None
) -> PolicyFit:
    """Route, value, influence and standard error of policy p (array-level; everything but the bootstrap).

    ``lender`` is that of `make_lender`, which is made here where a policy that borrows is given none.
    """
    index = np.flatnonzero((rows.policy == p) & rows.evaluated)
    if len(index) == 0:
        return PolicyFit(PolicyResult(Status.NO_RESPONSES, "none"))
    own, corrected = corrects(rows, p, options.correction)
    constant = len(own) > 0 and np.ptp(rows.label[own]) == 0
    if corrected and len(own) == len(index):
        value, part = mean_part(_units(rows, options), own, rows.label[own], rows.weight[own])
        result = PolicyResult(Status.CONSTANT_LABELS if constant else Status.OK, "label_mean", "own", value)
        return PolicyFit(_finish(rows, result, part, (), None, options), _plain(index, own), own)
    if fitted.calibrator is None:
        return PolicyFit(PolicyResult(fitted.status, "none"))
    if corrected:
        # residuals of labels that never vary show the spread of f, or nothing: no interval either way
        status = Status.CONSTANT_LABELS if constant else fitted.status
        return _corrected(rows, fitted, index, own, options, status)
    status = fitted.status
    # a plug-in borrows nothing where the policy's own labels taught f
    taught = count_clusters(rows, rows.teaches & (rows.policy == p)) >= MIN_LABELLED_CLUSTERS
    if status is Status.OK and not (options.correction == "none" and taught):
        status = Status.TRANSPORT_ASSUMED
    if options.borrowed != "plug_in":
        lender = lender or make_lender(rows, fitted, options)
        assert lender is not None
        return _from_lender(rows, fitted, index, options, status, lender)
    return _plug_in(rows, fitted, index, options, status)


def _plain(index: IntArray, own: IntArray) -> Prediction:
    return Prediction(offset=np.zeros(len(index)), own_offset=np.zeros(len(own)))


def _corrected(
    rows: Rows, fitted: OracleSlice, index: IntArray, own: IntArray, options: Options, status: Status
) -> PolicyFit:
    """Mean prediction corrected by the policy's own labels."""
    assert fitted.calibrator is not None
    means = _means(rows, index, own, options)
    if options.power_tuned:  # the one place where power tuning enters
        by_cluster = means if options.inference != "plugin_iid" else None
        g = tuned_prediction(rows, fitted, index, own, own_weight(rows, own), options.scale, by_cluster)
        f, own_f = g.calibrated, g.own_calibrated
        prediction = Prediction(g.weight_calibrator, g.offset, g.own_offset, True, g.weight_curve, g.spent)
    else:
        f = predict(fitted.calibrator, taken(rows.z, index))
        own_f = held_out(fitted, rows.z[own], rows.prompt[own])
        prediction = _plain(index, own)
    if options.group is not None:
        left = rows.label[own] - prediction.own_offset - prediction.power * own_f
        by_prompt, held = shifts(
            rows, fitted.fold, options.group, rows.prompt[own], left, own_weight(rows, own)
        )
        prediction = prediction._replace(
            offset=prediction.offset + by_prompt[taken(rows.prompt, index)],
            own_offset=prediction.own_offset + held,
        )
    value, sampling, correction = _one_step(rows, index, own, prediction, options, f, own_f, means)
    left_out, folds = None, None
    if options.inference == "jackknife":
        _, fold_center = mean_labels(fitted)
        both = np.concatenate([index, own])
        left_out = np.empty(len(oracle_folds(fitted)))
        for row, (k, f) in enumerate(_without_each_fold(fitted, rows.z[both])):
            about = f - fold_center[k] * prediction.centered
            left_out[row], *_ = _one_step(
                rows, index, own, prediction, options, about[: len(index)], about[len(index) :], means
            )
        folds = _fold_part(rows, fitted, left_out, value)
    if options.correction == "tmle":
        route = "aipw_tmle"
    elif options.normalise == "ht":
        route = "aipw_ht"
    else:
        route = "aipw_hajek" if np.ptp(rows.label_prob[own]) > 0 else "theta_aug"
    result = PolicyResult(status, route, "own", value)
    result = _finish(rows, result, sampling, (charge(correction, prediction.spent),), folds, options)
    return PolicyFit(result, prediction, own, left_out)


def _plug_in(rows: Rows, fitted: OracleSlice, index: IntArray, options: Options, status: Status) -> PolicyFit:
    """Mean prediction of a calibrator that the policy's own labels do not correct."""
    assert fitted.calibrator is not None
    weight = taken(rows.weight, index)
    share = weight / weight.sum()
    units = _units(rows, options)
    value, sampling = mean_part(units, index, predict(fitted.calibrator, taken(rows.z, index)), weight)
    fit_error: tuple[Part] | tuple[()] = ()
    left_out, folds = None, None
    if options.inference not in F_KNOWN:
        fit_error = (calibration_part(rows, fitted, taken(rows.z, index), share),)
    if options.inference == "jackknife":
        left_out = np.array([(share * f).sum() for _, f in _without_each_fold(fitted, taken(rows.z, index))])
        folds = _fold_part(rows, fitted, left_out, value)
    result = _finish(
        rows, PolicyResult(status, "plug_in", "borrowed", value), sampling, fit_error, folds, options
    )
    return PolicyFit(result, Prediction(offset=np.zeros(len(index))), left_out=left_out)


def _from_lender(
    rows: Rows, fitted: OracleSlice, index: IntArray, options: Options, status: Status, lender: Lender
) -> PolicyFit:
    """Mean prediction corrected by the residuals of labels of other policies, or why it is refused."""
    assert fitted.calibrator is not None
    z, weight = taken(rows.z, index), taken(rows.weight, index)
    share = weight / weight.sum()
    units = _units(rows, options)
    if lender.taught is not None:
        refused = refusal(fitted, lender, z, share, options.borrowed)
        of_responses = mean_of_rows(units, index, weight)
        value, sampling, correction, moves = spline.borrow(
            lender.taught, taken(rows.score, index), of_responses
        )
        if refused is None and np.isnan(correction.df):
            refused = Status.LOW_SUPPORT
        if refused is not None:
            return PolicyFit(PolicyResult(refused, "none"))
        result = PolicyResult(status, "spline", "borrowed", value, balance=correction.balance)
        return PolicyFit(_finish(rows, result, sampling, (correction,), None, options), moves=moves)
    form = "balanced" if options.borrowed == "spline" else options.borrowed
    refused, shift, correction = borrowed_residual(units, fitted, lender, z, share, form)
    if refused is not None:
        return PolicyFit(PolicyResult(refused, "none"))
    f = predict(fitted.calibrator, z)
    if lender.shift is not None:
        f += lender.shift[taken(rows.prompt, index)]
    value, sampling = mean_part(units, index, f, weight)
    result = PolicyResult(status, form, "borrowed", value + shift, balance=correction.balance)
    return PolicyFit(_finish(rows, result, sampling, (correction,), None, options))


def borrowed_residual(
    rows: Rows,
    fitted: OracleSlice,
    lender: Lender,
    z: FloatArray,
    share: FloatArray,
    borrowed: str = "balanced",
) -> tuple[Status | None, float, Part]:
    """Mean residual that labels of other policies lend to responses z of these shares, and its error.

    The status says why nothing may be borrowed; it is None where the rest holds.
    """
    refused = refusal(fitted, lender, z, share, borrowed)
    if refused is not None:
        return refused, np.nan, Part(np.full(len(rows.prompts), np.nan), np.nan)
    if borrowed == "one_step":
        shift, part = density_ratio_residual(rows, fitted, z, share)
    else:
        assert lender.lesson is not None
        shift, part = balanced_residual(rows, fitted, lender.lesson, z, share, lender.judge)
    return (Status.LOW_SUPPORT if np.isnan(part.df) else None), shift, part


def refusal(
    fitted: OracleSlice, lender: Lender, z: FloatArray, share: FloatArray, borrowed: str
) -> Status | None:
    """Return why responses z of these shares may borrow nothing: the judge, or labels that do not reach them."""
    if not lender.judge.informative:
        return Status.UNINFORMATIVE_JUDGE
    # the covariates count where the value rests on them: in the balance, and in a calibrator that sees them
    n_used = 1 if borrowed == "one_step" and fitted.mode == "monotone" else z.shape[1]
    enough = lender.n_clusters >= MIN_LABELLED_CLUSTERS
    if not (enough and supported(lender.reach[:, :n_used], lender.n_clusters, z[:, :n_used], share)):
        return Status.LOW_SUPPORT
    return None


def join_splines(
    rows: Rows, fitted: OracleSlice, fits: Sequence[PolicyFit], lender: Lender | None
) -> Borrowed | None:
    """Values that the spline posterior of one curve made or corrects, side by side; None where it made none.

    A policy with labels of its own takes part where these are all its labels in the slice, so that differences with it
    know what they share.
    """
    if lender is None or lender.taught is None or all(fit.moves is None for fit in fits):
        return None
    teaching = np.flatnonzero(rows.teaches)
    values = []
    for p, fit in enumerate(fits):
        value, of_policy = fit.moves, rows.policy[teaching] == p
        shared = len(fit.own) > 0 and np.array_equal(teaching[of_policy], fit.own)
        if value is None and shared and np.isfinite(fit.result.std_error):
            index = np.flatnonzero((rows.policy == p) & rows.evaluated)
            value = spline.own_value(
                lender.taught,
                rows.score[index],
                mean_of_rows(rows, index, rows.weight[index]),
                of_policy,
                mean_of_rows(rows, fit.own, own_weight(rows, fit.own)),
                fit.prediction.power + fit.prediction.power_curve,
                fit.result.value,
            )
        values.append(value)
    return spline.join(lender.taught, values, rows.cluster, pooled=rows.stands_for.size > 0)


def with_spline_limits(
    fits: Sequence[PolicyFit], parts: Borrowed | None, ci_prob: float, scale: tuple[float, float]
) -> list[PolicyResult]:
    """Results of the policies, those that the spline posterior made with their limits."""
    return [
        fit.result
        if fit.moves is None or parts is None
        else fit.result._replace(bounds=value_limits(parts, p, ci_prob, scale), kind="spline")
        for p, fit in enumerate(fits)
    ]


def _finish(
    rows: Rows,
    result: PolicyResult,
    sampling: Part,
    labels: tuple[Part] | tuple[()],
    folds: tuple[float, float] | None,
    options: Options,
) -> PolicyResult:
    """Influence, standard error and degrees of freedom by the kind of inference asked for.

    `sampling` is the error from the responses drawn, `labels` what their finite number adds, `folds` the variance and
    degrees of freedom of the delete-one-fold jackknife.
    """
    if options.inference in F_KNOWN:
        std_error = float(cluster_se(sampling.influence, _units(rows, options).cluster))
        return result._replace(influence=sampling.influence, std_error=std_error, se_evaluation=std_error)
    influence, std_error, (evaluation, *of_labels), df = combine_errors([sampling, *labels], rows.cluster)
    calibration = of_labels[0] if labels else 0.0
    if np.isnan(evaluation):
        calibration = np.nan
    if folds is not None:
        # own residuals belong to the variance for a given f; the fit of a borrowed one is what the folds measure
        given_f = [sampling] if result.route == "plug_in" else [sampling, *labels]
        _, evaluation, given_df = combine(given_f, rows.cluster)
        calibration = float(np.sqrt(folds[0]))
        std_error = float(np.hypot(evaluation, calibration))
        df = pooled_df_of_one([evaluation**2, folds[0]], [given_df, folds[1]])
    if options.quantile == "normal":
        df = np.inf
    return result._replace(
        influence=influence, std_error=std_error, df=df, se_evaluation=evaluation, se_calibration=calibration
    )


def _units(rows: Rows, options: Options) -> Rows:
    """Rows whose clusters are the sampling units of the standard error."""
    return rows._replace(cluster=np.arange(len(rows.prompts))) if options.inference == "plugin_iid" else rows


def own_weight(rows: Rows, own: IntArray) -> FloatArray:
    """Weight of labelled rows in the correction: prompt weight over label probability."""
    return np.asarray(rows.weight[own] / rows.label_prob[own])


def _one_step(
    rows: Rows,
    index: IntArray,
    own: IntArray,
    prediction: Prediction,
    options: Options,
    f: FloatArray,
    own_f: FloatArray,
    means: tuple[MeanOver, MeanOver],
) -> tuple[float, Part, Part]:
    """Value of a policy with own labels, and its two sources of error: responses drawn and own residuals.

    ``f`` is the calibrator about its center on the evaluated rows, ``own_f`` on the policy's labelled rows;
    ``means`` are those of `_means`.
    """
    n = len(rows.prompts)
    weight, label, label_weight = taken(rows.weight, index), rows.label[own], own_weight(rows, own)
    h = prediction.power * f
    h += prediction.offset
    own_h = prediction.own_offset + prediction.power * own_f
    if options.correction == "tmle":
        clever, own_clever = _clever(rows, index), _clever(rows, own)
        h, own_h = targeted(h, clever, own_h, own_clever, label, label_weight, options.scale)
    of_responses, of_labels = means
    value, sampling = of_responses.part(h)
    shift, correction = of_labels.part(label - own_h)
    if options.correction == "tmle":
        return value, sampling, correction  # the fluctuation made the residuals average to zero
    if options.normalise == "ht":
        share, own_share = weight / weight.sum(), label_weight / weight.sum()
        moved = own_share * (label - own_h)
        shift = float(moved.sum())
        influence = n * (sum_by(rows.prompt[own], moved, n) - shift * sum_by(rows.prompt[index], share, n))
        leverage = sum_by(rows.prompt[own], own_share, n)
        correction = make_part(influence, leverage, _units(rows, options).cluster)
    return value + shift, sampling, correction


def _means(rows: Rows, index: IntArray, own: IntArray, options: Options) -> tuple[MeanOver, MeanOver]:
    """Means over the evaluated rows and over the own labelled ones, by the sampling units asked for."""
    units = _units(rows, options)
    return mean_of_rows(units, index, taken(rows.weight, index)), mean_of_rows(
        units, own, own_weight(rows, own)
    )


def _clever(rows: Rows, index: IntArray) -> FloatArray:
    """Clever covariate 1 / e of some rows."""
    prob = rows.label_prob[index]
    if not (prob > 0).all():
        raise DataError(
            "label_prob is missing for a response without a label; a TMLE needs the probability of every evaluated "
            "response (or use correction='theta_aug')"
        )
    return np.asarray(1 / prob)


def oracle_folds(fitted: OracleSlice) -> IntArray:
    """Folds that hold labels of the slice."""
    return np.unique(fitted.fold[fitted.prompt])


def _without_each_fold(fitted: OracleSlice, z: FloatArray) -> Iterator[tuple[int, FloatArray]]:
    """Each fold that holds labels, and the predictions f^(-k)(Z) of all rows without it."""
    prompt_of = {int(fitted.fold[i]): int(i) for i in fitted.prompt}
    for k in oracle_folds(fitted).tolist():
        yield k, held_out(fitted, z, np.full(len(z), prompt_of[k]))


def _fold_part(rows: Rows, fitted: OracleSlice, left_out: FloatArray, value: float) -> tuple[float, float]:
    """Delete-one-oracle-fold variance and its degrees of freedom; a fold's size is its labelled clusters."""
    _, first = np.unique(rows.cluster[fitted.prompt], return_index=True)
    _, size = np.unique(fitted.fold[fitted.prompt][first], return_counts=True)
    return float(delete_group_variance(left_out, size, value)), len(left_out) - 1.0
