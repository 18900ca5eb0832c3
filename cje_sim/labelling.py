"""Which responses get an oracle label, and with which known probability.

Scheme (`SCHEMES`):

============  =========================================================================================
uniform       simple random sample of exactly ``round(fraction * n)`` prompts
stratified    equal allocation to the quarters of the base policy's score: unequal known probabilities
score         each response by itself, low scores up to three times as likely as high ones
active        each response by itself, half uniformly, half in proportion to ``s (1 - s)``
mnar          each response by itself, with probability rising in *its own label*; the declared
              probability is the overall share, so it is wrong, and no method can know it from the data
cluster       simple random sample of whole clusters
early         the first ``round(fraction * n)`` prompts in order; declared as if they were random
============  =========================================================================================

A design applies to every policy (``own``) or to the first, the base policy, only (``base``: the others borrow
its calibrator). Probe labels audit a policy other than the base; they fall on responses that are not
labelled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.data import from_arrays

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
LabelDesign = Literal["own", "base"]
SCHEMES = ("uniform", "stratified", "score", "active", "mnar", "cluster", "early")
N_STRATA = 4


@dataclass(frozen=True)
class Labelling:
    """How labels are bought; in every world the keywords ``oracle_fraction, label_design, label_scheme, n_probes``.

    Parameters
    ----------
    fraction : float
        Share of prompts (for `score`, `active`, `mnar`: of responses, on average) with labels, in [0, 1].
    design : {"own", "base"}
        Labels under every policy, or under the base policy only; there the others have probability 0.
    scheme : str
        One of `SCHEMES`.
    n_probes : int
        Probe labels for each policy but the base, a simple random sample of its unlabelled first draws.
    """

    fraction: float = 0.25
    design: LabelDesign = "own"
    scheme: str = "uniform"
    n_probes: int = 0

    @property
    def by_label(self) -> bool:
        """Whether the labels themselves decide which of them are visible."""
        return self.scheme == "mnar"

    def __post_init__(self) -> None:
        """Stop at what cannot be."""
        if not 0 <= self.fraction <= 1:
            raise ValueError(f"oracle_fraction={self.fraction}: a share of the prompts lies in [0, 1]")
        if self.design not in ("own", "base"):
            raise ValueError(f"label_design={self.design!r}: it must be 'own' or 'base'")
        if self.scheme not in SCHEMES:
            raise ValueError(f"label_scheme={self.scheme!r}: it must be one of {', '.join(SCHEMES)}")
        if not isinstance(self.n_probes, Integral) or self.n_probes < 0:
            raise ValueError(
                f"n_probes={self.n_probes}: the probes of a policy are a whole number, at least 0"
            )


def simple_random(n: int, size: int, rng: np.random.Generator) -> BoolArray:
    """Simple random sample of `size` out of n, as a mask.

    Examples
    --------
    >>> int(simple_random(8, 2, np.random.default_rng(0)).sum())
    2
    """
    chosen = np.zeros(n, dtype=bool)
    chosen[rng.choice(n, size, replace=False, shuffle=False)] = True
    return chosen


def stratified(
    stratum: npt.NDArray[np.intp], size: int, rng: np.random.Generator
) -> tuple[BoolArray, FloatArray]:
    """Sample of exactly `size` units, spread as evenly over the strata as their sizes allow.

    Parameters
    ----------
    stratum : int array, shape (n,)
        Codes 0, 1, ...
    size : int
        At most n.

    Returns
    -------
    chosen, prob : arrays, shape (n,)
        The sample and ``m_h / N_h`` of each unit's stratum.
    """
    room = np.bincount(stratum)
    # The common quota is the largest that the sample can pay for; what is left goes one each to strata with
    # room.
    taken = np.minimum(room, np.arange(room.max() + 1)[:, None]).sum(axis=1)
    quota = int(np.searchsorted(taken, size, side="right")) - 1
    share = np.minimum(room, quota)
    share[np.flatnonzero(room > quota)[: size - taken[quota]]] += 1
    chosen = np.zeros(len(stratum), dtype=bool)
    for h, m in enumerate(share):
        members = np.flatnonzero(stratum == h)
        chosen[rng.choice(members, m, replace=False, shuffle=False)] = True
    return chosen, np.asarray((share / np.maximum(room, 1))[stratum])


def proportional(appeal: FloatArray, fraction: float) -> FloatArray:
    """Probabilities proportional to a positive `appeal`, with mean `fraction` over each policy, capped at 1.

    Examples
    --------
    >>> proportional(np.array([[1.0, 3.0]]), 0.5).tolist()
    [[0.25, 0.75]]
    """
    flat = appeal.reshape(len(appeal), -1)
    scaled = fraction * flat / np.nanmean(flat, axis=-1, keepdims=True)
    return np.asarray(np.minimum(np.nan_to_num(scaled), 1.0).reshape(appeal.shape))


def label(
    judge: FloatArray,
    oracle: FloatArray,
    policies: Sequence[str],
    labelling: Labelling,
    *,
    cluster: npt.NDArray[np.intp] | None = None,
    judge_range: tuple[float, float] = (0.0, 1.0),
    oracle_range: tuple[float, float] = (0.0, 1.0),
    rng: np.random.Generator,
    **fields: Any,
) -> xr.Dataset:
    """Evaluation data from a complete draw of the world: only the chosen labels stay visible.

    Parameters
    ----------
    judge, oracle : arrays, shape (policies, prompts) or (policies, prompts, draws)
        A complete draw; NaN in both where a policy has no response (the base policy answers every prompt).
    policies : sequence of str
        Names; the first is the base policy.
    labelling : Labelling
    cluster : int array, shape (prompts,), optional
        Cluster codes 0, 1, ...; a prompt is its own cluster when absent.
    judge_range, oracle_range : pair of float
        Declared scales.
    rng : Generator
    **fields
        Further arguments of `cje_core.data.from_arrays`.

    Returns
    -------
    xr.Dataset
        With ``label_prob``; with ``stratum`` under the stratified scheme, with ``cluster`` when given.
    """
    judge, oracle = (np.atleast_3d(values) for values in (judge, oracle))
    chosen = choose(judge, oracle, labelling, cluster, judge_range, oracle_range, rng)
    if cluster is not None:
        fields["cluster"] = cluster
    return from_arrays(
        judge,
        policies=policies,
        oracle=np.where(chosen.seen, oracle, np.nan),
        label_prob=chosen.prob,
        judge_range=judge_range,
        oracle_range=oracle_range,
        **fields,
        **chosen.fields,
    )


class Chosen(NamedTuple):
    """Which labels are visible, arrays of shape (policies, prompts, draws)."""

    seen: BoolArray
    prob: FloatArray
    fields: dict[str, Any]  # ``stratum`` and ``probe``, where there are any


def choose(
    judge: FloatArray,
    oracle: FloatArray | None,
    labelling: Labelling,
    cluster: npt.NDArray[np.intp] | None,
    judge_range: tuple[float, float],
    oracle_range: tuple[float, float],
    rng: np.random.Generator,
) -> Chosen:
    """Choose the labels of a complete draw, shape (policies, prompts, draws), that stay visible.

    What the labels are matters where ``labelling.by_label``.
    """
    fields: dict[str, Any] = {}
    fraction, scheme = labelling.fraction, labelling.scheme
    n = judge.shape[1]
    size = round(fraction * n)
    prob = np.full(n, size / n)

    def unit(values: FloatArray, scale: tuple[float, float]) -> FloatArray:
        return (values - scale[0]) / (scale[1] - scale[0])

    if scheme == "uniform":
        chosen = simple_random(n, size, rng)
    elif scheme == "early":
        chosen = np.arange(n) < size
    elif scheme == "cluster":
        codes = np.arange(n) if cluster is None else cluster
        n_clusters = int(codes.max()) + 1
        n_chosen = round(fraction * n_clusters)
        chosen, prob = simple_random(n_clusters, n_chosen, rng)[codes], np.full(n, n_chosen / n_clusters)
    elif scheme == "stratified":
        base = np.nanmean(unit(judge[0], judge_range), axis=1)
        strata = np.atleast_1d(np.searchsorted(np.quantile(base, np.arange(1, N_STRATA) / N_STRATA), base))
        chosen, prob = stratified(strata, size, rng)
        fields["stratum"] = strata
    else:
        if labelling.by_label:
            assert oracle is not None
            appeal = unit(oracle, oracle_range) + 1e-9
        else:
            score = unit(judge, judge_range)
            appeal = 1.5 - score if scheme == "score" else score * (1 - score) + 1e-9
        prob = proportional(appeal, fraction)
        if scheme != "score":
            prob = (prob + fraction) / 2
        chosen = rng.random(judge.shape) < prob
        if scheme == "mnar":
            prob = np.full(n, fraction)

    seen = _of_responses(chosen, judge.shape) & np.isfinite(judge)
    known = _of_responses(prob, judge.shape)
    if labelling.design == "base":
        seen[1:], known[1:] = False, 0.0
    if labelling.n_probes:
        fields["probe"] = _probes(seen | np.isnan(judge), labelling.n_probes, rng)
        seen |= fields["probe"]
    return Chosen(seen, known, fields)


def _of_responses(values: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Values of prompts (n,) or of responses, for every response."""
    out = np.empty(shape, values.dtype)
    out[...] = values[:, None] if values.ndim == 1 else values
    return out


def _probes(taken: BoolArray, n_probes: int, rng: np.random.Generator) -> BoolArray:
    """Mask of `n_probes` unlabelled first draws of every policy but the first."""
    probe = np.zeros_like(taken)
    for p in range(1, len(taken)):
        free = np.flatnonzero(~taken[p, :, 0])
        if len(free) < n_probes:
            raise ValueError(
                f"n_probes={n_probes}, but only {len(free)} responses of a policy are unlabelled"
            )
        probe[p, rng.choice(free, n_probes, replace=False, shuffle=False), 0] = True
    return probe
