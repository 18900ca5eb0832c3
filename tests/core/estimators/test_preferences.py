"""Real human votes: an LLM judge's pick and the human winner for pairs of one model against three others.

The judge and the oracle are binary, the value is the win rate of the model that all three files share. Youden's index
is .13, .01 and .05: a judge that is worth next to nothing, which each estimator must survive or say.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from blocks import on_block
from scipy import stats

from cje_core.data.block import Block
from cje_core.estimators import direct, labels_only, ppi_plus_plus, raw_judge, rogan_gladen
from cje_core.inference.estimate import Status, wald
from cje_core.io import from_frame

README = Path(__file__).parents[3] / "README.md"
N_LABELS, N_DRAWS = 50, 500
ALPHA = 2 * stats.norm.sf(5)  # two-sided probability of five standard errors


def prepare(pairs, model):
    """A row per judged pair: whether the judge, and the human, prefer `model`; and the pairs without a pick."""
    frame = pd.DataFrame(pairs)
    side = np.where(frame["model_a"] == model, "A", "B")
    judged = frame["judge_pick"].isin(["A", "B"])
    won = (frame["human_winner"].str[-1].str.upper() == side).astype(float)
    table = pd.DataFrame(
        {
            "policy": model,
            "prompt_id": frame["id"],
            "judge_score": (frame["judge_pick"] == side).astype(float),
            "oracle_label": won.where(frame["human_winner"].notna()),
        }
    )
    return table[judged], frame.loc[~judged, "id"].tolist()


@pytest.fixture(scope="module")
def files(arena):
    folder = Path(arena).parent / "preferences"
    if not folder.is_dir():
        pytest.skip(f"no human votes at {folder}")
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


@pytest.fixture(scope="module")
def tables(files):
    models = [{side for pair in pairs for side in (pair["model_a"], pair["model_b"])} for pairs in files]
    (shared,) = set.intersection(*models)
    return [prepare(pairs, shared) for pairs in files]


def test_preparation(files, tables):
    assert [len(table) for table, _ in tables] == [325, 276, 275]
    assert [len(lost) for _, lost in tables] == [0, 1, 0]  # one pick is missing; the pair is left out by name
    for pairs, (table, lost) in zip(files, tables, strict=True):
        by_id = table.set_index("prompt_id")
        for pair in pairs:
            if pair["id"] in lost:
                assert pair["judge_pick"] is None
                continue
            row = by_id.loc[pair["id"]]
            won = pair["model_a" if pair["human_winner"] == "model_a" else "model_b"]
            picked = pair["model_a" if pair["judge_pick"] == "A" else "model_b"]
            assert row.oracle_label == (won == row.policy)
            assert row.judge_score == (picked == row.policy)


def test_a_pair_without_a_vote_has_no_label_and_one_without_a_pick_no_row():
    pair = {"model_a": "m", "model_b": "other", "judge_pick": "A", "human_winner": "model_b"}
    changes = [{}, {"human_winner": None}, {"judge_pick": None}, {"model_a": "other", "model_b": "m"}]
    table, lost = prepare([pair | {"id": f"q{k}"} | change for k, change in enumerate(changes)], "m")
    assert lost == ["q2"] and table["judge_score"].tolist() == [1, 1, 0]
    np.testing.assert_array_equal(table["oracle_label"], [0, np.nan, 1])


def test_the_readmes_own_data_block_runs_as_printed(tmp_path, monkeypatch, capsys):
    """On made-up pairs, with votes and picks missing: every estimator prints a line with a named status."""
    block = README.read_text(encoding="utf-8").split("### Bring your own data")[1]
    code = block.split("```python\n")[1].split("```")[0]
    rng = np.random.default_rng(3)
    model, other = "claude-opus-4-20250514", "other"
    pairs = []
    for k in range(200):
        names, vote = ((model, other), (other, model))[k % 2], str(rng.choice(["A", "B"]))
        pick = vote if rng.random() < 0.9 else "AB"["BA".index(vote)]
        pairs.append({"id": k, "model_a": names[0], "model_b": names[1], "judge_pick": pick,
                      "human_winner": f"model_{vote.lower()}"})  # fmt: skip
    pairs[4]["human_winner"] = pairs[5]["judge_pick"] = None
    pairs[6]["judge_pick"] = "tie"
    (tmp_path / "votes.json").write_text(json.dumps(pairs))
    monkeypatch.chdir(tmp_path)
    found = {}
    exec(compile(code, "README", "exec"), found)  # the block is ours
    assert found["table"].shape[0] == 198 and np.isnan(found["table"]["oracle_label"][4])
    assert int(found["data"].labelled.sum()) == 50
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["labels_only", "ppi_plus_plus", "direct", "rogan_gladen"]
    assert all(line.split()[-1] in Status.__members__ for line in lines)


def labelled(full, chosen):
    """The data with only the chosen labels: (replicates, pairs), one policy for each replicate."""
    many = full.isel(policy=[0] * len(chosen)).assign_coords(policy=[f"{r:03d}" for r in range(len(chosen))])
    seen = chosen[:, :, None]
    many = many.assign(labelled=many.labelled & seen, oracle=many.oracle.where(seen))
    return many.assign_attrs(calibration_policy=many.policy.values.tolist())


def direct_of_each(full, chosen):
    """Direct of the data with each of these choices of labels, (draws, pairs), along ``policy``."""
    score, label = (np.broadcast_to(full[name].values[:, :, 0], chosen.shape) for name in ("judge", "oracle"))
    label = np.where(chosen, label, np.nan)
    ranges = (tuple(full.attrs[name]) for name in ("judge_range", "oracle_range"))
    block = Block(
        ("one",), score[:, None].copy(), label[:, None], np.ones((len(chosen), 1, chosen.shape[1])), *ranges
    )
    out = on_block(direct, block, ci_prob=0.95)
    columns = {
        name: ("policy", getattr(out, name)[:, 0]) for name in ("estimate", "std_error", "df", "status")
    }
    return xr.Dataset(columns | {"interval": (("policy", "ci_bound"), out.interval[:, 0])})


def test_direct_of_each_choice_is_the_estimator(tables):
    """Up to the folds, which go by the names of prompts."""
    full = from_frame(tables[0][0])
    full = full.assign_coords(prompt=[str(i) for i in range(full.sizes["prompt"])])
    chosen = np.random.default_rng(1).random((2, full.sizes["prompt"])) < 0.2
    out = direct_of_each(full, chosen)
    for k in range(2):
        wanted = direct.estimate(labelled(full, chosen[k : k + 1]), inference="influence")
        for name in out:
            np.testing.assert_allclose(out[name].values[k], wanted[name].values[0], rtol=1e-9)


@pytest.fixture(scope="module")
def draws(tables):
    """Per file: the full-file win rate, and of each estimator the estimates for 50 labels drawn 500 times."""
    out = []
    for k, (table, _) in enumerate(tables):
        full = from_frame(table)
        n = full.sizes["prompt"]
        rng = np.random.default_rng([k, N_LABELS])
        chosen = np.argsort(rng.random((N_DRAWS, n)), axis=1).argsort(axis=1) < N_LABELS
        found = {"direct": [direct_of_each(full, chosen)]}
        # With labels of their own these borrow nothing, so that many draws fit in one data set.
        for module in (labels_only, ppi_plus_plus, rogan_gladen):
            name = module.__name__.rpartition(".")[2]
            found[name] = [module.estimate(labelled(full, block)) for block in np.split(chosen, 20)]
        found["raw_judge"] = [raw_judge.estimate(full)]
        merged = {
            name: xr.concat([r.drop_dims("prompt", errors="ignore") for r in rs], "policy")
            for name, rs in found.items()
        }
        out.append((float(table["oracle_label"].mean()), merged))
    return out


def hits(out, truth, scale=1.0):
    """Intervals, scaled about their middle, that hold the truth."""
    low, high = out.interval.values.T
    return int((np.abs(truth - (low + high) / 2) <= scale * (high - low) / 2).sum())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["direct", "labels_only", "ppi_plus_plus"])
def test_intervals_cover_the_human_win_rate(draws, name):
    """Not below 95% at five sigma; t intervals 30% too narrow would be (those of counted labels are wider).

    Labels are drawn without replacement from the very pairs whose mean is the target: the variance is smaller by 50 / n
    than these intervals say, so that about 97% is to be expected.
    """
    least = stats.binom.ppf(ALPHA / 2, N_DRAWS, 0.95)
    for truth, found in draws:
        out = found[name]
        assert out.sizes["policy"] == N_DRAWS
        assert not (out.status >= Status.TOO_FEW_LABELS).any()
        assert least <= hits(out, truth)
        plain = wald(out.estimate, out.std_error, out.df, 0.95)
        assert hits(out.assign(interval=(out.interval.dims, plain)), truth, scale=0.7) < least


@pytest.mark.slow
def test_noise_is_not_called_an_inverted_judge(draws):
    """A third of the samples of 50 happen to rank against the humans; of an inversion that is no sign.

    The judges are right more often than not, so a 97.5% bound calls at most 2.5% of samples inverted.
    """
    for _, found in draws:
        flags = found["direct"].status.values
        assert set(flags.tolist()) <= {Status.OK, Status.INVERTED_JUDGE}
        inverted = int((flags == Status.INVERTED_JUDGE).sum())
        assert inverted <= stats.binom.ppf(1 - 1e-4, len(flags), 0.025)


@pytest.mark.slow
def test_rogan_gladen_says_that_it_is_ill_conditioned(draws):
    least = stats.binom.ppf(ALPHA / 2, N_DRAWS, 0.95)
    for truth, found in draws:
        out = found["rogan_gladen"]
        ill = (out.status == Status.ILL_CONDITIONED).values
        assert ill.mean() > 0.75
        np.testing.assert_array_equal(out.interval.values[ill], np.tile([0.0, 1.0], (ill.sum(), 1)))
        assert out.std_error.isnull().values[ill].all()
        assert ((out.youden_interval[:, 0] <= 0) & (out.youden_interval[:, 1] >= 0)).values[ill].all()
        assert hits(out, truth) >= least


@pytest.mark.slow
def test_the_raw_judge_misses(draws):
    for truth, found in draws:
        assert hits(found["raw_judge"], truth) == 0
