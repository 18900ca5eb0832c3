"""Plasmode worlds: resample a user's own evaluation data, with a truth that is known by construction.

The user's prompts are the population. A replicate draws prompts with replacement, whole (every policy's judge scores,
draws, covariates and log-probabilities together), so the dependence between policies, scores, lengths and weights is
the data's own. Labels exist for few responses, so each response gets a *law* of labels: the labels of the donors near
it, own donors if the policy has enough of them, else those of the calibration policies (the policy's transport is then
perfect by construction). With ``bandwidth = 0`` the donors are the nearest labelled responses, ties included (hot deck,
no smoothing); with a positive bandwidth all donors count with a Gaussian kernel weight. Truth is the mean over the
population of the means of these laws: an average of given numbers, no estimator and no simulation.

The world is a caricature where donors are few; its use is to ask how an estimator behaves on data *like these*.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.data import LOGGED, DataError
from cje_core.data.contract import teaching_policies
from cje_sim.labelling import FloatArray, LabelDesign, Labelling, label

IntArray = npt.NDArray[np.intp]
CHUNK = 256  # responses whose kernel weights are held in memory at once


@dataclass(frozen=True)
class World:
    """A fitted world; make it with `fit`. Tuples have an entry for each policy."""

    population: xr.Dataset  # the user's prompts, the base policy first; no judge score where none counts
    row: IntArray  # (policies, prompts, draws): which law a response's label follows, -1 without a response
    labels: tuple[FloatArray, ...]  # (K,) that can occur
    # (rows, K): their cumulative probabilities plus the row's number, one rising sequence to search as a whole
    ladder: tuple[FloatArray, ...]
    own_donors: tuple[bool, ...]  # whether the policy's labels come from its own labelled responses
    borrowed: FloatArray  # (policies,) means of the base's laws: what perfect calibration on it would say


def fit(
    data: xr.Dataset, *, bandwidth: float = 0.25, use_covariates: bool = True, min_donors: int = 20
) -> World:
    """World in which every response of `data` has a law of labels.

    Labels of all kinds are used, probes too; responses that are not `evaluated` serve as donors only, and prompts that
    the (first) calibration policy did not answer leave the population.

    Parameters
    ----------
    bandwidth : float
        Kernel sd in units of the standard deviations of judge score and covariates; 0 means nearest donors.
    use_covariates : bool
        Whether nearness looks at covariates besides the judge score.
    min_donors : int
        Labels that a policy needs to have laws of its own.
    """
    if not (np.isfinite(bandwidth) and bandwidth >= 0):
        raise ValueError(f"bandwidth={bandwidth}: it must be finite and >= 0")
    teachers = teaching_policies(data)
    if not teachers:
        raise DataError("no response has an oracle label; a plasmode world needs some")
    order = [teachers[0], *(p for p in data.policy.values.tolist() if p != teachers[0])]
    data = data.sel(policy=order)
    judge, oracle = data["judge"].values, data["oracle"].values
    place = judge[..., None]
    if use_covariates and "covariate" in data:
        place = np.concatenate([place, data["covariate"].values], axis=-1)
    spread = np.nanstd(place.reshape(-1, place.shape[-1]), axis=0)
    place = place / np.where(spread > 0, spread, 1.0)

    counts = data["evaluated"].values & np.isfinite(judge)
    kept = counts[0].any(axis=1)
    counts = counts & kept[None, :, None]
    donor = np.isfinite(oracle)
    pooled = donor & np.isin(order, teachers)[:, None, None]
    row = np.full(judge.shape, -1, dtype=np.intp)
    ladders: list[FloatArray] = []
    labels, own, borrowed = [], [], []
    for p, policy in enumerate(order):
        if not counts[p].any():
            raise DataError(
                f"policy {policy!r} has no evaluated response to a prompt that {order[0]!r} answered"
            )
        places, code = np.unique(place[p][counts[p]], axis=0, return_inverse=True)
        row[p][counts[p]] = code.reshape(-1)  # NumPy 2.0 keeps a second axis here
        enough = int(donor[p].sum()) >= min_donors
        source = donor & (np.arange(len(order)) == p)[:, None, None] if enough else pooled
        values, law = label_law(places, place[source], oracle[source], bandwidth)
        labels.append(values)
        rungs = np.minimum(np.cumsum(law, axis=1), 1.0)
        rungs[:, -1] = 1.0
        ladders.append(rungs + np.arange(len(rungs))[:, None])
        own.append(enough)
        on_base = np.concatenate(
            [w @ oracle[pooled] for w in _donor_weights(places, place[pooled], bandwidth)]
        )
        borrowed.append(_prompt_mean(on_base[row[p]], counts[p]))
    population = data.assign(judge=data["judge"].where(counts)).isel(prompt=np.flatnonzero(kept))
    return World(population, row[:, kept], tuple(labels), tuple(ladders), tuple(own), np.array(borrowed))


def label_law(
    places: FloatArray, donors: FloatArray, values: FloatArray, bandwidth: float
) -> tuple[FloatArray, FloatArray]:
    """Law of the label at each place: kernel-weighted shares of the donors' labels.

    `places` (rows, d), `donors` (m, d) with their labels `values` (m,); `bandwidth` is the sd of the Gaussian kernel, 0
    gives all weight to the nearest donors, equally. Returns the distinct labels (K,), rising, and their probabilities
    (rows, K).

    Examples
    --------
    >>> donors, values = np.array([[0.1], [0.1], [0.9]]), np.array([0.0, 1.0, 1.0])
    >>> labels, law = label_law(np.array([[0.2]]), donors, values, bandwidth=0.0)
    >>> labels.tolist(), law.tolist()
    ([0.0, 1.0], [[0.5, 0.5]])
    """
    order = np.argsort(values, kind="stable")
    labels, starts = np.unique(values[order], return_index=True)
    blocks = _donor_weights(places, donors[order], bandwidth)
    law = np.concatenate([np.add.reduceat(weight, starts, axis=1) for weight in blocks], axis=0)
    return np.asarray(labels, dtype=float), law


def _donor_weights(places: FloatArray, donors: FloatArray, bandwidth: float) -> Iterator[FloatArray]:
    """Normalised weights (rows, m) of the donors at each place, in blocks of rows."""
    for start in range(0, len(places), CHUNK):
        here = places[start : start + CHUNK]
        square = np.zeros((len(here), len(donors)))
        for axis in range(places.shape[1]):
            square += (here[:, axis, None] - donors[None, :, axis]) ** 2
        square -= square.min(axis=1, keepdims=True)
        # Equal places differ by rounding at most; anything beyond is farther.
        weight = np.exp(-0.5 * square / bandwidth**2) if bandwidth > 0 else (square < 1e-18).astype(float)
        yield weight / weight.sum(axis=1, keepdims=True)


def truth(world: World) -> xr.DataArray:
    """``V(policy)``: mean over prompts of the mean over its responses of ``E[Y | response]``, a finite average."""
    values = []
    for p, (labels, ladder) in enumerate(zip(world.labels, world.ladder, strict=True)):
        mean = np.diff(ladder - np.arange(len(ladder))[:, None], axis=1, prepend=0.0) @ labels
        values.append(_prompt_mean(mean[world.row[p]], world.row[p] >= 0))
    return xr.DataArray(values, coords={"policy": world.population.policy.values}, name="truth")


def residual(world: World) -> xr.DataArray:
    """Transport residual: truth minus what the calibration policies' laws would give on the same responses."""
    return (truth(world) - world.borrowed).rename("residual")


