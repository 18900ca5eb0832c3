"""The efficient pseudo-estimator against its definition and the bound of an enumerable world."""

import numpy as np
import oracles_peers
import pytest
import xarray as xr
from bare_arrays import drawn, rows_of
from blocks import on_block

from cje_core.data import DataError, from_arrays
from cje_core.data.arrays import unpack
from cje_core.data.block import Block
from cje_core.estimators import direct, labels_only, oracle_bound, ppi, ppi_plus_plus
from cje_core.inference.estimate import Status
from cje_sim import scenarios
from cje_sim.scenarios import finite_model, well_specified

N, FRACTION, N_REPLICATES, PER_BLOCK = 600, 0.25, 1000, 50
KNOWN = [
    name for name in scenarios.available() if "true_reward" in scenarios.load(name).simulate(n=60, rng=0)
]


@pytest.mark.parametrize("unequal", [False, True])
def test_matches_the_definition(unequal):
    rng = np.random.default_rng(2)
    shape = (2, 60, 2)
    score = rng.uniform(size=shape)
    score[:, ::3, 1] = np.nan
    reward = 1 + 3 * score
    prob = np.where(score > 0.5, 0.5, 0.25) if unequal else np.full(shape, 0.4)
    seen = (rng.uniform(size=shape) < prob) & np.isfinite(score)
    label = np.clip(reward + rng.normal(0, 0.5, shape), 1, 4)
    data = from_arrays(
        score,
        policies=["a", "b"],
        oracle=np.where(seen, label, np.nan),
        label_prob=prob,
        true_reward=reward,
        cluster=np.arange(60) // 2,
        oracle_range=(1, 4),
    )
    out = oracle_bound.estimate(data)
    rows = unpack(data)
    for p, policy in enumerate(("a", "b")):
        dicts = [
            {
                "cluster": rows.cluster[rows.prompt[i]],
                "true": 1 + 3 * rows.score[i],
                "label": rows.label[i] if rows.labelled[i] else None,
                "weight": rows.weight[i],
                "prob": rows.label_prob[i],
            }
            for i in np.flatnonzero(rows.policy == p)
        ]
        mine = out.sel(policy=policy)
        np.testing.assert_allclose(
            [mine.estimate, mine.std_error, mine.df], oracles_peers.efficient(dicts), rtol=1e-10
        )


def test_statuses_and_routes():
    data = well_specified.simulate(n=80, label_design="base", rng=1)
    out = oracle_bound.estimate(data)
    assert (out.status == Status.OK).all()
    assert out.route.values.tolist() == ["efficient"] + ["true_reward"] * 3
    mean = data.true_reward.mean(("prompt", "draw"))
    np.testing.assert_allclose(out.estimate[1:], mean[1:])
    assert (oracle_bound.estimate(data.drop_vars("true_reward")).status == Status.NO_TRUTH).all()
    full = well_specified.simulate(n=80, oracle_fraction=1.0, rng=1)
    every, labels = oracle_bound.estimate(full), labels_only.estimate(full)
    for name in ("estimate", "std_error", "influence"):
        np.testing.assert_allclose(every[name], labels[name])
    data.true_reward[0, 0] = np.nan
    with pytest.raises(DataError, match="true_reward"):
        oracle_bound.estimate(data)


@pytest.mark.parametrize("name", KNOWN)
def test_the_true_reward_of_a_scenario_is_the_regression(name):
    """Y - E[Y | S] has mean zero against 1, S, S^2 and sin 9 S, policy by policy (5 standard errors)."""
    data = scenarios.load(name).simulate(n=40_000, oracle_fraction=1.0, label_design="own", rng=11)
    residual = (data.oracle - data.true_reward).isel(draw=0).values
    score = data.judge.isel(draw=0).values
    for basis in (np.ones_like(score), score, score**2, np.sin(9 * score)):
        moment = residual * basis
        error = moment.std(axis=1) / np.sqrt(moment.shape[1])
        assert (np.abs(moment.mean(axis=1)) < 5 * error).all()
        planted = moment + 0.05 * basis**2  # a regression wrong in this direction shows
        assert (np.abs(planted.mean(axis=1)) > 5 * error).all()


WORLD = {"n": N, "oracle_fraction": FRACTION, "label_design": "own"}


