"""What every estimator of the directory says its values rest on, against what moves them.

A value is asked by changing the data: labels and probes of its policy, those of all others, log-likelihoods, the
simulator's truth. Labels are drawn in towards the bottom of the scale by a fifth (binary ones: every other 1 is made a
0); what rests on them alone follows one to one.
"""

from functools import cache

import numpy as np
import pytest
from conformance_world import BINARY, NAMES, POLICIES, rich

from cje_core import estimators
from cje_core.data.arrays import unpack
from cje_core.estimators import direct, ppi, raw_judge
from cje_core.families.assemble import assemble
from cje_core.families.finish import Found, PolicyResult
from cje_core.inference.estimate import Status
from cje_core.inference.sources import SOURCES, borrows, earned

LOW, DRAWN_IN = 1.0, 0.2
DRAWS = {"bayes_corrected", "bayes_direct", "projection_posterior"}
WORLDS = ("own labels", "borrowed")


def world(name, which):
    """Labels and probes of every policy, or labels of the base policy and probes of the others."""
    return _world(name in BINARY, which)


@cache
def _world(binary, which):
    data = rich(min(BINARY) if binary else "direct")
    if which == "borrowed":
        lost = data.labelled & (data.policy != "base")
        data = data.assign(labelled=data.labelled & ~lost, oracle=data.oracle.where(~lost))
    return data


def lower(labels, binary):
    if binary:
        return labels.where(
            (labels == LOW) | labels.isnull() | (np.arange(labels.sizes["prompt"]) % 2 == 0), LOW
        )
    return labels - DRAWN_IN * (labels - LOW)


def drawn_in(data, which, binary):
    """Oracle labels of some policies drawn in; those of the logged responses are the base policy's."""
    at = data.policy.isin(which)
    dims = data.oracle.dims
    moved = data.assign(
        oracle=lower(data.oracle.transpose(..., "prompt"), binary).where(at, data.oracle).transpose(*dims)
    )
    return moved.assign(logged_oracle=lower(data.logged_oracle, binary)) if "base" in which else moved


@cache
def changes(binary, which):
    """By policy the data with its labels drawn in, with those of others, and without its log-likelihoods.

    And under None the data with another truth.
    """
    data = _world(binary, which)
    out = {None: data.assign(true_reward=lower(data.true_reward, False))}
    for policy in POLICIES:
        others = [other for other in POLICIES if other != policy]
        no_logs = data.assign(logp_target=data.logp_target.where(data.policy != policy))
        out[policy] = drawn_in(data, [policy], binary), drawn_in(data, others, binary), no_logs
    return out


def follows(estimate, data, changed, policy):
    """By how much of what labels alone would do a value follows a change of the data; inf where it is lost."""
    before, after = (float(estimate(each).estimate.sel(policy=policy)) for each in (data, changed))
    if np.isnan(after):
        return np.inf
    return (before - after) / (DRAWN_IN * (before - LOW))


def wrong(estimate, which, *, binary=False):
    """Policies whose source does not agree with what moves their value."""
    data, changed = _world(binary, which), changes(binary, which)
    out, found = estimate(data), []
    for policy in POLICIES:
        at = out.sel(policy=policy)
        source, status = at.source.item(), Status(int(at.status))
        if status.failed:
            if not np.isnan(at.estimate):
                found.append((policy, source, "failed"))
            continue

        mine, theirs, logs, truth = (
            follows(estimate, data, each, policy) for each in (*changed[policy], changed[None])
        )
        one_to_one = mine != 0 if binary else abs(mine - 1) < 0.35
        teaches = policy == "base"
        holds = {
            "own": one_to_one and logs == 0,
            "probes": one_to_one and logs == 0 and not teaches,
            "borrowed": ((mine == 0 and theirs != 0) or teaches) and logs == 0 == truth,
            "judge": mine == theirs == logs == truth == 0,
            "logs": logs != 0 and truth == 0,
            "truth": abs(truth - 1) < 1e-9 and mine == 0 == theirs,
        }.get(source, False)
        if not holds:
            found.append((policy, source, mine, theirs, logs, truth))
    return found


@cache
def estimate_by(name, **options):
    options |= {"n_draws": 300} if name in DRAWS else {}
    return cache_by_id(lambda data: estimators.load(name).estimate(data, rng=5, **options))


def cache_by_id(function):
    known = {}

    def estimate(data):
        if id(data) not in known:
            known[id(data)] = data, function(data)
        return known[id(data)][1]

    return estimate


@pytest.mark.parametrize("which", WORLDS)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name == "bayes_rogan_gladen" else ()) for name in NAMES],
)
def test_the_source_agrees_with_what_moves_the_value(name, which):
    assert wrong(estimate_by(name), which, binary=name in BINARY) == []


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("direct", {"correction": "none"}),
        ("direct", {"borrowed": "one_step"}),
        ("direct", {"borrowed": "plug_in", "correction": "tmle"}),
        ("direct", {"correction": "horvitz_thompson", "power_tuned": False}),
        ("direct_corrected", {"tuned": False}),
        ("bayes_direct", {"route": "plug_in"}),
    ],
)
@pytest.mark.parametrize("which", WORLDS)
def test_other_routes_say_the_truth_too(name, options, which):
    if (which == "own labels" and "none" in options.values()) or options.get("route") == "plug_in":
        assert set(estimate_by(name, **options)(world(name, which)).source.values) == {"borrowed"}
    else:
        assert wrong(estimate_by(name, **options), which) == []


def test_the_worlds_show_every_source():
    seen = {
        str(source)
        for name in NAMES
        for which in WORLDS
        for source in estimate_by(name)(world(name, which)).source.values
    }
    assert seen == set(SOURCES)


@pytest.mark.parametrize(
    ("module", "which", "said"),
    [
        (ppi, "own labels", "borrowed"),
        (raw_judge, "borrowed", "own"),
        (raw_judge, "borrowed", "borrowed"),
        (direct, "borrowed", "own"),
        (direct, "borrowed", "judge"),
        (direct, "own labels", "logs"),
    ],
)
def test_a_planted_source_is_caught(module, which, said):
    def planted(data):
        out = module.estimate(data)
        return out.assign(source=out.source.copy(data=[said] * len(POLICIES)))

    assert wrong(cache_by_id(planted), which)


def test_a_value_must_say_what_it_rests_on():
    data = rich("direct")
    for source in ("none", "hearsay"):
        result = PolicyResult(Status.OK, "guess", source, 2.0)
        with pytest.raises(ValueError, match="say what it rests on"):
            assemble(data, Found(unpack(data), [result] * 3, {}), estimator="guess", ci_prob=0.95)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_earned_is_not_borrowed(name):
    for which in WORLDS:
        out = estimate_by(name)(world(name, which))
        assert not (borrows(out) & earned(out)).any()
        assumed = out.status == Status.TRANSPORT_ASSUMED
        assert (borrows(out) | ~assumed).all() and not (earned(out) & assumed).any()
