"""The same numbers as statsmodels and ppi-python where they compute the same thing."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from cje_core.calibration.calibrator import predict
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data.arrays import unpack
from cje_core.estimators import direct_corrected, labels_only, raw_judge
from cje_core.io import from_frame


def world(seed=0, n=300):
    rng = np.random.default_rng(seed)
    score = rng.choice(np.linspace(0, 1, 21), (2, n))
    label = np.clip(0.1 + 0.7 * score**2 + rng.normal(0, 0.15, (2, n)), 0, 1)
    seen = np.stack([np.arange(n) < 120, np.arange(n) >= n - 60])
    return pd.DataFrame(
        {
            "policy": np.repeat(["a", "b"], n),
            "prompt_id": np.tile(np.arange(n), 2),
            "judge_score": score.ravel(),
            "oracle_label": np.where(seen, label, np.nan).ravel(),
            "probe": (seen & [[False], [True]]).ravel(),
            "evaluated": ~(seen & [[False], [True]]).ravel(),
            "cluster": np.tile(np.arange(n) // 3, 2),
        }
    )


@pytest.mark.parametrize(("module", "column"), [(raw_judge, "judge_score"), (labels_only, "oracle_label")])
def test_cluster_robust_mean_is_statsmodels(module, column):
    """OLS on a constant with clustered covariance; statsmodels' factor is G/(G-1) * (n-1)/(n-1) for one regressor."""
    frame = world()
    out = module.estimate(from_frame(frame)).sel(policy="a")
    mine = frame[(frame.policy == "a") & frame[column].notna()]
    fit = sm.OLS(mine[column], np.ones(len(mine))).fit(cov_type="cluster", cov_kwds={"groups": mine.cluster})
    np.testing.assert_allclose(out.estimate, fit.params.iloc[0])
    n_clusters = mine.cluster.nunique()
    sizes = mine.groupby("cluster").size().to_numpy()
    effective = (sizes**2).sum() ** 2 / (sizes**4).sum()  # equals n_clusters when all are of one size
    factor = np.sqrt(effective / (effective - 1) * (n_clusters - 1) / n_clusters)
    np.testing.assert_allclose(out.std_error, fit.bse.iloc[0] * factor)


def test_labels_only_interval_is_students():
    frame = world().drop(columns="cluster")
    label = frame.oracle_label[(frame.policy == "a")].dropna().to_numpy()
    out = labels_only.estimate(from_frame(frame), ci_prob=0.9, interval="wald").sel(policy="a")
    np.testing.assert_allclose(out.interval, sm.stats.DescrStatsW(label).tconfint_mean(alpha=0.1))


def test_probe_correction_is_prediction_powered_inference_with_a_fitted_f():
    ppi_py = pytest.importorskip("ppi_py", reason="ppi-python is not installed (extra dev)")
    frame = world()
    data = from_frame(frame)
    f = fit_slice(unpack(data)).calibrator
    b = frame[frame.policy == "b"]
    probes, rest = b[b.probe], b[b.evaluated]
    arguments = (
        probes.oracle_label.to_numpy(),
        predict(f, probes.judge_score.to_numpy()),
        predict(f, rest.judge_score.to_numpy()),
    )
    out = direct_corrected.estimate(data, tuned=False).sel(policy="b")
    np.testing.assert_allclose(
        out.estimate, float(np.squeeze(ppi_py.ppi_mean_pointestimate(*arguments, lam=1.0)))
    )
    low, high = (float(np.squeeze(v)) for v in ppi_py.ppi_mean_ci(*arguments, alpha=0.05, lam=1.0))
    lower, upper = out.interval.values
    assert lower < low
    assert high < upper  # PPI takes f as known; ours adds the error of having learned it