def bound_of(world):
    """Values and standard errors of `oracle_bound`, and those of a regression that does not know the score."""
    names = world.fields["policies"]
    rows = rows_of(world.score, **world.fields)
    score = world.true_reward[np.argsort(names)][:, rows.prompt_order].ravel()
    found = [
        [oracle_bound.efficient_value(rows._replace(score=s), rows.policies.index(name)) for name in names]
        for s in (score, np.full(len(score), score.mean()))
    ]
    value, error, blind = (
        np.array([getattr(one, part) for one in found[k]])
        for k, part in ((0, "value"), (0, "std_error"), (1, "std_error"))
    )
    return value, error, blind


def test_the_bound_on_arrays_is_the_estimator():
    data = finite_model.simulate(**WORLD, rng=0)
    blind = data.assign(true_reward=xr.full_like(data.true_reward, data.true_reward.mean()))
    wanted = [oracle_bound.estimate(one) for one in (data, blind)]
    got = bound_of(drawn(finite_model, 0, **WORLD))
    np.testing.assert_allclose(got[0], wanted[0].estimate, rtol=1e-12)
    np.testing.assert_allclose(got[1:], [one.std_error for one in wanted], rtol=1e-12)


@pytest.fixture(scope="module")
def replicates():
    modules = {"direct": direct, "ppi": ppi, "ppi_plus_plus": ppi_plus_plus, "labels_only": labels_only}
    out = {name: [] for name in ("oracle_bound", *modules)}
    errors, planted = [], []
    for start in range(0, N_REPLICATES, PER_BLOCK):
        worlds = [drawn(finite_model, r, **WORLD) for r in range(start, start + PER_BLOCK)]
        for world in worlds:
            value, error, blind = bound_of(world)
            out["oracle_bound"].append(value[None])
            errors.append(error)
            planted.append(blind)
        score = np.stack([world.score for world in worlds])
        label, prob = (
            np.stack([world.fields[name] for world in worlds]) for name in ("oracle", "label_prob")
        )
        block = Block(tuple(worlds[0].fields["policies"]), score, label, prob, (0.0, 1.0), (0.0, 1.0))
        for name, module in modules.items():
            out[name].append(on_block(module, block, ci_prob=0.95).estimate)
    return {name: np.concatenate(values) for name, values in out.items()}, np.array(errors), np.array(planted)


def enumerated_bound():
    """Variance of ``m(S) - V + L / e (Y - m(S))`` summed over every (s, y), per policy."""
    law = finite_model.joint().sum(["x", "a"])
    y = law["y"]
    m = (law * y).sum("y") / law.sum("y")
    value = (law * y).sum(["s", "y"])
    labelled = (law * (m - value + (y - m) / FRACTION) ** 2).sum(["s", "y"])
    unlabelled = (law * (m - value) ** 2).sum(["s", "y"])
    return (FRACTION * labelled + (1 - FRACTION) * unlabelled).values / N


@pytest.mark.slow
def test_attains_the_bound(replicates):
    estimates, errors, planted = replicates
    found = estimates["oracle_bound"]
    bound = enumerated_bound()
    noise = 5 * np.sqrt(2 / N_REPLICATES)
    assert (np.abs(found.var(axis=0, ddof=1) / bound - 1) < noise).all()
    reported = (errors**2).mean(axis=0) / bound
    assert (np.abs(reported - 1) < 0.03).all()  # averages over replicates: far sharper than the variance
    # planted: a regression that does not know the score reports more than the bound
    assert ((planted**2).mean(axis=0) / bound > 1.03).all()
    mcse = found.std(axis=0, ddof=1) / np.sqrt(N_REPLICATES)
    assert (np.abs(found.mean(axis=0) - finite_model.truth().values) < 5 * mcse).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["direct", "ppi", "ppi_plus_plus", "labels_only"])
def test_no_estimator_is_below_it(replicates, name):
    """Paired comparison of squared errors: none is smaller beyond five Monte Carlo standard errors."""
    estimates, *_ = replicates
    truth = finite_model.truth().values
    gap = (estimates[name] - truth) ** 2 - (estimates["oracle_bound"] - truth) ** 2
    mcse = gap.std(axis=0, ddof=1) / np.sqrt(N_REPLICATES)
    assert (gap.mean(axis=0) > -5 * mcse).all()
    if name == "labels_only":  # the comparison has power: the label mean is above the bound
        assert (gap.mean(axis=0) > 5 * mcse).all()
