"""The posterior side of ``cje-lab analyze --bayes``: values, shifts, and what they say about decisions.

Both Bayesian estimators take one posterior of the calibrator, which is drawn once, and the random numbers that follow
it, so a replicate of one and of the other share the calibrator and the weights of the prompts, and draws of a corrected
policy can stand beside those of another. A policy's reported value is its one-step posterior where it has labels of its
own, its probe-corrected posterior where it has probes only, and else the one-step posterior by the labels of the
calibration policies, which assumes transport.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from cje_core import estimators
from cje_core.bayes.decisions import decide
from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.streams import generator

if TYPE_CHECKING:
    from cje_core.families.posterior import CalibratorPosterior

VALUE, SHIFT = "bayes_direct", "bayes_corrected"
BAYESIAN = (VALUE, SHIFT)
N_DRAWS = 2000
DIAGNOSTICS = ("rhat", "ess_bulk", "ess_tail", "divergences", "bfmi")
UNLIKELY = 0.05  # a harmless shift less probable than this: the posterior too says FAIL


class Posterior(NamedTuple):
    """What ``--bayes`` adds to an analysis."""

    engine: str
    estimates: Mapping[str, xr.Dataset]  # by estimator, in the order of `BAYESIAN`
    reported: xr.Dataset  # the value of each policy that a decision is about, with joint draws
    decision: xr.Dataset  # over policy, see `posterior`
    calibrator: "CalibratorPosterior | None"  # behind both estimates; None where too few labels fit it


def posterior(data: xr.Dataset | Calibrated, *, engine: str, margin: float, seed: int) -> Posterior:
    """Fit the Bayesian estimators and decide.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
    engine : {"gibbs", "nutpie", "pymc"}
    margin : float
        Harmless shift, in units of the oracle scale.
    seed : int
        Root of the stream that both estimators start from.

    Returns
    -------
    Posterior
        Its decision is that of `cje_core.bayes.decisions.decide` on the reported values, with ``source(policy)``, the
        estimator each was taken from, and ``within_margin(policy)``, the probability of a harmless shift. Where a
        posterior has no interval (too few labels: it is the prior's) there are no probabilities either.
    """
    options: dict[str, dict[str, Any]] = {
        VALUE: {},
        SHIFT: {"margin": margin},
    }
    from cje_core.bayes.prior import Prior  # kernels, which an analysis without --bayes never loads
    from cje_core.families.posterior import calibrate, prepare

    given, rng = calibrated(data), generator(seed, "analyze", "posterior")
    setting, calibrator = prepare(given), None
    if not setting.fitted.status.failed:
        calibrator = calibrate(setting, engine=engine, n_draws=N_DRAWS, prior=Prior(), rng=rng)
    found = {}
    for name in BAYESIAN:
        fit = estimators.load(name).estimate
        found[name] = fit(
            given,
            rng=copy.deepcopy(rng),  # each weighs the prompts by the numbers that follow the calibrator's
            engine=engine,
            n_draws=N_DRAWS,
            calibrator=calibrator,
            **options[name],
        )
    draws = {name: _draws(found[name]) for name in BAYESIAN}
    own = found[VALUE]["route"] == "corrected"
    audited = ~own & draws[SHIFT].notnull().all("replicate")
    # of two estimators: it has the name of neither
    reported = found[VALUE].drop_vars("method").assign(draws=draws[SHIFT].where(audited, draws[VALUE]))
    speaks = np.isfinite(found[SHIFT]["std_error"])
    decision = (
        decide(reported)
        .assign(
            source=audited.copy(data=np.where(audited.values, SHIFT, VALUE)),
            within_margin=found[SHIFT]["within_margin"].where(speaks).drop_vars("method"),
        )
        .drop_vars("method", errors="ignore")
    )
    return Posterior(engine, found, reported, decision, calibrator)


def without(believed: Posterior, refused: Sequence[str]) -> Posterior:
    """Decide among the policies whose level is not refused: no probability speaks for or against the others."""
    if not refused:
        return believed
    kept = ~believed.reported["policy"].isin(list(refused))
    decided = decide(believed.reported.assign(draws=believed.reported["draws"].where(kept)))
    extra = {name: believed.decision[name] for name in ("source", "within_margin")}
    return believed._replace(decision=decided.assign(extra))


def _draws(estimate: xr.Dataset) -> xr.DataArray:
    """Draws of an estimate, NaN for policies without an interval."""
    if "draws" not in estimate:
        empty = np.full((estimate.sizes["policy"], N_DRAWS), np.nan)
        return xr.DataArray(empty, dims=("policy", "replicate"), coords={"policy": estimate["policy"]})
    return estimate["draws"].where(np.isfinite(estimate["std_error"]))


def to_tree(found: Posterior, given: Calibrated, seed: int) -> xr.DataTree:
    """Chains, decision and the very draws behind what is printed, as groups that ArviZ can read.

    ``posterior`` and the groups beside it are those of `cje_core.families.chains.sample`: real chains of the printed
    posterior, other draws of it than the printed ones (NUTS: of the same run, every chain).
    ``constant_data`` holds the labels' scores, the decision, and what it was made of over ``replicate``: ``value``,
    ``corrected_value`` and ``shift``, with the statuses of both values; NUTS' worst diagnostics are attributes.
    """
    from cje_core.families.chains import (
        N_CHAINS,
        sample,
    )  # kernels, which an analysis without --bayes never loads

    value, corrected = (found.estimates[name] for name in BAYESIAN)
    tree = sample(
        given,
        engine=found.engine,
        n_draws=N_DRAWS // N_CHAINS,
        with_shifts=True,
        trace=found.calibrator and found.calibrator.trace,
        rng=generator(seed, "analyze", "posterior"),
    )
    groups = {name: node.to_dataset(inherit=False) for name, node in tree.children.items()}
    drawn = {"value": _draws(value), "corrected_value": _draws(corrected), "shift": corrected["shift_draws"]}
    printed = xr.Dataset(
        {name: one.reset_coords(drop=True).transpose("policy", "replicate") for name, one in drawn.items()}
    ).assign(value_status=value["status"].drop_vars("method"))
    printed["corrected_value_status"] = corrected["status"].drop_vars("method")
    decided = found.decision.reset_coords(drop=True)
    told = {name: float(value[name]) for name in (*DIAGNOSTICS, "flat_judge") if name in value}
    constant = xr.merge([groups.pop("constant_data", xr.Dataset()), decided, printed], compat="override")
    constant.attrs = {
        "engine": found.engine,
        "value_options": value.attrs["options"],
        "corrected_value_options": corrected.attrs["options"],
        **told,
    }
    if "posterior" in groups:
        groups["posterior"].attrs = dict(constant.attrs)
    return xr.DataTree.from_dict({**groups, "constant_data": constant})


def stricter(transport: xr.Dataset, believed: Posterior | None) -> dict[str, str]:
    """Verdict on transport of each policy: the audit's, or the posterior's where that is stricter.

    The posterior says FAIL where P(|shift| < margin) < .05, PASS above .95 and INCONCLUSIVE between. FAIL is stricter
    than INCONCLUSIVE, and that than PASS; NOT_CHECKED gives way to whoever checked.
    """
    order = ("NOT_CHECKED", "PASS", "INCONCLUSIVE", "FAIL")
    found = {}
    for policy in transport["policy"].values.astype(str).tolist():
        said = [str(transport["verdict"].sel(policy=policy).item()), posterior_verdict(believed, policy)]
        found[policy] = max(said, key=order.index)
    return found


def posterior_verdict(believed: Posterior | None, policy: str) -> str:
    """What the posterior alone says of transport, in the words of the audit."""
    if believed is None:
        return "NOT_CHECKED"
    share = float(believed.decision["within_margin"].sel(policy=policy))
    if math.isnan(share):
        return "NOT_CHECKED"
    return "FAIL" if share < UNLIKELY else "PASS" if share > 1 - UNLIKELY else "INCONCLUSIVE"
