"""Direct and its companions against definitions: values, bootstrap replicates, routes, order, statuses."""

import numpy as np
import oracles
import pandas as pd
import pytest
import xarray as xr
from oracles_uncertainty import GRID, row_dicts, table
from scipy import stats

from cje_core.calibration.calibrated import Calibration
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data import from_arrays
from cje_core.data.arrays import unpack
from cje_core.estimators import direct, direct_corrected, labels_only, raw_judge
from cje_core.inference.contrasts import contrasts
from cje_core.inference.estimate import Status, percentile
from cje_core.inference.pairs import lent_df
from cje_core.inference.sums import cluster_se
from cje_core.io import from_frame
from cje_core.transport.audit import audit


@pytest.mark.parametrize("draws", [1, 3])
def test_theta_aug_and_plug_in_match_the_definition(draws):
    data = from_frame(table(draws=draws))
    out = direct.estimate(data, power_tuned=False, borrowed="plug_in")
    dicts, folds = row_dicts(data)
    assert out.route.values.tolist() == ["theta_aug", "plug_in"]
    for policy in ("a", "b"):
        np.testing.assert_allclose(
            out.estimate.sel(policy=policy), oracles.theta(dicts, policy, folds), atol=1e-12
        )
    plug = direct.estimate(data, inference="cluster", correction="none")
    np.testing.assert_allclose(plug.estimate.sel(policy="a"), oracles.theta(dicts, "a", folds, correct=False))


@pytest.mark.parametrize("seed", range(6))
def test_borrowed_standard_error_matches_the_definition(seed):
    data = from_frame(table(n=40, seed=seed, share=0.4))
    dicts, _ = row_dicts(data)
    out = direct.estimate(data, inference="influence", borrowed="plug_in").sel(policy="b")
    np.testing.assert_allclose(out.std_error, oracles.borrowed_standard_error(dicts, "b"), rtol=1e-10)


def test_degrees_of_freedom_follow_the_labels_that_matter():
    """A policy that lives on three labelled scores rests on them, however many labels lie elsewhere."""
    n = 400
    rng = np.random.default_rng(0)
    score = np.stack([np.where(np.arange(n) < 8, 0.1, rng.choice([0.8, 0.9], n)), np.full(n, 0.1)])
    label = np.full((2, n), np.nan)
    label[0, :200] = np.clip(score[0, :200] + rng.normal(0, 0.05, 200), 0, 1)
    out = direct.estimate(from_arrays(score, policies=["a", "b"], oracle=label), borrowed="balanced")
    # eight labels at 0.1, and the little weight that a line at 0.1 gives to the other 192
    x = score[0, :200] - score[0, :200].mean()
    weight = 1 / 200 + (0.1 - score[0, :200].mean()) * x / (x**2).sum()
    np.testing.assert_allclose(
        out.df.sel(policy="b"), (weight**2).sum() ** 2 / (weight**4).sum() - 1, rtol=1e-9
    )
    assert out.df.sel(policy="b") < 9
    assert float(out.df.sel(policy="a")) > 100


def test_declared_unequal_propensities_give_the_hajek_form():
    frame = table(own=("a", "b"))
    frame["label_prob"] = 0.3 + 0.5 * frame["judge_score"]
    data = from_frame(frame)
    out = direct.estimate(data, power_tuned=False)
    dicts, folds = row_dicts(data)
    assert out.route.values.tolist() == ["aipw_hajek"] * 2
    for policy in ("a", "b"):
        np.testing.assert_allclose(
            out.estimate.sel(policy=policy), oracles.theta(dicts, policy, folds), atol=1e-12
        )


def test_fully_labelled_policy_is_its_label_mean():
    frame = table(share=2.0)
    data = from_frame(frame)
    out = direct.estimate(data, inference=direct.Bootstrap(n=50), rng=0)
    assert out.route.sel(policy="a") == "label_mean"
    np.testing.assert_allclose(out.estimate.sel(policy="a"), frame.oracle_label[frame.policy == "a"].mean())
    only = labels_only.estimate(data)
    np.testing.assert_allclose(out.estimate.sel(policy="a"), only.estimate.sel(policy="a"))


