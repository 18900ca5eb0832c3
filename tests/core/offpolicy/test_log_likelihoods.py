"""Teacher-forcing conformance: each broken identity is found, and a sound table passes."""

import numpy as np
import pandas as pd
import pytest

from cje_core.data import DataError, from_arrays
from cje_core.io.files import read
from cje_core.offpolicy import log_likelihoods
from cje_core.offpolicy.log_likelihoods import check, clones, summarise
from cje_sim.scenarios import clone_with_tf_noise


def sound(n=6, seed=0):
    """Two calls of each of two policies on n prompts, every optional column given."""
    rng = np.random.default_rng(seed)
    rows = []
    for policy in ("b", "a"):
        for prompt in range(n):
            tokens = -rng.exponential(1.0, 4 + prompt)
            before = -rng.exponential(50.0)
            row = {
                "policy": policy,
                "prompt_id": str(prompt),
                "logp": tokens.sum(),
                "logp_tokens": tokens,
                "n_ids": len(tokens),
                "logp_prompt": before,
                "logp_joint": before + tokens.sum(),
                "snapshot": f"{policy}@2024-08-06",
                "renormalized": False,
            }
            rows += [row, dict(row)]
    return pd.DataFrame(rows)


def test_a_sound_table_passes():
    table = sound()
    assert check(table).empty and list(check(table)) == log_likelihoods.COLUMNS
    out = summarise(table)
    assert out.policy.values.tolist() == ["a", "b"] and out.n_rows.values.tolist() == [12, 12]
    assert (out.pass_share == 1).all() and (out.check_pass_share == 1).all()


def broken(column, value, *rows):
    table = sound()
    for at in rows or (5,):
        table.at[at, column] = value(table.at[at, column])
    return table


@pytest.mark.parametrize(
    ("table", "name", "rows", "reason"),
    [
        (
            broken("logp", lambda v: v + 3e-7),
            "repeatable",
            [4, 5],
            "identical calls differ by more than 1e-07",
        ),
        (broken("logp_tokens", lambda v: v * 1.01, 4, 5), "token_sum", [4, 5], " token scores sum to"),
        (
            broken("logp_tokens", lambda v: np.r_[v[:-2], v[-2:].sum() - 1, 1.0], 4, 5),
            "token_sum",
            [4, 5],
            "1 of them are positive",
        ),
        (broken("logp_tokens", lambda v: v[::-1]), "repeatable", [4, 5], "identical calls differ"),
        (broken("logp_joint", lambda v: v + 0.01), "additive", [5], "log p(X + A)"),
        (broken("logp_prompt", lambda v: np.nan), "additive", [5], "nan"),
        (broken("snapshot", lambda v: v[:-1] + "5"), "snapshot", [5], "snapshot is 'b@2024-08-05', unlike"),
        (
            sound().assign(n_ids=lambda t: t.logp_tokens.map(len) + (t.index == 5)),
            "token_count",
            [5],
            "token ids, but",
        ),
        (sound().assign(masked=lambda t: t.index == 5), "unmasked", [5], "does not say"),
        (broken("renormalized", lambda v: True), "unmasked", [5], "renormalised after masking"),
    ],
)
def test_each_broken_identity_is_found(table, name, rows, reason):
    found = check(table)
    assert found["check"].unique().tolist() == [name]
    assert sorted(found.index) == rows
    assert found["reason"].str.contains(reason, regex=False).all()
    out = summarise(table)
    assert float(out.check_pass_share.sel(policy="b", check=name)) == pytest.approx(1 - len(rows) / 12)
    assert float(out.pass_share.sel(policy="b")) == pytest.approx(1 - len(rows) / 12)
    assert float(out.pass_share.sel(policy="a")) == 1


