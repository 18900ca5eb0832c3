"""Direct on a block: orders and hashes for the kernels, then statuses, degrees of freedom and intervals."""

from collections.abc import Iterable
from functools import lru_cache, partial

import numpy as np
from scipy import special

from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS, N_FOLDS, stable_hash
from cje_core.calibration.informative import LEVEL, MIN_MINORITY, widening
from cje_core.checks import BoolArray, FloatArray, IntArray
from cje_core.data.block import Block
from cje_core.families.blocks.bootstrap import bootstrap_block
from cje_core.families.blocks.direct_kernels import (
    BALANCED,
    CORRECTED,
    FAILED,
    LABEL_MEAN,
    ONE_STEP,
    PLUG_IN,
    Values,
    lent_values,
    own_values,
)
from cje_core.families.blocks.estimates import (
    BlockEstimate,
    Numbers,
    assemble_block,
    labelled,
    own_evidence,
    standard_error,
)
from cje_core.families.blocks.jackknife import fold_errors
from cje_core.families.blocks.slice_kernels import (
    CONSTANT_JUDGE,
    CONSTANT_LABELS,
    NO_LABELS,
    TOO_FEW_LABELS,
    Slices,
    fit_slices,
    gather_slices,
)
from cje_core.families.direct import spline
from cje_core.families.direct.balance import ALLOWANCE, MAX_OUTSIDE
from cje_core.formulas.borrowed import Borrowed
from cje_core.inference.estimate import Status
from cje_core.inference.influence import mean_over, pooled_df
from cje_core.inference.rank_test import AGAINST

FORMS = {"plug_in": PLUG_IN, "one_step": ONE_STEP, "balanced": BALANCED, "spline": BALANCED}
OF_SLICE = {
    TOO_FEW_LABELS: Status.TOO_FEW_LABELS,
    NO_LABELS: Status.NO_LABELS,
    CONSTANT_LABELS: Status.CONSTANT_LABELS,
    CONSTANT_JUDGE: Status.CONSTANT_JUDGE,
}


@lru_cache(maxsize=1)  # the methods of a study come one after the other
def slices(block: Block) -> Slices:
    """Calibrators, held-out predictions and rank statistics of all data sets."""
    n_sets, n_policies, n = block.score.shape
    m = int(labelled(block).number.sum(axis=1).max())
    out = Slices(
        kind=np.zeros(n_sets, dtype=np.int64),
        rows=np.zeros(n_sets, dtype=np.int64),
        score=np.full((n_sets, m), np.inf),
        by_score=np.empty((n_sets, m), dtype=np.int64),
        at=np.empty((n_sets, m), dtype=np.int64),
        label=np.full((n_sets, m), np.inf),
        label_at=np.empty((n_sets, m), dtype=np.int64),
        weight=np.empty((n_sets, m)),
        policy=np.empty((n_sets, m), dtype=np.int64),
        prompt=np.empty((n_sets, m), dtype=np.int64),
        fold=np.empty((n_sets, n), dtype=np.int64),
        n_folds=np.empty(n_sets, dtype=np.int64),
        knot=np.empty((n_sets, N_FOLDS + 1, m)),
        value=np.empty((n_sets, N_FOLDS + 1, m)),
        total=np.empty((n_sets, N_FOLDS + 1, m)),
        block=np.empty((n_sets, N_FOLDS + 1, m), dtype=np.int64),
        n_knots=np.zeros((n_sets, N_FOLDS + 1), dtype=np.int64),
        center=np.full((n_sets, N_FOLDS + 1), np.nan),
        place=np.zeros(block.score.shape, dtype=np.int32),
        f=np.full(block.score.shape, np.nan),
        own_f=np.full(block.score.shape, np.nan),
        outside=np.full((n_sets, n_policies), np.nan),
        rank=np.full((n_sets, 4), np.nan),
        moves=np.zeros((n_sets, m)),
        minority=np.full(n_sets, np.inf),
    )
    canonical, by_hash = prompt_orders(n)
    orders = canonical, np.argsort(np.array(block.policies)), by_hash
    gather_slices(block.score, block.label, block.label_prob, orders, out)
    out.by_score[:] = np.argsort(out.score, axis=1)
    fit_slices(block.score, np.argsort(out.label, axis=1), out)
    return out


@lru_cache(maxsize=8)
def prompt_orders(n: int) -> tuple[IntArray, IntArray]:
    """Prompts "0", "1", ... in the order of their names, and in that of their hashes."""
    names = np.array([str(i) for i in range(n)])
    canonical = np.argsort(names)
    hashes = np.array([stable_hash(name) for name in names.tolist()], np.uint64)
    return canonical, canonical[np.argsort(hashes[canonical], kind="stable")]