@pytest.mark.parametrize("inference", ["bootstrap", "influence", "cluster"])
def test_order_of_rows_policies_and_prompts_changes_no_bit(inference):
    frame = table(n=50, policies=("a", "b", "c"), own=("a", "b"), draws=2)
    options = {"inference": direct.Bootstrap(n=40) if inference == "bootstrap" else inference, "rng": 5}
    data = from_frame(frame, calibration_policy=["b", "a"])
    out = direct.estimate(data, **options)
    shuffled = from_frame(frame.sample(frac=1, random_state=1), calibration_policy=["a", "b"])
    xr.testing.assert_identical(direct.estimate(shuffled, **options), out)
    turned = data.isel(policy=[2, 0, 1], prompt=np.random.default_rng(0).permutation(50))
    xr.testing.assert_identical(direct.estimate(turned, **options).sel(policy=out.policy), out)


def test_point_estimate_does_not_depend_on_inference_and_interval_contains_it():
    data = from_frame(table())
    results = [
        direct.estimate(data, inference=kind, rng=0, borrowed="plug_in")
        for kind in ("bootstrap", "influence", "cluster")
    ]
    for out in results:
        np.testing.assert_array_equal(out.estimate, results[0].estimate)
        assert (out.interval.sel(ci_bound="lower") <= out.estimate).all()
        assert (out.interval.sel(ci_bound="upper") >= out.estimate).all()


def test_controls_are_the_means_they_say():
    """Prompt means first; labels weighted by the inverse of their declared probability."""
    frame = table(draws=3)
    frame["label_prob"] = 0.2 + 0.6 * frame["judge_score"]
    data = from_frame(frame)
    a = frame[frame.policy == "a"]
    by_prompt = a.groupby("prompt_id").judge_score.mean().mean()
    np.testing.assert_allclose(raw_judge.estimate(data).estimate.sel(policy="a"), by_prompt)
    weight = 1 / a.groupby("prompt_id").judge_score.transform("size") / a.label_prob
    weight = weight[a.oracle_label.notna()]
    hajek = (weight * a.oracle_label.dropna()).sum() / weight.sum()
    np.testing.assert_allclose(labels_only.estimate(data).estimate.sel(policy="a"), hajek)


def test_percentile_interval_is_widened_to_its_estimate():
    draws = np.linspace(0, 1, 101)[None]
    np.testing.assert_allclose(percentile(draws, [0.5], 0.9), [[0.05, 0.95]])
    np.testing.assert_allclose(percentile(draws, [-0.3], 0.9), [[-0.3, 0.95]])
    np.testing.assert_allclose(percentile(draws, [1.2], 0.9), [[0.05, 1.2]])


def test_estimate_leaves_its_input_alone():
    data = from_frame(table(probes=20))
    before = data.copy(deep=True)
    for module in (direct, direct_corrected, labels_only, raw_judge):
        module.estimate(data, rng=0)
    audit(data)
    xr.testing.assert_identical(data, before)


def test_scale_equivariance():
    """Scores and labels on 0-100 give 100 times the estimate, SE and interval."""
    frame = table(own=("a",), probes=20)
    big = frame.assign(judge_score=100 * frame.judge_score, oracle_label=100 * frame.oracle_label)
    small_data = from_frame(frame)
    big_data = from_frame(big, judge_range=(0, 100), oracle_range=(0, 100))
    for module in (direct, direct_corrected, labels_only, raw_judge):
        small, large = module.estimate(small_data, rng=1), module.estimate(big_data, rng=1)
        for name in ("estimate", "std_error", "interval"):
            np.testing.assert_allclose(large[name], 100 * small[name], rtol=1e-9)


def test_negated_judge_with_decreasing_direction_is_the_same_estimate():
    frame = table()
    flipped = from_frame(frame.assign(judge_score=1 - frame.judge_score))
    for borrowed in ("balanced", "one_step", "plug_in"):
        out = direct.estimate(from_frame(frame), borrowed=borrowed)
        other = direct.estimate(flipped, borrowed=borrowed, calibration=Calibration(direction="decreasing"))
        np.testing.assert_allclose(other.estimate, out.estimate, atol=1e-12)
        np.testing.assert_allclose(other.std_error, out.std_error, atol=1e-12)
    turned = [
        direct.estimate(flipped, borrowed=form).status.values.tolist() for form in ("plug_in", "balanced")
    ]
    assert turned == [[Status.INVERTED_JUDGE] * 2, [Status.INVERTED_JUDGE, Status.UNINFORMATIVE_JUDGE]]


