"""The frame of all worlds: a law and a truth make a world, wherever the file lies."""

import ast
import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import world_checks as check
import xarray as xr
from registry_checks import skeleton

import cje_sim
from cje_sim import judges
from cje_sim.labelling import Labelling
from cje_sim.scenarios import arena_like, clone_with_tf_noise, well_specified, zipf_tilt
from cje_sim.world import Drawn, Prompts, Responses, chosen, collect, world

ROOT = Path(cje_sim.__file__).parent


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Write a source to a file outside the project and import it."""
    monkeypatch.syspath_prepend(tmp_path)

    def written(name: str, source: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        importlib.invalidate_caches()
        names.append(name)
        return importlib.import_module(name)

    names: list[str] = []
    yield written
    for name in names:
        del sys.modules[name]


def test_the_skeleton_is_a_world(load) -> None:
    module = load("skeleton_world", skeleton("scenario"))
    for conformance in check.EVERY:
        conformance(module)


@pytest.mark.parametrize(
    ("old", "new", "broken"),
    [
        (
            "return link_truth(score_law)",
            "return link_truth(score_law) + 0.01",
            check.truth_against_simulation,
        ),
        ("prompts.scores(score_law)", "np.random.rand(2, prompts.n)", check.same_seed_same_data),
        ("*, score_law: ScoreLaw = SCORE_LAW) ->", "*, score_law: ScoreLaw = HIGH) ->", check.signature),
    ],
)
def test_a_planted_error_in_the_skeleton_is_caught(load, old, new, broken) -> None:
    source = skeleton("scenario")
    assert old in source
    imports = 'import numpy as np\n\nHIGH = {"base": (9.0, 1.0)}\nSCORE_LAW'
    source = source.replace(old, new).replace("SCORE_LAW", imports, 1)
    with pytest.raises(AssertionError):
        broken(load("broken_world", source))


def law(prompts: Prompts, *, shift: float = 0.1) -> Responses:
    """One policy.

    Parameters
    ----------
    shift : float
        What the mean has above .4.
    """
    judge = prompts.uniforms(1)
    return Responses(policies=["base"], judge=judge, mean=np.full(judge.shape, 0.4 + shift))


simulate = world(law, n=30, spread=None)


def test_simulate_has_a_real_signature() -> None:
    shown = inspect.signature(simulate)
    names = [
        "n",
        "oracle_fraction",
        "label_design",
        "label_scheme",
        "n_probes",
        "shift",
        "atoms",
        "prompt_corr",
        "rng",
    ]
    assert list(shown.parameters) == names
    assert shown.parameters["n"].default == 30 and shown.return_annotation is xr.Dataset
    told = inspect.getdoc(simulate)
    assert (
        told.startswith("One policy.")
        and "What the mean has above .4." in told
        and told.count("Parameters\n") == 1
    )
    assert (simulate.__module__, simulate.__qualname__) == (__name__, "simulate")
    assert simulate(rng=0).sizes["prompt"] == 30
    with pytest.raises(TypeError, match=r"simulate has no parameter 'spread'; there are: n, oracle_fraction"):
        simulate(spread=0.5)
    with pytest.raises(TypeError, match="takes 0 positional arguments"):
        simulate(30)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"n": -5}, "n=-5: a world has a whole number of prompts, at least 1"),
        ({"n": 0}, "n=0: a world"),
        ({"n": 2.5}, r"n=2\.5: a world"),
        ({"n": True}, "n=True: a world"),
        ({"atoms": -0.1}, r"atoms=-0\.1: it must lie in \[0, 1\]"),
        ({"spread": 1.5}, r"spread=1\.5: it must lie in \[0, 1\]"),
        ({"prompt_corr": float("nan")}, "prompt_corr=nan: it must lie"),
        ({"oracle_fraction": float("nan")}, "oracle_fraction=nan: a share"),
        ({"oracle_fraction": -0.1}, r"oracle_fraction=-0\.1: a share"),
        ({"n_probes": -1}, "n_probes=-1: the probes of a policy are a whole number, at least 0"),
        ({"n_probes": 1.5}, r"n_probes=1\.5: the probes"),
        ({"label_design": "some"}, "label_design='some'"),
        ({"label_scheme": "some"}, "label_scheme='some'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_anything_is_drawn(arguments, said) -> None:
    def untouched(prompts):
        raise AssertionError("the law was asked")

    drawn = world(untouched)
    with pytest.raises(ValueError, match=said):
        drawn(**arguments, rng=0)
    with pytest.raises(ValueError, match=said):
        drawn.block([np.random.default_rng(0)], **arguments)


def test_a_law_that_does_not_fit_the_frame_is_refused() -> None:
    def positional(prompts, shift):
        return law(prompts, shift=shift)

    def greedy(prompts, *, rng=None):
        return law(prompts)

    with pytest.raises(TypeError, match="shift of the law must be a keyword with a default"):
        world(positional)
    with pytest.raises(TypeError, match="'rng' belongs to the frame"):
        world(greedy)
    for missing in ("n", "label_design", "label_scheme"):  # at once, not when somebody simulates
        with pytest.raises(TypeError, match=f"{missing} is None, and every world has one"):
            world(law, **{missing: None})

    def labelled(prompts):
        judge = prompts.uniforms(1)
        return Responses(policies=["base"], judge=judge, oracle=judge)

    with pytest.raises(TypeError, match="draws its own labels, which spread and atoms cannot change"):
        world(labelled)(rng=0)
    assert "oracle" in world(labelled, spread=None, atoms=None)(rng=0)
    for none_or_both in ({}, {"mean": 0.5, "oracle": np.full((1, 2), 0.5)}):
        with pytest.raises(ValueError, match="need either `mean`"):
            Responses(policies=["base"], judge=np.zeros((1, 2)), **none_or_both)


def test_keywords_are_passed_on_and_unknown_ones_refused() -> None:
    taken = set(inspect.signature(zipf_tilt.tokens).parameters)
    assert taken <= set(inspect.signature(clone_with_tf_noise.overlap).parameters)
    assert "noise_sd :" in inspect.getdoc(clone_with_tf_noise.overlap)
    assert inspect.signature(clone_with_tf_noise.truth).parameters["eta"].default is clone_with_tf_noise.ETA
    with pytest.raises(
        TypeError, match=r"clone_with_tf_noise\.overlap has no parameter 'noise'; there are: eta"
    ):
        clone_with_tf_noise.overlap(noise=1.0)
    with pytest.raises(TypeError, match=r"clone_with_tf_noise\.tokens has no parameter 'noise_sd'"):
        clone_with_tf_noise.truth(noise_sd=1.0)


def test_collect_by_hand() -> None:
    """Labels, noise, covariates of any shape and logs, each beside the plain computation."""
    n, rng = 12, np.random.default_rng(5)
    judge, time = rng.random((2, n)), np.arange(n)
    parts = {"policies": ["a", "b"], "judge": judge, "logp_target": -rng.random((2, n)), "n_tokens": 7}
    covariate = {"time": time, "side": np.array([[0.0], [1.0]])}
    whole = Labelling(1.0)
    graded = Responses(**parts, mean=judge, covariate=covariate)
    data = collect(Drawn(graded, whole, {"spread": 0.5, "atoms": 0.2}, np.random.default_rng(3)))
    noise = np.random.default_rng(3).random((2, n))
    expected = judges.draw_oracle(judge, noise, spread=0.5, atoms=0.2)
    assert np.array_equal(data.oracle.values[..., 0], expected)
    assert np.array_equal(data.covariate.sel(feature="time").values[1, :, 0], time)
    assert (data.covariate.sel(feature="side").values[..., 0] == [[0.0], [1.0]]).all()
    assert np.array_equal(data.logged_covariate.values, np.stack([time, 0.0 * time], axis=1))
    assert data.logged_covariate.dims == ("prompt", "feature") and (data.n_tokens == 7).all()
    given = collect(Drawn(Responses(**parts, mean=judge, noise=1 - noise), whole, {}, rng))
    assert np.array_equal(
        given.oracle.values[..., 0], judges.draw_oracle(judge, 1 - noise, spread=0.9, atoms=0.05)
    )
    finished = Responses(**parts, oracle=1 - judge, finish=lambda data, rng: data.assign(seen=rng.random()))
    own = collect(Drawn(finished, whole, {}, rng))
    assert np.array_equal(own.oracle.values[..., 0], 1 - judge) and "seen" in own
    assert "logged_covariate" not in own


def test_logged_covariates_reach_the_arena() -> None:
    data = arena_like.simulate(n=50, rng=0)
    assert data.logged_covariate.dims == ("prompt", "feature") and data.feature.values.tolist() == [
        "response_length"
    ]
    assert np.array_equal(data.logged_covariate.values, data.covariate.values[0, :, 0])


def test_a_policy_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="'c' is no policy; there are: a, b"):
        chosen(["a", "b"], "c")


def test_a_law_serves_another_frame() -> None:
    """A law is pure: one generator, one draw, whoever labels it."""
    one, two = (well_specified.law(Prompts(20, np.random.default_rng(1), 0.3)) for _ in range(2))
    data = well_specified.simulate(n=20, rng=1)
    assert np.array_equal(one.judge, two.judge) and np.array_equal(one.judge, data.judge.values[..., 0])


def parameters(function: ast.FunctionDef) -> int:
    a = function.args
    return sum(map(len, (a.posonlyargs, a.args, a.kwonlyargs))) + bool(a.vararg) + bool(a.kwarg)


def test_no_public_function_asks_for_more_than_nine() -> None:
    found = {}
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                found[path.name, node.name] = parameters(node)
    assert max(found.values()) <= 9, {k: v for k, v in found.items() if v > 9}
