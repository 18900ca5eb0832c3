"""The guide: which estimator it recommends, by what is at hand, by the audit and by the calibration's share."""

import numpy as np
import pytest
import xarray as xr
from gates_world import HEALTHY, world

from cje_core.data import from_arrays
from cje_core.estimators import (
    direct,
)
from cje_core.inference.estimate import Status
from cje_core.transport.audit import audit
from cje_core.verdict.guide import DOMINANT, recommend
from cje_sim.scenarios import transport_shift


def healthy_overlap(names, **changed):
    columns = {
        name: ("policy", np.full(len(names), HEALTHY[name]))
        for name in ("ess_fraction", "hill", "affinity", "ttc", "ttc_two_sided")
    }
    return xr.Dataset(columns | changed, coords={"policy": names})


def with_logs(data):
    n = data.sizes["prompt"]
    return data.assign(
        logp_target=(("policy", "prompt"), np.full((2, n), -5.0)),
        logp_logger=("prompt", np.full(n, -5.0)),
        logged_judge=("prompt", np.full(n, 0.5)),
    )


def test_guide_counts_clusters_and_the_labels_that_teach():
    """Ten labels in two clusters correct nothing; fifty labels that do not teach leave Direct without a calibrator."""
    rng = np.random.default_rng(0)
    judge = rng.uniform(size=(2, 60))
    label = np.where(np.arange(60) < np.array([[30], [10]]), judge, np.nan)
    few = from_arrays(judge, policies=["a", "b"], oracle=label, cluster=np.minimum(np.arange(60) // 5, 30))
    assert "its own labels correct it" not in recommend(few).reason.sel(policy="b").item()
    assert recommend(few).n_own_labels.sel(policy="b") == 2
    stranger = from_arrays(
        judge,
        policies=["a", "b"],
        oracle=np.where(np.arange(60) < np.array([[2], [50]]), judge, np.nan),
        calibration_policy="a",
    )
    found = recommend(stranger)
    assert found.estimator.values.tolist() == ["none", "none"]
    assert found.alternative.values.tolist() == ["", "labels_only"]
    assert direct.estimate(stranger).status.values.tolist() == [Status.TOO_FEW_LABELS] * 2


def test_guide_by_what_is_at_hand():
    data = world()
    plain = recommend(data)
    assert plain.estimator.values.tolist() == ["direct", "direct"]
    assert "probe 50" in plain.caution.sel(policy="b").item() and plain.caution.sel(policy="a").item() == ""

    logged = with_logs(data)
    assert (
        recommend(logged, overlap=healthy_overlap(["a", "b"])).alternative.values.tolist()
        == ["stacked_dr"] * 2
    )
    assert recommend(logged).alternative.values.tolist() == ["", ""]

    stale = logged.assign(evaluated=logged.evaluated & (logged.policy == "a"))
    found = recommend(stale, overlap=healthy_overlap(["a", "b"])).sel(policy="b")
    assert (found.estimator, found.alternative) == ("snips", "capped_ips")
    low = recommend(stale, overlap=healthy_overlap(["a", "b"], ttc=("policy", [0.9, 0.5]))).sel(policy="b")
    assert low.estimator == "none" and "ttc 0.5 (at least 0.7)" in low.reason.item()
    assert low.alternative == "overlap_weights" and "not its value" in low.caution.item()
    unknown = recommend(stale).sel(policy="b")
    assert (unknown.estimator, unknown.alternative) == ("none", "")  # overlap not computed is not good enough
    silent = data.assign(evaluated=data.evaluated & (data.policy == "a"))
    assert "no log-probabilities" in recommend(silent).sel(policy="b").reason.item()
    bare = data.assign(labelled=data.labelled & False)
    assert recommend(bare).estimator.values.tolist() == ["none", "none"]


def test_an_online_check_where_one_weight_or_the_tail_decides():
    """The threshold of one response's share is that at which it alone leaves fewer than ten effective ones."""
    share = np.array([DOMINANT] + [(1 - DOMINANT) / 1e6] * 1_000_000)
    assert 1 / (share**2).sum() == pytest.approx(10, rel=1e-3)
    data = with_logs(from_arrays(np.full((2, 30), 0.5), policies=["a", "b"]))
    data = data.assign(evaluated=data.evaluated & (data.policy == "a"))
    tails = {"hill": ("policy", [0.9, 0.9]), "max_share": ("policy", [0.01, 0.4])}
    found = recommend(data, overlap=healthy_overlap(["a", "b"]).assign(tails))
    assert "tail index of 0.9, below 1" in found.online_check.sel(policy="a").item()
    assert "online check" not in found.caution.sel(policy="a").item()  # its fresh responses need no weights
    assert "or run an online check: its weights have a tail index" in found.caution.sel(policy="b").item()
    assert "one response carries 40% of the weight" in found.online_check.sel(policy="b").item()
    fine = recommend(data, overlap=healthy_overlap(["a", "b"]))
    assert (fine.online_check == "").all() and not fine.caution.str.contains("online").any()


def test_guide_follows_the_audit_and_the_calibration_share():
    data = transport_shift.simulate(n=800, oracle_fraction=0.4, n_probes=200, rng=0)
    report = audit(data)
    assert report.verdict.sel(policy="lower") == "FAIL"
    found = recommend(data, transport=report, calibration_share={"lower": 0.9, "same": 0.1, "flatter": 0.4})
    assert found.estimator.sel(policy="lower").item() == "direct_corrected"  # its probes make its value
    assert "transport FAIL" in found.reason.sel(policy="lower").item()
    audited = data.prompt[data.probe.sel(policy="lower").any("draw")][:3]
    few = recommend(data.assign(probe=data.probe & data.prompt.isin(audited)), transport=report)
    assert few.estimator.sel(policy="lower").item() == "direct"
    assert "transport is assumed" in few.caution.sel(policy="lower").item()
    assert (
        "90% of the variance comes from the labels: collect labels"
        in found.caution.sel(policy="lower").item()
    )
    assert found.caution.sel(policy="same").item().endswith("collect prompts")
    assert "variance" not in found.caution.sel(policy="flatter").item()


def test_a_mean_label_has_no_calibration_and_no_share_to_spend_by():
    data = transport_shift.simulate(n=200, oracle_fraction=1.0, rng=0)
    [taught] = data["policy"].values[data["labelled"].any(("prompt", "draw")).values]
    share = direct.estimate(data)["calibration_share"].sel(policy=taught)
    assert share == 0
    caution = recommend(data, calibration_share={str(taught): 0.0}).caution.sel(policy=taught).item()
    assert "every response of it is labelled: only more prompts" in caution and "0%" not in caution


def test_no_estimator_is_advised_where_its_level_is_refused():
    score = np.tile(np.linspace(0.1, 0.9, 40), (3, 1))
    label = np.full((3, 40), np.nan)
    label[0], label[1] = score[0], 0.5
    data = from_arrays(score, policies=["base", "flat", "third"], oracle=label)
    why = {"flat": "no spread was seen", "third": "limited calibration support"}
    found = recommend(data, refused=why)
    assert found.estimator.values.tolist() == ["direct", "none", "none"]
    for policy, what in (("flat", "label more of its responses"), ("third", "label 50 of its responses")):
        reason = str(found.reason.sel(policy=policy).item())
        assert why[policy] in reason and what in reason
    assert recommend(data).estimator.values.tolist() == ["direct"] * 3