def holds(block: Block, correct: bool, form: int) -> bool:
    """Whether the kernels know the case: what borrows from the slice's residuals needs one labelled row a prompt."""
    if form == PLUG_IN:
        return True
    of_labels = labelled(block)
    borrows = (of_labels.number < MIN_LABELLED_CLUSTERS).any(axis=1) | (not correct)
    return not (borrows & of_labels.shared).any()


def probabilities_known(block: Block) -> bool:
    """Whether every response of a policy with own labels had a chance of one, which a TMLE needs to know."""
    corrected = labelled(block).number >= MIN_LABELLED_CLUSTERS
    return bool((~corrected | (block.label_prob > 0).all(axis=-1)).all())


def direct_block(
    block: Block,
    *,
    ci_prob: float,
    correction: str,
    borrowed: str,
    tuned: bool,
    inference: str,
    interval: str,
    n_boot: int = 0,
    rngs: Iterable[np.random.Generator] = (),
) -> BlockEstimate | None:
    """Direct of all data sets; None where the kernels do not know the case.

    Parameters
    ----------
    correction : {"theta_aug", "tmle", "none"}
        How own labels correct, if they do.
    tuned : bool
        Whether they do so by a tuned prediction.
    inference : {"influence", "cluster", "jackknife"}
        What the labels add to the error: nothing where f is taken as known (``cluster``); the delete-one-fold jackknife
        is for predictions that are not tuned.
    borrowed : {"spline", "balanced", "one_step", "plug_in"}
    interval : str
        A kind of `cje_core.families.intervals`, or "normal".
    n_boot : int
        Bootstrap replicates that make the intervals of predictions that are not tuned; 0 for none.
    rngs : iterable of Generator
        Theirs, one per data set.
    """
    form, correct, targeted, known = (
        FORMS[borrowed],
        correction != "none",
        correction == "tmle",
        inference == "cluster",
    )
    if not holds(block, correct, form) or (targeted and not probabilities_known(block)):
        return None
    found, own = fit_block(block, correct, form, tuned, known, targeted)
    splines = borrow_splines(block, found, own) if borrowed == "spline" else None
    status = statuses(block, found, own, correct, form)
    evidence = own_evidence(block) if correct else None
    if inference == "jackknife":
        std_error, df = fold_errors(block, slices(block), found)
    else:
        std_error, df = standard_error(found.influence), pooled_df(found.variance, found.df)
    if known or interval == "normal":
        df = np.full(own.shape, np.inf)
    draws = None
    if n_boot:
        failed = status >= Status.TOO_FEW_LABELS
        alive, canonical = ~failed & np.isfinite(std_error), prompt_orders(block.score.shape[2])[0]
        draws, few = bootstrap_block(block, slices(block), found.route, alive, canonical, n_boot, rngs)
        status[few], std_error[few] = Status.FEW_RESAMPLES, np.nan
    numbers = Numbers(found.value, found.influence, std_error, df, status, found.balance)
    kind = "wald" if interval == "normal" else interval
    return assemble_block(
        block, numbers, ci_prob=ci_prob, kind=kind, evidence=evidence, draws=draws, splines=splines
    )


def fit_block(
    block: Block, correct: bool, form: int, tuned: bool, known: bool = False, targeted: bool = False
) -> tuple[Values, BoolArray]:
    """Run the kernels; which policies have own labels that correct, shape (R, P)."""
    if correct:
        kept = corrected(block, tuned, known, targeted)
        out = kept._replace(**{name: getattr(kept, name).copy() for name in kept._fields[:-1]})
    else:
        out = nothing(block, known)
    own, fits = np.isin(out.route, (CORRECTED, LABEL_MEAN)), slices(block)
    wider = np.array([widening(p) for p in p_values(block)]) if form == BALANCED else np.ones(len(own))
    lent_values(block.score, fits, own, wider, form, out)
    return out, own


