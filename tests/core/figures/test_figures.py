"""Every figure draws what its Dataset says: labelled axes, intervals, thresholds, unknowns as words."""

from fractions import Fraction

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot as plt
from scipy import stats

from cje_core import figures
from cje_core.calibration import reliability
from cje_core.calibration.bands import calibration_band
from cje_core.calibration.calibrated import Calibration, calibrated
from cje_core.data import DataError, from_arrays
from cje_core.estimators import calibrated_dr_cpo, direct, labels_only, raw_judge
from cje_core.figures.style import MARKERS, OKABE_ITO, looks
from cje_core.inference.contrasts import win_matrix
from cje_core.offpolicy.overlap import overlap
from cje_core.offpolicy.weight_map import bin_of, weight_map
from cje_core.planning import forecast
from cje_core.planning.components import variance_components
from cje_core.transport import audit as transport
from cje_core.transport import sensitivity

N = 400


@pytest.fixture(scope="module")
def data():
    """Three policies, one of which the calibration does not fit; logs that cover two of them."""
    rng = np.random.default_rng(3)
    score = np.round(np.clip(rng.beta(4, 2, (3, N)) - np.array([0.0, 0.0, 0.4])[:, None], 0, 1), 2)
    label = np.clip(score**2 + rng.normal(0, 0.1, score.shape) - np.array([0.0, 0.0, 0.3])[:, None], 0, 1)
    probe = np.zeros(score.shape, dtype=bool)
    probe[1:, :80] = True
    oracle = np.where(probe, label, np.nan)
    oracle[0, :200] = label[0, :200]
    logp = -rng.uniform(20, 60, N)
    target = np.stack([np.full(N, np.nan), logp + rng.normal(0, 0.5, N), logp - rng.exponential(30, N)])
    return from_arrays(
        score,
        policies=["base", "$twin$", "odd"],  # a name that mathtext would choke on
        oracle=oracle,
        probe=probe,
        logged={
            "logp_target": np.minimum(target, 0),
            "logp_logger": logp,
            "logged_judge": score[0],
            "logged_oracle": oracle[0],
        },
        calibration_policy="base",
    )


@pytest.fixture(autouse=True)
def closed():
    with mpl.rc_context({"backend": "agg"}):
        yield
    plt.close("all")


def drawn(axes):
    """Render, and return all distinct words on the page, in order."""
    figure = axes.get_figure()
    figure.canvas.draw()
    return list(dict.fromkeys(text.get_text() for text in figure.findobj(mpl.text.Text) if text.get_text()))


def vertical(axes):
    """Positions of vertical lines across the panel."""
    return {
        float(line.get_xdata()[0])
        for line in axes.lines
        if len(set(line.get_xdata())) == 1 and len(line.get_xdata()) == 2
    }