def test_joint_influence_gives_the_standard_errors_and_contrasts():
    data = from_frame(table(n=80, policies=("a", "b", "c")))
    out = direct.estimate(data, borrowed="balanced", interval="wald")
    np.testing.assert_allclose(cluster_se(out.influence.values, np.arange(80)), out.std_error)
    pairs = contrasts(out)
    assert pairs["first"].values.tolist() == ["a", "a", "b"]
    expected = out.influence.sel(policy="b").values - out.influence.sel(policy="c").values
    np.testing.assert_allclose(pairs.std_error[2], np.sqrt((expected**2).sum()) / 80)
    borrowed = out.std_error.sel(policy=["b", "c"]).values
    assert pairs.std_error[2] < np.hypot(*borrowed)  # shared calibration error cancels
    df = np.minimum(*(out.df.sel(policy=pairs[side].values).values for side in ("first", "second")))
    balance = out.balance.sel(policy="b").values - out.balance.sel(policy="c").values
    df[2] = lent_df(np.abs(balance), expected)  # both borrow
    half = pairs.interval.sel(ci_bound="upper").values - pairs.difference.values
    np.testing.assert_allclose(half / pairs.std_error.values, stats.t.ppf(0.975, df))


def test_identical_policies_have_a_contrast_without_spread():
    frame = table()
    twin = frame[frame.policy == "b"].assign(policy="b2")
    pairs = contrasts(direct.estimate(from_frame(pd.concat([frame, twin])), inference="influence"))
    last = pairs.isel(pair=2)
    assert float(last.difference) == 0
    assert np.isnan(last.p_value)


def test_corrected_value_is_plug_in_plus_residual_and_audit_reports_it():
    data = from_frame(table(probes=25))
    report = audit(data).sel(policy="b")
    plug = direct.estimate(data, inference="influence", borrowed="plug_in").sel(policy="b")
    corrected = direct_corrected.estimate(data, tuned=False).sel(policy="b")
    assert corrected.route == "probe_corrected"
    np.testing.assert_allclose(corrected.estimate, plug.estimate + report.residual)
    rows = unpack(data)
    probes = rows.probe
    fitted = fit_slice(rows)
    residual = rows.label[probes] - np.interp(
        rows.score[probes], fitted.calibrator.knot, fitted.calibrator.value
    )
    np.testing.assert_allclose(report.residual, residual.mean())
    np.testing.assert_allclose(report.std_error, residual.std(ddof=1) / 5)  # given f, the probes' noise alone
    assert report.std_error_with_fit > report.std_error


def test_probe_labels_never_teach():
    frame = table(probes=25)
    out = direct.estimate(from_frame(frame), inference="influence")
    moved = frame.assign(oracle_label=np.where(frame.probe, 1 - frame.oracle_label, frame.oracle_label))
    xr.testing.assert_identical(direct.estimate(from_frame(moved), inference="influence"), out)


@pytest.mark.parametrize(
    ("shift", "spread", "verdict"),
    [(0.0, 0.001, "PASS"), (-0.4, 0.05, "FAIL"), (0.0, 0.5, "INCONCLUSIVE")],
)
def test_audit_verdicts(shift, spread, verdict):
    rng = np.random.default_rng(0)
    n = 400
    score = rng.choice(GRID, (2, n))
    noise = rng.normal(0, 0.001, n), shift + rng.choice([-spread, spread], n)
    label = np.clip(0.5 + 0.1 * score + np.stack(noise), -1, 2)
    seen = np.stack([np.arange(n) < 200, np.arange(n) < 60])
    frame = pd.DataFrame(
        {
            "policy": np.repeat(["a", "b"], n),
            "prompt_id": np.tile(np.arange(n), 2),
            "judge_score": score.ravel(),
            "oracle_label": np.where(seen, label, np.nan).ravel(),
            "probe": (seen & [[False], [True]]).ravel(),
            "evaluated": True,
        }
    )
    assert audit(from_frame(frame, oracle_range=(-1, 2))).verdict.values.tolist() == ["NOT_CHECKED", verdict]


def one_policy(score, label):
    return from_frame(
        pd.DataFrame(
            {"policy": "a", "prompt_id": range(len(score)), "judge_score": score, "oracle_label": label}
        )
    )


NAN = float("nan")


