"""Routes of Direct against their definitions: augmented, Horvitz-Thompson, one-step, and when labels say nothing."""

import numpy as np
import oracles_uncertainty as slow
import pandas as pd
import pytest
from blocks import on_block
from oracles_uncertainty import row_dicts, table

from cje_core.data import from_arrays
from cje_core.estimators import direct, labels_only
from cje_core.inference.contrasts import contrasts
from cje_core.inference.estimate import Status
from cje_core.io import from_frame
from cje_sim.scenarios import useless_judge


@pytest.mark.parametrize("kind", ["plug_in", "hajek", "ht", "tmle"])
@pytest.mark.parametrize("scale", [(0.0, 1.0), (-1.0, 2.0)])
def test_every_route_is_its_definition(kind, scale):
    frame = table(own=("a", "b"), draws=3, seed=8)
    frame["label_prob"] = 0.3 + 0.5 * frame["judge_score"]
    frame["cluster"] = frame.prompt_id.str[1:].astype(int) // 2
    data = from_frame(frame, oracle_range=scale)
    chosen = {
        "plug_in": {"correction": "none"},
        "hajek": {},
        "ht": {"correction": "horvitz_thompson"},
        "tmle": {"correction": "tmle"},
    }
    out = direct.estimate(data, power_tuned=False, **chosen[kind])
    names = {"plug_in": "plug_in", "hajek": "aipw_hajek", "ht": "aipw_ht", "tmle": "aipw_tmle"}
    assert out.route.values.tolist() == [names[kind]] * 2
    dicts, folds = row_dicts(data)
    for policy in "ab":
        expected = slow.value(dicts, policy, folds, kind, scale=scale)
        np.testing.assert_allclose(out.estimate.sel(policy=policy), expected, atol=1e-10)


def test_horvitz_thompson_influence_is_that_of_its_pseudo_outcome():
    """psi_i = f + L / e (Y - f); the influence is psi_i less its mean, where every prompt has one row."""
    frame = table(own=("a",), policies=("a",), seed=3, n=200)
    frame["label_prob"] = 0.3 + 0.4 * frame["judge_score"]
    data = from_frame(frame)
    out = direct.estimate(data, power_tuned=False, correction="horvitz_thompson")
    dicts, folds = row_dicts(data)
    evaluated, labelled = slow.pieces(dicts, "a", folds, "ht")
    psi = np.zeros(200)
    for r, _, g in evaluated:
        psi[r["prompt"]] += g
    for r, _, g in labelled:
        psi[r["prompt"]] += (r["label"] - g) / r["prob"]
    np.testing.assert_allclose(out.estimate, psi.mean())
    # the small-sample factor acts on the labelled part, so equality is up to sqrt(m / (m - 1))
    np.testing.assert_allclose(out.std_error, (psi - psi.mean()).std() / np.sqrt(200), rtol=0.01)


def test_horvitz_thompson_with_equal_probabilities_differs_by_the_number_drawn():
    """At e = |L| / n the two forms are one; at another declared constant they are not."""
    frame = table(own=("a",), policies=("a",), n=100)
    seen = frame.oracle_label.notna().mean()
    same = [
        direct.estimate(from_frame(frame.assign(label_prob=seen)), correction=form).estimate.item()
        for form in ("theta_aug", "horvitz_thompson")
    ]
    np.testing.assert_allclose(same[0], same[1])
    data = from_frame(frame.assign(label_prob=0.9 * seen))
    assert direct.estimate(data, correction="horvitz_thompson").estimate != direct.estimate(data).estimate


@pytest.mark.parametrize("seed", range(3))
def test_one_step_of_a_borrowed_policy_is_its_definition(seed):
    frame = table(n=40, seed=seed, share=0.7, draws=2)
    frame["label_prob"] = 0.3 + 0.5 * frame["judge_score"]
    data = from_frame(frame)
    out = direct.estimate(data, borrowed="one_step").sel(policy="b")
    assert out.route == "one_step"
    assert out.status == Status.TRANSPORT_ASSUMED
    dicts, folds = row_dicts(data)
    np.testing.assert_allclose(out.estimate, slow.one_step(dicts, "b", folds), atol=1e-9)


def test_one_step_is_near_theta_aug_where_borrower_and_teacher_are_one():
    """A twin without labels: the density ratio is one up to noise, so the correction is the mean held-out residual."""
    frame = table(n=600, policies=("a",), seed=1)
    twin = frame.assign(policy="b", oracle_label=np.nan)
    out = direct.estimate(from_frame(pd.concat([frame, twin])), borrowed="one_step", power_tuned=False)
    a, b = out.estimate.values
    assert abs(a - b) < 0.2 * out.std_error.values[0]
    np.testing.assert_allclose(out.std_error[1], out.std_error[0], rtol=0.1)