def test_forest_shows_every_estimate_refusal_and_failure(data):
    estimates = {
        "direct": direct.estimate(data),
        "labels_only": labels_only.estimate(data),
        "raw": raw_judge.estimate(data),
    }
    axes = figures.forest(
        estimates, hollow={("direct", "odd"): "level refused"}, truth=estimates["raw"]["estimate"]
    )
    words = drawn(axes)
    assert "labels_only: no_labels" in words and any(word.endswith("level refused") for word in words)
    value, (low, high) = float(estimates["direct"].estimate[0]), estimates["direct"].interval.values[0]
    assert f"{value:.3f} [{low:.3f}, {high:.3f}]" in words
    spans = [sorted(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 2]
    assert [low, high] in [list(span) for span in spans]
    assert "$twin$" in words and "truth" in words and "policy value" in axes.get_xlabel()


def test_transport_residuals_draw_margin_verdicts_and_intervals(data):
    audit = transport.audit(data, margin=0.05)
    axes = figures.transport_residuals(audit)
    words = drawn(axes)
    assert audit["verdict"].values.tolist() == ["NOT_CHECKED", "PASS", "FAIL"]
    assert [word.split(" (")[0] for word in words if "probes)" in word] == ["not checked", "pass", "FAIL"]
    (band,) = [
        p
        for p in axes.patches
        if np.isclose(p.get_extents().transformed(axes.transData.inverted()).width, 0.1)
    ]
    assert np.isclose(band.get_x(), -0.05)
    lines = [
        line.get_xdata()
        for line in axes.lines
        if len(line.get_xdata()) == 2 and np.ptp(line.get_ydata()) == 0
    ]
    for name in ("interval", "interval_with_fit"):
        for ends in audit[name].values[1:]:
            assert any(np.allclose(line, ends) for line in lines)


def test_reliability_draws_diagonal_and_interval_per_bin(data):
    bins = reliability.reliability(data, n_bins=5)
    axes = figures.reliability(bins)
    verb = "cover" if bins.attrs["covers_diagonal"] else "leave"
    assert f"simultaneous (Bonferroni) intervals {verb} the diagonal" in axes.get_title(loc="left")
    assert axes.get_xlabel() and axes.get_ylabel()
    (points,) = [c for c in axes.collections if len(c.get_offsets()) == bins.sizes["bin"]]
    np.testing.assert_allclose(points.get_offsets()[:, 1], bins["oracle_mean"])


def test_calibration_curve_and_covariate_effects(data):
    length = np.random.default_rng(4).uniform(10, 300, data["judge"].shape)
    wider = data.assign(covariate=((*data["judge"].dims, "feature"), length[..., None])).assign_coords(
        feature=["words"]
    )
    curve = reliability.calibration_curve(calibrated(wider, Calibration(["words"])))
    axes = figures.calibration_curve(curve)
    by_name = {line.get_label(): line for line in axes.lines}
    np.testing.assert_allclose(by_name["two-stage"].get_ydata(), curve["two_stage"])
    np.testing.assert_allclose(by_name["monotone in S"].get_ydata(), curve["monotone"])
    assert len({line.get_linestyle() for line in axes.lines[1:]}) == 3  # told apart in grey
    effect, second = figures.covariate_effects(curve)
    assert effect.collections and second.collections  # their bands
    assert effect.get_xlabel() == "words" and "second stage" in second.get_ylabel()


def test_uncertainty_share_draws_both_thresholds(data):
    estimate = direct.estimate(data)
    axes = figures.uncertainty_share(estimate)
    assert {0.2, 0.5} <= vertical(axes)
    assert "left of 20%: buy prompts, right of 50%: buy labels" in axes.get_xlabel()
    assert f"{float(estimate.calibration_share[0]):.0%}" in drawn(axes)
    assert "all labelled" not in " ".join(drawn(axes))
    whole = estimate.assign(
        route=("policy", ["label_mean"] * 3), calibration_share=0 * estimate.calibration_share
    )
    assert "0%, all labelled" in drawn(figures.uncertainty_share(whole))
    with pytest.raises(ValueError, match="calibration_share"):
        figures.uncertainty_share(raw_judge.estimate(data))


def test_win_matrix_marks_what_survives(data):
    wins = win_matrix(direct.estimate(data, borrowed="plug_in"), q=0.05)
    words = drawn(figures.win_matrix(wins))
    marked = {f"{value:+.3f}*" for value in wins["difference"].values[wins["significant"].values]}
    assert marked and {word for word in words if word.endswith("*")} == marked
    assert any(
        word == f"{float(wins.difference[0, 1]):+.3f}" + "*" * bool(wins.significant[0, 1]) for word in words
    )


def test_a_refused_pair_has_no_number_and_no_star(data):
    """And a cell is shaded by how sure its sign is, not by its size."""
    wins = win_matrix(direct.estimate(data, borrowed="plug_in"), q=0.05)
    shown = xr.DataArray(np.ones((3, 3), dtype=bool), dims=("policy", "other"))
    shown[2], shown[:, 2] = False, False
    axes = figures.win_matrix(wins.assign(shown=shown))
    assert [one.get_text() for one in axes.texts].count("no number") == 4
    (image,) = axes.images
    expected = stats.norm.ppf(wins["probability"].values[0, 1])
    assert float(image.get_array()[0, 1]) == pytest.approx(np.clip(expected, -4, 4))


def test_bins_hold_the_scores_they_show():
    """Every score with two decimals lies in the bin whose lower end is the largest one not above it."""
    score = np.round(np.arange(101) / 100, 2)
    for n_bins in (10, 20, 25, 50):
        at = bin_of(score, 0.0, 1.0, n_bins)
        expected = [min(Fraction(k, 100) * n_bins // 1, n_bins - 1) for k in range(101)]
        assert at.tolist() == expected
    counted = np.histogram(score, np.linspace(0, 1, 21))[0]
    assert (np.bincount(bin_of(score, 0.0, 1.0, 20)) != counted).any()  # what rounding does to edges


def test_bands_hold_the_curve_and_the_labels_law(data):
    band = calibration_band(data, n_grid=11)
    assert (band["interval"].sel(ci_bound="lower") <= band["reward"]).all()
    assert (band["reward"] <= band["interval"].sel(ci_bound="upper")).all()
    axes = figures.calibration_band(band)
    assert any("band, pointwise" in str(one.get_label()) for one in axes.collections)
    with pytest.raises(DataError, match="no labels teach"):
        calibration_band(data.assign(labelled=data["labelled"] & False))


def test_ess_tails_draw_gates_and_name_the_unknown(data):
    found = overlap(data)
    left, right = figures.ess_tails(found)
    assert 0.3 in vertical(left) and {1.0, 2.0} <= vertical(right)
    assert "gate at 0.30" in left.get_xlabel() and "dashed: 2, finite variance" in right.get_xlabel()
    assert any("unknown" in word for word in drawn(left))
    raw = left.containers[0]
    np.testing.assert_allclose([bar.get_width() for bar in raw], found["ess_fraction"].dropna("policy"))


def test_weight_map_and_its_two_figures(data):
    weights = weight_map(data)
    np.testing.assert_allclose(weights["density_logged"].sum(), 1)
    np.testing.assert_allclose(weights["density_target"].sum("bin"), 1)
    mean_one = (10 ** weights["log10_weight"]).mean("prompt")
    np.testing.assert_allclose(mean_one[1:], 1, rtol=1e-9)
    assert np.isnan(mean_one[0])
    np.testing.assert_allclose(weights["ess_fraction"][1:], overlap(data)["ess_fraction"][1:])
    assert "ESS/n" in figures.weight_stabilisation(weights, "$twin$").get_title(loc="left")
    axes, below = figures.overlap_heatmap(weights, "odd", affinity=0.5)
    assert below.lines and axes.get_position().y0 > below.get_position().y1  # no second scale on one panel
    (image,) = axes.images
    np.testing.assert_allclose(image.get_array()[0], weights["density_logged"])
    assert "0.500" in axes.get_title(loc="left")


def test_orthogonality_draws_zero_and_both_parts(data):
    estimate = calibrated_dr_cpo.estimate(data)
    left, right = figures.orthogonality(estimate)
    assert 0.0 in vertical(left) and 0.0 in vertical(right)
    assert any("unknown" in word for word in drawn(left))
    with pytest.raises(ValueError, match="doubly robust"):
        figures.orthogonality(raw_judge.estimate(data))


def test_mde_contours_and_optimum(data):
    components = variance_components(data).sel(policy="base", drop=True)
    surface = forecast.mde_surface(
        components, [200, 400, 800, 1600], [0.05, 0.1, 0.25, 0.5], cost_judge=1, cost_oracle=16
    )
    bare = figures.mde_contours(surface.assign_attrs(power=0.9))
    assert "at 90% power" in bare.get_title(loc="left") and "star" not in bare.get_title(loc="left")
    axes = figures.mde_contours(surface, optimum=(400, 0.25))
    assert "star: the plan" in axes.get_title(loc="left")
    assert any("cost" in word for word in drawn(axes)) and axes.get_xscale() == axes.get_yscale() == "log"


def test_a_flat_surface_says_its_size_in_place_of_contours_that_all_say_the_same(data):
    """As of a policy whose value rests on probes, which the design does not buy."""
    components = variance_components(data).sel(policy="base", drop=True)
    design = ([200, 400, 800, 1600], [0.05, 0.1, 0.25, 0.5])
    surface = forecast.mde_surface(components, *design, cost_judge=1, cost_oracle=16)
    steep, flat = (
        drawn(figures.mde_contours(surface.assign(mde=mde)))
        for mde in (surface.mde, 0.1 + surface.mde * 1e-3)
    )
    assert any("at every design shown" in word for word in flat)
    assert not any("at every design shown" in word for word in steep)
    sizes = [word for word in steep if word.replace(".", "").isdigit()]
    assert len(sizes) >= 3 and len(set(sizes)) == len(sizes)


def test_methods_differ_in_shape_as_well_as_colour():
    look = looks([f"m{k}" for k in range(8)])
    assert len({(v["marker"]) for v in look.values()}) == len({v["color"] for v in look.values()}) == 8
    assert len(MARKERS) == len(OKABE_ITO)


def test_sensitivity_draws_curves_margin_and_tipping_points(data):
    estimate = direct.estimate(data, borrowed="plug_in")
    delta = np.linspace(0, 0.4, 41)
    level, pair = sensitivity.levels(estimate, delta), sensitivity.differences(estimate, delta)
    axes = figures.sensitivity_levels(level, margin=0.05)
    words = drawn(axes)
    assert {"$twin$ (borrowed)", "base (labels of its own)", "margin 0.05"} <= set(
        words
    ) and 0.05 in vertical(axes)
    curves = [line.get_ydata() for line in axes.lines if len(line.get_ydata()) == len(delta)]
    np.testing.assert_allclose(
        curves, level["interval"].transpose("policy", "ci_bound", "delta").values.reshape(-1, 41)
    )
    tips = sensitivity.tipping_points(estimate)
    axes = figures.sensitivity_differences(pair, tips)
    words = drawn(axes)
    marks = [float(line.get_xdata()[0]) for line in axes.lines if line.get_mfc() == "white"]
    decided = [t for t in tips["tipping"].values if 0 < t <= 0.4]
    assert marks == decided and marks
    assert any(
        word.startswith("$twin$ - odd: flips at") or word.startswith("base - odd: flips at") for word in words
    )
    assert "δ" in axes.get_xlabel() and "difference" in axes.get_ylabel()
