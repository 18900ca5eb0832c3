"""The study of interval coverage: its tables and figure on whole and partial grids; its controls."""

import matplotlib as mpl
import numpy as np
import pytest

from studies import _report, _run, _study
from studies._measures import performance

STUDY = _study.load("interval_coverage")


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    """Results of the smoke profile."""
    return _run.run_study(STUDY, profile="smoke", out=tmp_path_factory.mktemp("smoke")).results


def test_the_controls_behave(ds):
    value = performance(ds)["value"]
    bias = value.sel({"measure": "bias", "method": "raw_judge"})
    assert (bias > 0.05).all()  # the judge is on another scale: 0.14 on average
    assert (value.sel({"measure": "coverage", "method": "raw_judge"}) == 0).all()
    failed = value.sel({"measure": "n_failed", "method": "labels_only"}).sel(label_design="base")
    assert (failed.sel(policy="base") == 0).all() and (failed.drop_sel(policy="base") == 4).all()


def test_tables(ds):
    headline, measures = STUDY.table(ds).values()
    assert len(headline) == 4 and len(measures) == 4 * len(STUDY.methods)
    silent = headline["label_design"] == "base"
    assert (
        headline.loc[silent, "labels_only"].isna().all()
        and headline.loc[~silent, "labels_only"].notna().all()
    )
    for row in headline.to_dict("records"):
        cell = {k: row[k] for k in ("n", "oracle_fraction", "label_design")}
        policies = list(STUDY.policies[row["label_design"] == "base" :])
        at = ds.sel(cell).sel({"method": "direct_influence"}).sel(policy=policies)
        hit = (at["interval"].sel(ci_bound="lower") <= at["truth"]) & (
            at["truth"] <= at["interval"].sel(ci_bound="upper")
        )
        assert row["direct_influence"] == pytest.approx(float(hit.mean()))
        expected = hit.mean("policy").std(ddof=1) / np.sqrt(ds.sizes["replicate"])
        assert row["direct_influence_mcse"] == pytest.approx(float(expected))


@pytest.mark.parametrize(
    "levels", [{}, {"label_design": ["base"]}, {"label_design": ["own"], "oracle_fraction": [0.25]}]
)
def test_figure_of_whole_and_partial_grids(ds, levels):
    part = ds.sel(levels)
    (text,) = _report.figures(STUDY, part).values()
    assert "coverage (stretched scale)" in text and "n = 250" in text
    with mpl.rc_context(_report.STYLE):
        (figure,) = STUDY.figure(part).values()
    top = figure.axes[0]
    assert top.get_yscale() == "function" and list(top.get_ylim()) == [-0.25, 1.01]
    mpl.pyplot.close(figure)