@pytest.mark.parametrize(
    ("score", "label", "status"),
    [
        (np.linspace(0, 1, 20), [0.1, 0.5, 0.9] + [NAN] * 17, Status.TOO_FEW_LABELS),
        (np.linspace(0, 1, 20), [NAN] * 20, Status.NO_LABELS),
        ([0.5] * 20, [0.2, 0.4, 0.6, 0.8, 0.1] + [NAN] * 15, Status.CONSTANT_JUDGE),
        (np.linspace(0, 1, 20), [0.5] * 8 + [NAN] * 12, Status.CONSTANT_LABELS),
        (np.linspace(0, 1, 20), list(np.linspace(1, 0.3, 10)) + [NAN] * 10, Status.INVERTED_JUDGE),
    ],
)
@pytest.mark.parametrize("inference", ["bootstrap", "influence"])
def test_statistical_failure_is_data(score, label, status, inference):
    out = direct.estimate(one_policy(score, label), inference=inference, rng=0)
    assert out.status.values.tolist() == [status]
    assert np.isnan(out.estimate.item()) == status.failed
    named = dict(zip(out.status.attrs["flag_values"], out.status.attrs["flag_meanings"].split(), strict=True))
    assert named[status] == status.name.lower()
    if status in (Status.CONSTANT_LABELS, Status.TOO_FEW_LABELS, Status.NO_LABELS):
        assert np.isnan(out.interval).all()
    else:
        assert np.isfinite(out.interval).all()


def test_a_policy_without_responses_does_not_stop_the_others():
    frame = table(own=("a",))
    frame.loc[frame.policy == "b", "evaluated"] = False
    frame["probe"] = (frame.policy == "b") & (frame.prompt_id < "p3")
    frame.loc[frame.probe, "oracle_label"] = 0.5
    out = direct.estimate(from_frame(frame), rng=0)
    assert out.status.values.tolist() == [Status.OK, Status.NO_RESPONSES]
    assert np.isfinite(out.interval.sel(policy="a")).all()


@pytest.mark.parametrize("inference", ["bootstrap", "influence"])
def test_one_prompt_gives_a_value_without_an_interval(inference):
    frame = table(own=("a",))
    frame = frame[(frame.policy == "a") | (frame.prompt_id == "p7")]
    data = from_frame(frame)
    for out in (direct.estimate(data, rng=0, inference=inference), raw_judge.estimate(data)):
        assert out.status.values.tolist() == [Status.OK, Status.ONE_CLUSTER]
        assert np.isfinite(out.estimate).all()
        assert np.isnan(out.interval.sel(policy="b")).all()
        assert np.isfinite(out.interval.sel(policy="a")).all()


def test_calibration_error_cancels_where_probes_and_responses_have_the_same_scores():
    """With every response a probe the corrected value is the mean label, and so is its standard error."""
    frame = table(n=80, probes=80)
    out = direct_corrected.estimate(from_frame(frame), tuned=False).sel(policy="b")
    label = frame.oracle_label[frame.policy == "b"]
    np.testing.assert_allclose(out.estimate, label.mean())
    np.testing.assert_allclose(out.std_error, label.std(ddof=1) / np.sqrt(80))


def test_audit_noise_cancels_against_the_fit_on_the_same_labels():
    """Probes that repeat the labels that taught have residual zero and next to no error: the two parts oppose."""
    frame = table(n=200, policies=("a",), share=0.6)
    twin = frame.assign(policy="b", probe=frame.oracle_label.notna())
    report = audit(from_frame(pd.concat([frame, twin]), calibration_policy="a")).sel(policy="b")
    np.testing.assert_allclose(report.residual, 0, atol=1e-12)
    taught = frame.dropna(subset="oracle_label")
    fitted = fit_slice(unpack(from_frame(frame))).calibrator
    noise = taught.oracle_label - np.interp(taught.judge_score, fitted.knot, fitted.value)
    # what is left is the two small-sample factors, sqrt(m/(m-1)) - sqrt(n_b/(n_b-1)); with one sign wrong it doubles
    assert float(report.std_error_with_fit) < 0.2 * noise.std(ddof=1) / np.sqrt(len(taught))
    assert float(report.std_error) > 0.8 * noise.std(ddof=1) / np.sqrt(
        len(taught)
    )  # given f they do not cancel


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inference": "jack"}, "influence, bootstrap, jackknife, cluster, plugin_iid"),
        ({"correction": "x"}, "theta_aug, horvitz_thompson, tmle, none"),
        ({"correction": "horvitz_thompson"}, "give label_prob"),
        ({"borrowed": "x"}, "balanced, one_step, plug_in"),
        ({"interval": "log"}, "wald, logit"),
        ({"calibration": Calibration(["length"])}, "no covariate named 'length'"),
        ({"ci_prob": 1.0}, "between 0 and 1"),
    ],
)
def test_bad_options_raise_with_the_mend(options, message):
    with pytest.raises(ValueError, match=message):
        direct.estimate(from_frame(table()), **{"inference": "influence"} | options)
