"""One small world for the rows of the paper's table: made when first asked for, and once."""

import inspect
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
import xarray as xr

from cje_core import estimators
from cje_core.calibration.calibrated import Calibration, calibrated
from cje_core.families.off_policy.stages import make_logs, with_outcome
from cje_core.offpolicy.tf_cache import tf_cache
from cje_core.offpolicy.weight_map import weight_map
from cje_core.offpolicy.weights import log_ratios, mean_one, stabilise
from cje_core.planning.components import variance_components
from cje_core.workflow.analyze import analyze
from cje_core.workflow.steps.order import analyze_in_steps
from cje_core.workflow.steps.report import ledgers
from cje_sim.scenarios import arena_like
from cje_sim.scenarios.zipf_tilt import tokens
from cje_sim.tokens.calls import record
from cje_sim.tokens.laws import zipf

LENGTH = ("response_length",)


class Row(NamedTuple):
    """One row."""

    at: str
    what: str
    by: str
    holds: Callable[["Small"], Any] | None = None


class Small:
    """An Arena-like world of 160 prompts, its analysis, and pieces that several rows look at."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._estimates: dict[tuple, xr.Dataset] = {}

    @cached_property
    def data(self):
        return arena_like.simulate(n=160, oracle_fraction=0.5, n_probes=25, rng=0)

    @cached_property
    def analysis(self):
        return analyze(self.data)

    @cached_property
    def given(self):
        return self.analysis.calibrated

    @cached_property
    def with_length(self):
        """The same data, calibrated in two stages with the response's length."""
        return calibrated(self.data, Calibration(LENGTH))

    @property
    def rows(self):
        return self.given.rows

    @property
    def slice(self):
        return self.given.slice

    @property
    def logged(self):
        return self.given.logged

    @cached_property
    def logs(self):
        return with_outcome(make_logs(self.given))

    @cached_property
    def p(self):
        """A policy with good overlap, by its place in order of name."""
        return self.rows.policies.index("clone")

    @cached_property
    def ratio(self):
        return log_ratios(self.logged)[self.p]

    @cached_property
    def weight(self):
        return mean_one(self.ratio)

    @cached_property
    def stable(self):
        return stabilise(self.weight, self.logged.z[:, 0], self.given.logged_reward, self.slice.fold)

    def estimate(self, name, **options):
        key = name, repr(sorted(options.items()))
        if key not in self._estimates:
            call = estimators.load(name).estimate
            mine = "calibration" in inspect.signature(call).parameters and "calibration" not in options
            self._estimates[key] = call(self.given if mine else self.data, **options)
        return self._estimates[key]

    def at(self, name, variable, policy="clone"):
        """One number of an estimate."""
        return float(self.estimate(name)[variable].sel(policy=policy))

    def value(self, name, policy="clone", **options):
        return float(self.estimate(name, **options)["estimate"].sel(policy=policy))

    def gate(self, name):
        """What the gates of that name say of every policy."""
        return self.analysis.gates.sel(gate=name)["state"].isin(["pass", "warn", "fail", "unknown"]).all()

    @cached_property
    def map(self):
        return weight_map(self.given)

    @cached_property
    def ledger(self):
        """The ledger of calibrated DR."""
        return ledgers(self.analysis)["calibrated_dr_cpo"]

    @cached_property
    def components(self):
        return variance_components(self.given)

    @cached_property
    def steps(self):
        """Directory of an analysis in steps."""
        analyze_in_steps(self.data, self.directory / "steps", chosen=["direct", "snips", "stacked_dr"])
        return self.directory / "steps"

    @cached_property
    def recorded(self):
        """Logs in the paper's columns and calls under one target, with violations planted; and their cache."""
        policies = tokens(vocab=20, length=6, eta={"base": 0.0, "mild": 0.1}).policies
        found = record(policies, 60, share=0.03, rng=1)
        logs = found.logs.assign(fold_id=np.arange(60) % 5, cohort="spring")
        configured: list[object] = [{"model": "judge-2025-06-01"}] * 60
        logs["judge_cfg"] = configured
        logs.to_parquet(self.directory / "logs.parquet")
        found.targets["mild"].to_parquet(self.directory / "mild.parquet")
        cache = tf_cache(self.directory / "logs.parquet", {"mild": self.directory / "mild.parquet"})
        return logs, found.planted, cache

    @cached_property
    def by_topic(self):
        """The same data with two topics of 80 prompts each."""
        return self.data.assign(
            topic=("prompt", np.array(["a", "b"])[np.arange(self.data.sizes["prompt"]) % 2])
        )

    @cached_property
    def of_groups(self):
        """Direct with a calibrator that knows the topics."""
        return estimators.load("direct").estimate(self.by_topic, calibration=Calibration(groups="topic"))

    @cached_property
    def laws(self):
        """Log laws of tokens, of a target and of a logger that is a little flatter."""
        return zipf(50, 1.3), zipf(50, 1.2)

    @cached_property
    def calls(self):
        """A sound table of teacher-forcing calls, twice each."""
        rng = np.random.default_rng(0)
        rows = []
        for prompt in range(4):
            tokens = -rng.exponential(1.0, 5)
            row = {"policy": "a", "prompt_id": str(prompt), "logp": tokens.sum(), "logp_tokens": tokens}
            row |= {
                "logp_prompt": -9.0,
                "logp_joint": -9.0 + tokens.sum(),
                "snapshot": "a@2025-06-01",
                "renormalized": False,
            }
            rows += [row, dict(row)]
        return pd.DataFrame(rows)

    def drawn(self, figure, *pieces, **options):
        """Whether a figure of that name draws."""
        from matplotlib import pyplot as plt

        from cje_core import figures

        with mpl.rc_context({"backend": "agg"}):
            axes = getattr(figures, figure)(*pieces, **options)
            one = np.ravel(axes)[0]
            one.figure.canvas.draw()
            found = bool(one.has_data())
            plt.close("all")
        return found
