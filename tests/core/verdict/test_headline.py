"""The value that stands first: parts put together row by row, refused levels without a number, differences of both."""

import numpy as np
import pytest
import xarray as xr

from cje_core.estimators import direct, direct_corrected
from cje_core.inference.contrasts import contrasts
from cje_core.inference.estimate import Status
from cje_core.inference.sources import borrows
from cje_core.verdict import headline
from cje_core.workflow.analyze import analyze
from cje_sim.scenarios import arena_like, binary_oracle, transport_shift


@pytest.fixture(scope="module")
def parts() -> tuple[xr.Dataset, xr.Dataset]:
    data = transport_shift.simulate(n=400, oracle_fraction=0.3, n_probes=40, rng=3)
    return direct.estimate(data), direct_corrected.estimate(data)


def levels(**source_and_level: tuple[str, str]) -> xr.Dataset:
    source, level = zip(*source_and_level.values(), strict=True)
    return xr.Dataset(
        {"source": ("policy", list(source)), "level": ("policy", list(level))},
        coords={"policy": list(source_and_level)},
    )


def said(estimate: xr.Dataset) -> xr.Dataset:
    """The first policy has labels of its own, then come probes, a borrowed value and a refused one."""
    names = [str(name) for name in estimate["policy"].values]
    first = [("own", "reported"), ("probes", "reported"), ("borrowed", "assumed"), ("borrowed", "refused")]
    return levels(**dict(zip(names, first + [("borrowed", "assumed")] * (len(names) - 4), strict=True)))


def test_each_row_is_that_of_its_source(parts: tuple[xr.Dataset, xr.Dataset]) -> None:
    estimate, probed = parts
    found = said(estimate)
    out = headline.headline(estimate, found, probed)
    a, b, c = (str(name) for name in estimate["policy"].values[1:4])
    for name, part in ((a, probed), (b, estimate)):
        for variable in ("estimate", "std_error", "interval", "df", "influence", "status", "route"):
            np.testing.assert_array_equal(out[variable].sel(policy=name), part[variable].sel(policy=name))
    assert out["taken_from"].sel(policy=[a, b, c]).values.tolist() == ["direct_corrected", "direct", ""]
    assert out["borrowed"].sel(policy=[a, b]).values.tolist() == [False, True]
    assert np.isnan(out["estimate"].sel(policy=c)) and np.isnan(out["influence"].sel(policy=c)).all()
    assert int(out["status"].sel(policy=c)) == Status.LEVEL_REFUSED


@pytest.mark.slow
def test_to_borrow_has_one_meaning() -> None:
    """The page, the value that stands and an estimate by itself agree, whatever a value rests on."""
    pages = [
        analyze(arena_like.simulate(n=300, oracle_fraction=0.5, label_design="base", rng=2), chosen=[name])
        for name in ("calibrated_ips", "direct", "raw_judge")
    ]
    for page in pages:
        expected = borrows(page.value).values.tolist()
        assert page.value["borrowed"].values.tolist() == expected
        assert [page.borrows(policy) for policy in page.policies] == expected
        both = (page.levels["level"] != "refused").values & np.isfinite(page.value["estimate"].values)
        alone = borrows(page.estimates[page.primary]).sel(policy=page.policies).values
        assert both.any() and (alone == expected)[both].all()
    assert {source for page in pages for source in page.levels["source"].values} >= {"logs", "judge", "own"}


def test_differences_are_of_the_values_that_stand(parts: tuple[xr.Dataset, xr.Dataset]) -> None:
    estimate, probed = parts
    out = headline.headline(estimate, said(estimate), probed)
    a, b, c = (str(name) for name in estimate["policy"].values[1:4])
    pairs = contrasts(out).to_dataframe().reset_index().drop_duplicates(["first", "second"])
    pairs = pairs.set_index(["first", "second"])
    mixed = pairs.loc[tuple(sorted((a, b)))]
    sign = 1 if a < b else -1
    assert mixed["difference"] == pytest.approx(
        sign * (float(probed["estimate"].sel(policy=a)) - float(estimate["estimate"].sel(policy=b)))
    )
    phi = probed["influence"].sel(policy=a) - estimate["influence"].sel(policy=b)
    assert mixed["std_error"] == pytest.approx(np.sqrt((phi.values**2).sum()) / phi.size)
    assert pairs.loc[[pair for pair in pairs.index if c in pair], "difference"].isna().all()


def test_counted_intervals_of_binary_labels_reach_the_differences() -> None:
    """Twenty binary labels each, nearly all of them good: the page's differences are those of the estimate itself."""
    data = binary_oracle.simulate(n=300, oracle_fraction=20 / 300, rng=1)
    data = data.assign(
        oracle=(data["oracle"] * 0 + 1).where(data["prompt"] != data["prompt"][0], data["oracle"])
    )
    estimate = direct.estimate(data)
    names = [str(name) for name in estimate["policy"].values]
    out = headline.headline(estimate, levels(**dict.fromkeys(names, ("own", "reported"))))
    found, expected = contrasts(out), contrasts(estimate)
    assert np.isfinite(expected["interval"]).all()
    for name in ("difference", "interval", "p_value"):
        np.testing.assert_array_equal(found[name], expected[name])


def test_a_failure_keeps_its_own_status(parts: tuple[xr.Dataset, xr.Dataset]) -> None:
    estimate, probed = parts
    c = str(estimate["policy"].values[3])
    failed = estimate.copy(deep=True)
    failed["status"].loc[{"policy": c}] = int(Status.UNINFORMATIVE_JUDGE)
    out = headline.headline(failed, said(estimate), probed)
    assert int(out["status"].sel(policy=c)) == Status.UNINFORMATIVE_JUDGE


def test_the_weakest_word_stands() -> None:
    words = ("reported", "assumed", "refused")
    for i, first in enumerate(words):
        for j, second in enumerate(words):
            assert headline.weaker(first, second) == words[max(i, j)]


def test_values_from_logs_rest_on_the_calibration_too():
    """An off-policy value is as wide as f may be off by, unless its status says that nothing is borrowed."""
    data = arena_like.simulate(n=300, oracle_fraction=0.5, label_design="base", rng=2)
    found = analyze(data, chosen=["calibrated_ips"])
    flagged = found.value.status.values == Status.TRANSPORT_ASSUMED
    assert flagged.any() and (found.value.borrowed.values >= flagged).all()
    low, high = found.if_biased.interval.isel(delta=0).values.T
    inside = found.value.interval.values
    assert (low[flagged] < inside[flagged, 0]).all() and (high[flagged] > inside[flagged, 1]).all()
