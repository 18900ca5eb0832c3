"""What every world keeps, as functions of its module: for the registry's worlds and for those of users."""

import inspect
import itertools
import pickle
from collections.abc import Callable
from types import ModuleType

import numpy as np

from cje_core.data import check_data

FRAME = {
    "n",
    "oracle_fraction",
    "label_design",
    "label_scheme",
    "n_probes",
    "spread",
    "atoms",
    "prompt_corr",
    "rng",
}
ALWAYS = FRAME - {"spread", "atoms", "prompt_corr"}


def signature(module: ModuleType) -> None:
    simulate = inspect.signature(module.simulate).parameters
    truth = inspect.signature(module.truth).parameters
    every = [*simulate.values(), *truth.values()]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in every)
    assert set(simulate) >= ALWAYS
    assert set(truth) <= set(simulate) - FRAME
    assert all(truth[k].default == simulate[k].default for k in truth), (
        "simulate and truth disagree on a default"
    )
    assert module.__doc__ and inspect.getdoc(module.truth)
    told = inspect.getdoc(module.simulate) or ""
    assert all(f"\n{name} :" in told for name in FRAME & set(simulate)), "help says what each keyword is"
    assert pickle.loads(pickle.dumps(module.simulate)) is module.simulate


def labels(module: ModuleType, design: str) -> None:
    """The schema, and labels where the design puts them."""
    data = module.simulate(n=400, oracle_fraction=0.25, label_design=design, n_probes=20, rng=1)
    check_data(data)
    assert data.sizes["prompt"] == 400
    assert "label_prob" in data
    truth = module.truth()
    assert list(truth.policy.values) == list(data.policy.values)
    low, high = data.attrs["oracle_range"]
    assert ((truth >= low) & (truth <= high)).all()
    taught = data.sel(policy=data.attrs["calibration_policy"])
    assert (taught.label_prob.values[taught.labelled.values] > 0).all()
    assert data.probe.sum(("prompt", "draw")).values.tolist() == [0] + [20] * (data.sizes["policy"] - 1)
    with_labels = data.policy[data.labelled.any(("prompt", "draw"))].values.tolist()
    assert with_labels == (data.policy.values.tolist() if design == "own" else [data.policy.values[0]])


def truth_against_simulation(module: ModuleType) -> None:
    """|mean - truth| < 5 SE in 2e5 prompts, all labelled, the SE by cluster where the world has clusters."""
    data = module.simulate(n=200_000, oracle_fraction=1.0, label_design="own", rng=20240607)
    truth = module.truth()
    shown = data.oracle.where(data.evaluated)
    assert bool(np.isfinite(shown.values[data.evaluated.values]).all())
    per_prompt = shown.mean("draw").values
    cluster = data.cluster.values if "cluster" in data else data.prompt.values
    _, code = np.unique(cluster, return_inverse=True)
    for p, policy in enumerate(data.policy.values):
        values = per_prompt[p]
        sums = np.bincount(code, weights=values - values.mean())
        se = np.sqrt((sums**2).sum()) / len(values)
        error = values.mean() - float(truth.sel(policy=policy))
        assert 5 * se < 0.01, "an error of .01 must show"
        assert abs(error) < 5 * se, (
            f"{policy}: mean {values.mean():.5f}, truth {float(truth[p]):.5f}, SE {se:.5f}"
        )


def variables_are_their_own(module: ModuleType) -> None:
    """Each can be written to, and no other changes with it."""
    data = module.simulate(n=60, rng=5)
    arrays = [variable.values for name, variable in data.variables.items() if name not in data.coords]
    assert all(array.flags.writeable for array in arrays)
    assert not any(np.shares_memory(one, two) for one, two in itertools.combinations(arrays, 2))


def same_seed_same_data(module: ModuleType) -> None:
    """And no global state."""
    simulate = module.simulate
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - reads the global state to show that it stays put
    first, second = simulate(n=60, rng=7), simulate(n=60, rng=np.random.default_rng(7))
    other = simulate(n=60, rng=8)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002
    assert first.identical(second)
    assert not first.identical(other)


def generator_moves_on(module: ModuleType) -> None:
    """Two calls with one generator differ; replaying the generator replays the second call."""
    simulate = module.simulate
    rng, again = np.random.default_rng(3), np.random.default_rng(3)
    first, second = simulate(n=60, rng=rng), simulate(n=60, rng=rng)
    assert not first.identical(second)
    simulate(n=60, rng=again)
    assert simulate(n=60, rng=again).identical(second)
    assert rng.bit_generator.state == again.bit_generator.state


def logs(module: ModuleType) -> None:
    """Where there are logs, they are the first responses of the base policy, and it is the logger."""
    data = module.simulate(n=60, rng=4)
    logged = {name for name in data if name.startswith("log")}
    if not logged:
        return
    first = data.isel(policy=0, draw=0, drop=True)
    assert logged >= {"logp_target", "logp_logger", "logged_judge", "logged_oracle"}
    assert ("logged_covariate" in data) == ("covariate" in data)
    assert np.array_equal(data.logp_target.values[0], data.logp_logger.values)
    for name in ("judge", "oracle", *(["covariate"] if "covariate" in data else [])):
        there, here = first[name].transpose("prompt", ...), data[f"logged_{name}"]
        assert here.dims == there.dims
        assert np.array_equal(here.values, there.values, equal_nan=True)


EVERY: tuple[Callable[[ModuleType], None], ...] = (
    signature,
    lambda module: labels(module, "own"),
    lambda module: labels(module, "base"),
    truth_against_simulation,
    variables_are_their_own,
    same_seed_same_data,
    generator_moves_on,
    logs,
)
