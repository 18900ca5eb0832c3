"""Label schemes: the declared probabilities are the true ones (but for MNAR, which must be caught)."""

import numpy as np
import oracles_worlds as slow
import pytest

from cje_sim import labelling
from cje_sim.labelling import Labelling

REPEATS = 1200
N = 40
KNOWN = ("uniform", "stratified", "score", "active", "cluster")


def world(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    judge = np.round(rng.random((2, N)), 1)
    return judge, np.clip(judge + rng.normal(0, 0.2, judge.shape), 0, 1)


def draws(scheme: str, design: str = "own") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inclusion frequencies, declared probabilities and the Horvitz-Thompson mean of every repeat, one
    world.
    """
    judge, oracle = world(np.random.default_rng(11))
    cluster = np.arange(N) // 4
    rng = np.random.default_rng(12)
    seen, means, prob = np.zeros(judge.shape), [], None
    for _ in range(REPEATS):
        data = labelling.label(
            judge, oracle, ["a", "b"], Labelling(0.3, design, scheme), cluster=cluster, rng=rng
        )
        got, prob = data.labelled.values[..., 0], data.label_prob.values[..., 0]
        seen += got
        means.append(np.where(got, oracle / np.where(prob > 0, prob, 1), 0).mean(axis=1))
    return seen / REPEATS, prob, np.array(means) - oracle.mean(axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", KNOWN)
def test_inclusion_probabilities(scheme: str) -> None:
    """Frequencies of 80 inclusions over 1200 draws, and unbiasedness of the HT mean, within 5 SE."""
    frequency, prob, error = draws(scheme)
    assert (np.abs(frequency - prob) < 5 * np.sqrt(prob * (1 - prob) / REPEATS) + 1e-12).all()
    assert (np.abs(error.mean(axis=0)) < 5 * error.std(axis=0) / np.sqrt(REPEATS)).all()


@pytest.mark.slow
def test_mnar_is_not_what_it_declares() -> None:
    """The planted error: the same check must fail, on the frequencies and on the mean (biased upwards)."""
    frequency, prob, error = draws("mnar")
    assert (prob == 0.3).all()
    assert (np.abs(frequency - prob) > 5 * np.sqrt(prob * (1 - prob) / REPEATS)).any()
    assert (error.mean(axis=0) > 5 * error.std(axis=0) / np.sqrt(REPEATS)).all()


@pytest.mark.parametrize("scheme", labelling.SCHEMES)
def test_designs_and_probes(scheme: str) -> None:
    rng = np.random.default_rng(1)
    judge, oracle = world(rng)
    for design in ("own", "base"):
        data = labelling.label(judge, oracle, ["a", "b"], Labelling(0.3, design, scheme, n_probes=5), rng=rng)
        assert data.attrs["calibration_policy"] == (["a", "b"] if design == "own" else ["a"])
        assert data.probe.sum(("prompt", "draw")).values.tolist() == [0, 5]
        assert not (data.probe & data.labelled).any()
        shown = np.isfinite(data.oracle.values)
        assert (shown == (data.labelled | data.probe).values).all()
        assert (data.oracle.values[shown] == oracle[..., None][shown]).all()
        if design == "base":
            assert (data.label_prob.values[1] == 0).all()


@pytest.mark.parametrize("scheme", ["uniform", "stratified", "early"])
@pytest.mark.parametrize("fraction", [0.0, 0.05, 0.26, 1.0])
def test_exact_sizes(scheme: str, fraction: float) -> None:
    rng = np.random.default_rng(2)
    data = labelling.label(*world(rng), ["a", "b"], Labelling(fraction, scheme=scheme), rng=rng)
    assert data.labelled.sum(("prompt", "draw")).values.tolist() == [round(fraction * N)] * 2


def test_early_labels_come_first_and_whole_clusters_stay_whole() -> None:
    rng = np.random.default_rng(3)
    judge, oracle = world(rng)
    early = labelling.label(judge, oracle, ["a", "b"], Labelling(0.25, scheme="early"), rng=rng)
    assert np.flatnonzero(early.labelled.values[0, :, 0]).tolist() == list(range(10))
    cluster = np.arange(N) // 4
    whole = labelling.label(
        judge, oracle, ["a", "b"], Labelling(0.3, scheme="cluster"), cluster=cluster, rng=rng
    )
    assert set(np.bincount(cluster, whole.labelled.values[0, :, 0])) == {0.0, 4.0}
    assert (whole.label_prob == 0.3).all()


@pytest.mark.parametrize("sizes", [[10, 10, 10, 10], [1, 20, 3, 16], [0, 5, 35], [40]])
@pytest.mark.parametrize("total", [0, 1, 7, 39, 40])
def test_allocation_against_dealing(sizes: list[int], total: int) -> None:
    stratum = np.repeat(np.arange(len(sizes)), sizes)
    chosen, prob = labelling.stratified(stratum, total, np.random.default_rng(0))
    dealt = slow.proportional_allocation(sizes, total)
    assert np.bincount(stratum, chosen, minlength=len(sizes)).tolist() == dealt
    assert prob == pytest.approx((np.array(dealt) / np.maximum(sizes, 1))[stratum])


def test_draws_of_a_prompt_are_labelled_together() -> None:
    rng = np.random.default_rng(4)
    judge = rng.random((2, N, 3))
    data = labelling.label(judge, judge, ["a", "b"], Labelling(0.5, n_probes=3), rng=rng)
    count = data.labelled.sum("draw").values
    assert set(np.unique(count)) == {0, 3}
    assert not data.probe.values[..., 1:].any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fraction": 1.2}, r"in \[0, 1\]"),
        ({"design": "mine"}, "'own' or 'base'"),
        ({"scheme": "lucky"}, "one of uniform"),
        ({"n_probes": 39}, "only 28 responses"),
    ],
)
def test_bad_parameters(change: dict[str, object], message: str) -> None:
    rng = np.random.default_rng(5)
    judge, oracle = world(rng)
    with pytest.raises(ValueError, match=message):
        labelling.label(judge, oracle, ["a", "b"], Labelling(**{"fraction": 0.3} | change), rng=rng)