def simulate(
    world: World,
    *,
    n: int | None = None,
    oracle_fraction: float = 0.25,
    label_design: LabelDesign = "base",
    label_scheme: str = "uniform",
    n_probes: int = 0,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Evaluation data on n prompts drawn with replacement from the world's population.

    Where the user's data have clusters, whole clusters are drawn until n prompts are reached (the last is cut), and
    each drawn copy is a cluster of its own.

    `n` is by default the population's; labels are drawn as in every world, see `cje_sim.labelling.Labelling`.
    ``logged_oracle`` is there when the logged responses are the base policy's own (equal judge scores).
    """
    rng = np.random.default_rng(rng)
    labelling = Labelling(oracle_fraction, label_design, label_scheme, n_probes)
    source = world.population
    size = source.sizes["prompt"] if n is None else n
    picked, cluster = _draw_prompts(source, size, rng)
    judge = source["judge"].values[:, picked]
    row = world.row[:, picked]
    u = rng.random(row.shape)
    oracle = np.full(row.shape, np.nan)
    for p, (labels, ladder) in enumerate(zip(world.labels, world.ladder, strict=True)):
        there = row[p] >= 0
        rung = np.searchsorted(ladder.ravel(), (row[p] + u[p])[there], side="right")
        oracle[p][there] = labels[np.minimum(rung - row[p][there] * len(labels), len(labels) - 1)]

    drawn = source.isel(prompt=picked)
    fields: dict[str, Any] = {
        name: drawn[name].values for name in ("covariate", "surprisal") if name in drawn
    }
    if "covariate" in fields:
        fields["features"] = source["feature"].values.tolist()
    logged = {k: drawn[k].values for k in LOGGED if k in drawn and k != "logged_oracle"}
    data = label(
        judge,
        oracle,
        source.policy.values.tolist(),
        labelling,
        judge_range=tuple(source.attrs["judge_range"]),
        oracle_range=tuple(source.attrs["oracle_range"]),
        rng=rng,
        evaluated=row >= 0,
        cluster=cluster,
        logged=logged,
        **fields,
    )
    if "logged_judge" in logged and np.array_equal(logged["logged_judge"], judge[0, :, 0], equal_nan=True):
        data = data.assign(logged_oracle=data["oracle"].isel(policy=0, draw=0, drop=True))
    return data


def _draw_prompts(source: xr.Dataset, n: int, rng: np.random.Generator) -> tuple[IntArray, IntArray | None]:
    """Indices of n prompts drawn with replacement, and cluster codes where the data have clusters."""
    if "cluster" not in source:
        return rng.integers(source.sizes["prompt"], size=n), None
    _, code = np.unique(source["cluster"].values, return_inverse=True)
    members = np.argsort(code, kind="stable")
    sizes = np.bincount(code)
    starts = np.cumsum(sizes) - sizes
    drawn = rng.integers(len(sizes), size=n)  # n clusters are always enough
    drawn = drawn[: int(np.searchsorted(np.cumsum(sizes[drawn]), n)) + 1]
    copy = np.repeat(np.arange(len(drawn)), sizes[drawn])[:n]
    within = (np.arange(len(copy)) - (np.cumsum(sizes[drawn]) - sizes[drawn])[copy]).astype(np.intp)
    return members[starts[drawn][copy] + within], copy


def _prompt_mean(values: FloatArray, there: npt.NDArray[np.bool_]) -> float:
    """Mean over prompts of the mean over their responses, shapes (prompts, draws)."""
    number = there.sum(axis=1)
    sums = np.where(there, values, 0.0).sum(axis=1)
    return float((sums[number > 0] / number[number > 0]).mean())
