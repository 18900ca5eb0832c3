"""Off-policy values that rest on the judge alone are refused where the labels do not show that it ranks them."""

import numpy as np
import pytest
from ope_world import FAMILY, logs_of, names, small, unrefused
from scipy import stats

from cje_core.estimators import calibrated_ips, direct, dr_cpo, snips
from cje_core.inference.contrasts import contrasts
from cje_core.inference.estimate import Status
from cje_core.verdict.guide import recommend
from cje_core.workflow.paper import PAPER, paper_estimator
from cje_sim.scenarios import tilted_logs


def with_judge(data, judge):
    """The same data under another judge of shape (policies, prompts, draws)."""
    return data.assign(judge=(data["judge"].dims, judge), logged_judge=("prompt", judge[0, :, 0]))


def noise(seed=0, **options):
    data = small(seed, n=80, **options)
    rng = np.random.default_rng(seed + 100)
    return with_judge(data, rng.permuted(data["judge"].values, axis=1))


def few_failures(seed=0):
    """Binary labels, three of them at one."""
    data = small(seed, n=80)
    seen = np.flatnonzero(data["labelled"].values[0, :, 0])
    label = np.full(data["oracle"].shape, np.nan)
    label[0, seen, 0] = np.isin(seen, seen[np.argsort(data["judge"].values[0, seen, 0])[-3:]])
    return data.assign(oracle=(data["oracle"].dims, label), logged_oracle=("prompt", label[0, :, 0]))


def worlds():
    constant = small(1, n=80)
    return {
        "constant": with_judge(constant, np.full(constant["judge"].shape, 0.5)),
        "noise": noise(2),
        "few failures": few_failures(3),
    }


def statuses(out):
    return {str(p): Status(int(s)) for p, s in zip(out.policy.values, out.status.values, strict=True)}


@names
@pytest.mark.parametrize("world", ["constant", "noise", "few failures"])
def test_a_value_that_rests_on_the_judge_alone_is_refused(module, world):
    """NaN, no interval, no difference; the policy whose own labels taught f keeps its value, which is their mean."""
    data = worlds()[world]
    out = module.estimate(data)
    assert statuses(out)["target"] is Status.UNINFORMATIVE_JUDGE
    at = out.sel(policy="target")
    assert np.isnan(at.estimate) and np.isnan(at.interval).all() and np.isnan(at.influence).all()
    assert np.isnan(contrasts(out).difference).all() and np.isnan(contrasts(out).p_value).all()
    assert np.isfinite(out.estimate.sel(policy="base"))
    if world == "constant":
        np.testing.assert_allclose(out.estimate.sel(policy="base"), data["oracle"].mean(), atol=0.03)


def test_a_judge_that_ranks_is_not_refused():
    for module in FAMILY:
        found = statuses(module.estimate(small(4), **unrefused(module)))
        assert found["target"] is Status.TRANSPORT_ASSUMED


def test_shrunk_weights_are_refused_and_clones_are_not():
    """The stack takes the constant weight, every overlap diagnostic is healthy, and the value would be the logger's."""
    data = tilted_logs.simulate(n=1000, rng=1)
    found, truth = statuses(calibrated_ips.estimate(data)), tilted_logs.truth()
    assert [name for name, status in found.items() if status is Status.SHRUNK_WEIGHTS] == ["better", "worse"]
    paper = calibrated_ips.estimate(data, borrowed="plug_in")
    gap = abs(paper.estimate - truth.sel(policy=paper.policy)).sel(policy="better")
    assert gap > 3 * paper.std_error.sel(policy="better") and paper.ess_fraction.sel(policy="better") > 0.9
    assert not any(status.failed for status in statuses(snips.estimate(data)).values())
    # noise in the likelihoods of a clone is no shift: its raw weights do not rank with the score
    seeds = range(40)
    named = sum(
        calibrated_ips.shrunk(logs_of(tilted_logs.simulate(n=400, rng=seed)), 2) is not None for seed in seeds
    )
    assert named <= stats.binom.ppf(1 - 3e-7, len(seeds), calibrated_ips.LEVEL)


@pytest.mark.parametrize(
    "name", [n for n in PAPER if n.lower().split("-")[-1] in ("snips", "ips", "cpo", "dr")]
)
def test_the_papers_rows_refuse_nothing(name):
    module, options = paper_estimator(name)
    out = module.estimate(noise(2), **options)
    assert np.isfinite(out.estimate).all()


def test_labels_of_several_policies_tell_none_of_them_apart():
    """With an independent judge the pooled fit is their mean, which is the value of neither."""
    data = noise(5).copy(deep=True)
    data["oracle"][1, :40, 0] = 0.05
    data["labelled"][1, :40, 0] = True
    both = data.assign_attrs(calibration_policy=["base", "target"])
    for module in (snips, dr_cpo):
        assert set(statuses(module.estimate(both)).values()) == {Status.UNINFORMATIVE_JUDGE}
    alone = data.assign_attrs(calibration_policy=["target"])
    assert statuses(snips.estimate(alone)) != statuses(snips.estimate(data))


def test_labels_of_logged_responses_are_the_loggers_own():
    data = noise(6, draws=1)
    bare = data.assign(oracle=data["oracle"] * np.nan, labelled=data["labelled"] & False)
    bare.attrs["calibration_policy"] = []
    for module in FAMILY:
        found = statuses(module.estimate(bare))
        assert found["target"] is Status.UNINFORMATIVE_JUDGE
        assert not found["base"].failed


def test_the_guide_reweights_nothing_where_nothing_can_be_borrowed():
    healthy = {"ess_fraction": 0.9, "hill": 5.0, "affinity": 0.99, "ttc": 0.99, "ttc_two_sided": 0.99}
    for data, expected in ((small(7), "snips"), (noise(8), "none")):
        silent = data.copy(deep=True)
        silent["evaluated"].loc[{"policy": "target"}] = False
        overlap = silent[["policy"]].assign({k: ("policy", [v] * 2) for k, v in healthy.items()})
        out = recommend(silent, overlap=overlap, estimate=direct.estimate(silent)).sel(policy="target")
        assert out.estimator.item() == expected
        assert (snips.estimate(silent).status.sel(policy="target") == Status.UNINFORMATIVE_JUDGE) == (
            expected == "none"
        )