@pytest.mark.parametrize("form", ["balanced", "one_step"])
def test_a_policy_where_no_label_is_has_no_borrowed_value(form):
    """Far below all labels: refused, and so is its difference; the paper's plug-in says what it always said."""
    score = np.stack([np.linspace(0.5, 1, 60), np.full(60, 0.1)])
    label = np.full((2, 60), np.nan)
    label[0, ::2] = score[0, ::2] ** 2
    data = from_arrays(score, policies=["a", "b"], oracle=label)
    out = direct.estimate(data, borrowed=form)
    assert out.status.values.tolist() == [Status.OK, Status.LOW_SUPPORT]
    assert np.isnan(out.estimate.values[1])
    assert np.isnan(out.interval.values[1]).all()
    assert np.isnan(contrasts(out).p_value).all()
    assert direct.estimate(data, borrowed="plug_in").status.values[1] == Status.TRANSPORT_ASSUMED


@pytest.mark.parametrize("inference", ["bootstrap", "jackknife"])
@pytest.mark.parametrize("form", ["balanced", "one_step"])
def test_corrected_borrowing_refuses_inference_that_does_not_know_it(inference, form):
    with pytest.raises(ValueError, match=form):
        direct.estimate(from_frame(table()), borrowed=form, inference=inference)


def test_pitfall_03_repeated_draws_are_averaged_first():
    """Three identical draws per prompt say nothing new: same estimate, same standard error."""
    frame = table(n=50, policies=("a",))
    thrice = pd.concat([frame.assign(draw_idx=d) for d in range(3)])
    for correction in ("theta_aug", "tmle"):
        once, more = (direct.estimate(from_frame(t), correction=correction) for t in (frame, thrice))
        np.testing.assert_allclose(more.estimate, once.estimate, atol=1e-9)
        np.testing.assert_allclose(more.std_error, once.std_error, rtol=1e-6)


@pytest.mark.parametrize("power_tuned", [True, False])
@pytest.mark.parametrize("label", [0.7, 1.0])
def test_pitfall_34_own_labels_that_never_vary_show_no_spread(power_tuned, label):
    """Other labels vary, so f does; residuals of constant labels would show only that. At an end they bound it."""
    frame = table(own=("a", "b"))
    same = (frame.policy == "b") & frame.oracle_label.notna()
    frame.loc[same, "oracle_label"] = label
    for correction in ("theta_aug", "tmle"):
        data = from_frame(frame)
        out = direct.estimate(data, power_tuned=power_tuned, correction=correction)
        assert out.status.values.tolist() == [Status.OK, Status.CONSTANT_LABELS]
        of_b = out.sel(policy="b")
        assert np.isnan(of_b.std_error)
        assert np.isnan(of_b.influence).all()
        plain = direct.estimate(data, power_tuned=power_tuned, correction=correction, interval="wald")
        assert np.isnan(plain.interval.sel(policy="b")).all()
        low, high = of_b.interval.values
        assert np.isnan([low, high]).all() if label < 1 else low <= of_b.estimate <= high
        assert of_b.interval_kind == ("none" if label < 1 else "clopper_pearson")
        if label == 1:
            np.testing.assert_allclose(of_b.effective_count, same.sum())
        assert np.isfinite(out.estimate).all()


def test_tuned_weights_are_reported():
    data = from_frame(table())
    out = direct.estimate(data)
    assert 0 <= out.power_calibrator.sel(policy="a") <= 1
    assert np.isnan(out.power_calibrator.sel(policy="b")) or out.power_calibrator.sel(policy="b") == 1
    assert "power_line" not in direct.estimate(data, power_tuned=False)


@pytest.mark.slow
@pytest.mark.parametrize("m", [50, 250])
def test_a_useless_judge_costs_at_most_three_per_cent(m):
    """Mean width of tuned Direct over that of the labels alone, 400 paired data sets; theta_aug pays more."""
    width = {"tuned": [], "theta_aug": [], "labels": []}
    for seeds in np.arange(400).reshape(8, -1):
        rngs = map(np.random.default_rng, seeds)
        block = useless_judge.simulate.block(rngs, n=1000, oracle_fraction=m / 1000)
        for name, module, options in (
            ("tuned", direct, {}),
            ("theta_aug", direct, {"power_tuned": False}),
            ("labels", labels_only, {}),
        ):
            out = on_block(module, block, ci_prob=0.95, **options)
            width[name].append(np.ptp(out.interval, axis=-1).mean())
    ratio = {name: np.mean(w) / np.mean(width["labels"]) for name, w in width.items()}
    assert ratio["tuned"] < 1.03
    assert ratio["theta_aug"] > ratio["tuned"]