def borrow_splines(block: Block, found: Values, own: BoolArray) -> list[Borrowed | None]:
    """Put the spline posterior's values where it is defined (filled into `found`); their parts, for each data set."""
    fits, (informative, _) = slices(block), lends(block, found)
    reached = fits.outside <= (MAX_OUTSIDE + ALLOWANCE * 2 / (fits.rank[:, 3] + 1))[:, None]
    n_sets, n_policies, n = block.score.shape
    every = np.arange(n)
    of_responses = mean_over(every, np.ones(n), every)
    out: list[Borrowed | None] = [None] * n_sets
    for r in range(n_sets):
        m = int(fits.rows[r])
        lent = ~own[r] & reached[r]
        if not informative[r] or not lent.any() or np.ptp(fits.weight[r, :m]) > 0:
            continue
        policy, prompt, score = fits.policy[r, :m], fits.prompt[r, :m], block.score[r]
        sources = score[np.unique(policy)].ravel()
        taught = spline.teach_arrays(
            fits.score[r, :m], fits.label[r, :m], prompt, (sources, np.ones(len(sources))), block.judge_range,
            block.oracle_range,
        )  # fmt: skip
        values: list[spline.SplineValue | None] = []
        for p in range(n_policies):
            values.append(None)
            if lent[p]:
                value, *errors, moves = spline.borrow(taught, score[p], of_responses)
                if not np.isnan(errors[1].df):
                    values[p] = moves
                    found.value[r, p], found.balance[r, p] = value, errors[1].balance
                    found.influence[r, p] = errors[0].influence + (
                        0.0 if found.f_known else errors[1].influence
                    )
                    for k, part in enumerate(errors):
                        found.variance[r, p, k], found.df[r, p, k] = (part.influence**2).sum() / n**2, part.df
                else:
                    found.df[r, p, 1] = np.nan
            elif own[r, p] and not labelled(block).equal[r, p]:
                mine = policy == p
                of_labels = mean_over(prompt[mine], np.ones(mine.sum()), every)
                values[p] = spline.own_value(
                    taught, score[p], of_responses, mine, of_labels, found.lam[r, p], found.value[r, p]
                )
        if any(one is not None and not one.own for one in values):
            out[r] = spline.join(taught, values, None)
    return out


def nothing(block: Block, known: bool) -> Values:
    """`Values` to be filled."""
    shape = block.score.shape
    nan, two = partial(np.full, fill_value=np.nan), (*shape[:2], 2)
    return Values(
        np.full(shape[:2], FAILED),
        nan(shape[:2]),
        nan(shape),
        nan(two),
        nan(two),
        nan(shape),
        np.ones(shape[:2]),
        known,
    )


@lru_cache(maxsize=1)  # whatever the others borrow
def corrected(block: Block, tuned: bool, known: bool, targeted: bool = False) -> Values:
    """Values of the policies whose own labels correct; nothing of the others."""
    out = nothing(block, known)
    low, high = map(float, block.oracle_range)
    own_values(
        block.score, block.label, block.label_prob, slices(block), (tuned, targeted, low, high - low), out
    )
    return out


def statuses(block: Block, found: Values, own: BoolArray, correct: bool, form: int) -> IntArray:
    """Status of each policy, (R, P): that of the slice, and why nothing may be borrowed."""
    taught_by, of_labels = slices(block), labelled(block)
    constant = of_labels.equal
    p_value, rho = p_values(block), taught_by.rank[:, 0]
    of_slice = np.zeros(len(rho), dtype=np.int64)
    of_slice[(rho < 0) & (p_value > 1 - AGAINST / 2)] = Status.INVERTED_JUDGE
    for kind, named in OF_SLICE.items():
        of_slice[taught_by.kind == kind] = named
    status = np.broadcast_to(of_slice[:, None], own.shape).copy()
    failed = status >= Status.TOO_FEW_LABELS
    status[own & ~failed & constant] = Status.CONSTANT_LABELS
    all_labelled = found.route == LABEL_MEAN
    status[all_labelled] = np.where(constant[all_labelled], Status.CONSTANT_LABELS, Status.OK)
    taught = of_labels.number >= MIN_LABELLED_CLUSTERS
    lent = ~own & ~failed
    status[lent & (status == Status.OK) & ~(taught & (not correct))] = Status.TRANSPORT_ASSUMED
    if form != PLUG_IN:
        informative, far = lends(block, found)
        status[lent & far] = Status.LOW_SUPPORT
        status[lent & ~informative[:, None]] = Status.UNINFORMATIVE_JUDGE
    return status


def lends(block: Block, found: Values) -> tuple[BoolArray, BoolArray]:
    """Whether the labels show that the judge tells good from bad, (R,), and whom they do not reach, (R, P)."""
    slice_ = slices(block)
    informative = (p_values(block) < LEVEL) & ~(slice_.minority < MIN_MINORITY)
    room = MAX_OUTSIDE + ALLOWANCE * 2 / (slice_.rank[:, 3] + 1)
    return informative, (slice_.outside > room[:, None]) | np.isnan(found.df[..., 1])


@lru_cache(maxsize=1)
def p_values(block: Block) -> FloatArray:
    """One-sided p-values of the judge's test, (R,): `cje_core.inference.rank_test.rank_test`."""
    rho, t, rows, clusters = slices(block).rank.T
    df = np.maximum(np.minimum(rows, clusters) - 2.0, 1.0)
    least = 1 / special.factorial(np.minimum(clusters, 170))
    p_value = np.clip(special.stdtr(df, -t), least, 1 - least)
    return np.where(np.isnan(rho), 1.0, p_value)