@pytest.mark.parametrize("value", [np.nan, -np.inf, np.inf, 0.3])
def test_pitfall_14_log_probabilities_that_cannot_be(value):
    table = pd.DataFrame({"policy": "p", "prompt_id": ["0", "1", "2"], "logp": [-1.0, value, 1e-6]})
    found = check(table)
    assert found[["prompt_id", "check"]].values.tolist() == [["1", "finite"]]
    assert f"logp is {value:g}" in found["reason"].iloc[0]
    assert float(summarise(table).pass_share[0]) == pytest.approx(2 / 3)


def test_two_calls_that_both_failed_do_not_agree():
    table = pd.DataFrame({"policy": "p", "prompt_id": "0", "logp": [-np.inf, -np.inf]})
    assert set(check(table)["check"]) == {"finite", "repeatable"}


def test_a_joint_above_the_prompt_is_found_even_if_it_adds_up():
    assert log_likelihoods.additive([0.5], [-3.0], [-2.5]).tolist() == [False]
    assert log_likelihoods.additive([0.0], [-3.0], [-3.0]).tolist() == [True]


def test_checks_that_did_not_run_are_unknown():
    table = sound()[["policy", "prompt_id", "logp"]].drop_duplicates()
    out = summarise(table)
    ran = {"finite"}
    for name in log_likelihoods.CHECKS:
        assert np.isnan(out.check_pass_share.sel(check=name)).all() == (name not in ran)
    assert (out.pass_share == 1).all()


def test_different_responses_are_not_repetitions():
    table = pd.DataFrame({"policy": "p", "prompt_id": "0", "response_id": ["x", "y"], "logp": [-1.0, -2.0]})
    assert check(table).empty
    assert len(check(table.drop(columns="response_id"))) == 2


def test_a_missing_column_stops():
    with pytest.raises(DataError, match="no column 'logp'"):
        check(pd.DataFrame({"policy": ["p"], "prompt_id": ["0"]}))


def test_an_exact_clone_has_no_spread_and_a_noisy_one_the_normal_effective_size():
    data = clone_with_tf_noise.simulate(n=4000, rng=1)
    out = clones(data, ["base", "clone"])
    base, clone = out.sel(policy="base"), out.sel(policy="clone")
    assert base.ess_fraction == 1 and base.sd == 0 and base.equal_share == 1 and base.mean_ratio == 1
    assert clone.sd > 0.5 and clone.ess_fraction < 0.5 and clone.equal_share < 0.1
    with pytest.raises(ValueError, match="no policy 'stranger'"):
        clones(data, ["stranger"])


def test_clones_by_hand():
    logged = {
        "logp_target": [[-1.0, -2.0, np.nan]],
        "logp_logger": [-1.5, -1.0, -1.0],
        "logged_judge": [0.1] * 3,
    }
    out = clones(from_arrays([[0.5] * 3], policies=["p"], logged=logged), ["p"]).sel(policy="p")
    ratio = np.exp([0.5, -1.0])
    assert int(out.n_usable) == 2
    assert float(out["mean"]) == pytest.approx(-0.25) and float(out.sd) == pytest.approx(1.5 / np.sqrt(2))
    assert float(out.mean_ratio) == pytest.approx(ratio.mean())
    assert float(out.ess_fraction) == pytest.approx(ratio.sum() ** 2 / (2 * (ratio**2).sum()))
    assert float(out.ess_fraction_normal) == pytest.approx(np.exp(-1.125))
    alone = from_arrays(
        [[0.5]], policies=["p"], logged={k: np.asarray(v)[..., :1] for k, v in logged.items()}
    )
    assert np.isnan(clones(alone, ["p"]).sd).all()


def test_arena_clone(arena):
    data, _ = read(arena / "fresh_draws", logged=arena / "logged_data.jsonl")
    out = clones(data, ["clone"]).sel(policy="clone")
    assert float(out.ess_fraction) == pytest.approx(0.2146, abs=1e-3)
    assert 0 < float(out.equal_share) < 1  # some calls agree to the bit, so the rest is no other template
