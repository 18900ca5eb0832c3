"""Groups of prompts: read from fields of the rows, refused where they are none, and data of one cohort."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from user_files import refuse, rows, write

from cje_core.calibration.calibrated import calibrated
from cje_core.calibration.oracle_slice import held_out
from cje_core.data import check_data, from_arrays
from cje_core.data.cohorts import group_codes, restrict
from cje_core.estimators import direct, snips
from cje_core.io.files import read
from cje_core.io.groups import add_groups
from cje_core.workflow.reading.given import take


def with_topic(n=12, topic=lambda i: "code" if i % 3 else "chat", **fields):
    return [
        row | {"policy": p, "topic": topic(i)} | fields
        for p in ("a", "b")
        for i, row in enumerate(rows(labels=8, n=n))
    ]


@pytest.mark.parametrize("kind", ["jsonl", "metadata", "csv", "parquet", "frame", "directory"])
def test_a_field_becomes_names_of_prompts(tmp_path, kind):
    records = with_topic()
    frame = pd.DataFrame(records).drop(columns="response")
    if kind in ("jsonl", "metadata"):
        if kind == "metadata":
            records = [row | {"metadata": {"topic": row.pop("topic")}} for row in records]
        source = write(tmp_path / "data.jsonl", records)
    elif kind == "csv":
        frame.to_csv(source := tmp_path / "data.csv", index=False)
    elif kind == "parquet":
        frame.to_parquet(source := tmp_path / "data.parquet")
    elif kind == "directory":
        source = tmp_path / "data"
        for policy in ("a", "b"):
            mine = [{k: v for k, v in r.items() if k != "policy"} for r in records if r["policy"] == policy]
            write(source / f"{policy}_responses.jsonl", mine)
    else:
        source = frame
    data, _ = take(source, groups=["topic"])
    assert data["topic"].dims == ("prompt",)
    expected = ["code" if i % 3 else "chat" for i in range(12)]
    assert data["topic"].sel(prompt=[f"q{i}" for i in range(12)]).values.tolist() == expected
    without, _ = read(source)
    assert without.identical(data.drop_vars("topic")), "nothing else changes"
    names, code = group_codes(data, "topic")
    assert names[code].tolist() == data.sortby("prompt")["topic"].values.tolist()


def test_integers_are_names_and_a_row_may_leave_it_to_the_others():
    records = with_topic(topic=lambda i: i % 2)
    for row in records:
        if row["policy"] == "b":
            row["topic"] = None
    data, _ = take(pd.DataFrame(records), groups=["topic"])
    assert data["topic"].sel(prompt="q3").item() == "1"


def test_probes_bring_their_prompts():
    probes = pd.DataFrame(
        [{"policy": "a", "prompt_id": "new", "judge_score": 0.5, "oracle_label": 0.5, "topic": "law"}]
    )
    data, _ = take(pd.DataFrame(with_topic()), groups=["topic"], probes=probes)
    assert data["topic"].sel(prompt="new").item() == "law"
    refuse(
        lambda: take(pd.DataFrame(with_topic()), groups=["topic"], probes=probes.drop(columns="topic")),
        "DataFrame, row 1: topic is missing; no row of its prompt_id has one; give each prompt one value",
    )


def test_what_is_no_group_is_refused_in_one_line(tmp_path):
    clash = with_topic()
    clash[13]["topic"] = "law"
    path = write(tmp_path / "data.jsonl", clash)
    refuse(
        lambda: take(path, groups=["topic"]),
        f"{path}, row 14: topic is 'law'; another row of prompt_id 'q1' differs; give each prompt one topic",
    )
    path = write(tmp_path / "bool.jsonl", with_topic(topic=lambda i: bool(i % 2)))
    refuse(
        lambda: take(path, groups=["topic"]), f"{path}, row 1: topic is False; write a string or an integer"
    )
    plain = write(tmp_path / "plain.jsonl", with_topic())
    refuse(
        lambda: take(plain, groups=["nope"]), f"{plain}: no row has the field 'nope'; name one that is there"
    )
    refuse(
        lambda: take(plain, groups=["judge_score"]),
        "field 'judge_score' of prompts: it has a meaning of its own",
    )
    refuse(
        lambda: take(plain, cohort={"topic": "law"}),
        "cohort='topic=law': no prompt has this value; there are chat, code",
    )
    data, _ = take(plain, groups=["topic"])
    refuse(lambda: take(data, groups=["nope"]), "no names of prompts 'nope'; they have topic")
    refuse(lambda: restrict(data, {"judge": "0"}), "no names of prompts 'judge'")
    both = data.assign(side=("prompt", np.where(data["topic"] == "code", "x", "y")))
    refuse(
        lambda: restrict(both, {"topic": "code", "side": "y"}),
        "cohort='topic=code, side=y': no prompt has all",
    )


def world(n=90, seed=0, **options):
    rng = np.random.default_rng(seed)
    judge = rng.random((2, n))
    oracle = np.clip(judge + rng.normal(0, 0.1, judge.shape), 0, 1)
    oracle[0, 60:] = np.nan
    probe = np.zeros(judge.shape, dtype=bool)
    probe[1, :40] = True
    oracle[1, 40:] = np.nan
    data = from_arrays(judge, policies=["a", "b"], oracle=oracle, probe=probe, **options)
    return data.assign(topic=("prompt", np.where(np.arange(n) % 3 == 0, "chat", "code")))


def test_labels_of_other_prompts_teach_and_do_nothing_else():
    data = world()
    inside = restrict(data, {"topic": "chat"})
    check_data(inside)
    chat = inside["topic"] == "chat"
    assert int(chat.sum()) == 30 and not inside["evaluated"].where(~chat, False).any()
    assert not inside["probe"].where(~chat, False).any()
    assert int(inside["probe"].sum()) == int((data["probe"] & (data["topic"] == "chat")).sum())
    outside = inside["oracle"].where(~chat)
    assert int(outside.notnull().sum()) == 40, "labels stay, probes go"
    whole, part = calibrated(data), calibrated(inside)
    np.testing.assert_array_equal(part.slice.label, whole.slice.label)
    np.testing.assert_array_equal(part.slice.calibrator.value, whole.slice.calibrator.value)
    np.testing.assert_array_equal(
        held_out(part.slice, part.slice.z, part.slice.prompt),
        held_out(whole.slice, whole.slice.z, whole.slice.prompt),
    )
    shuffled = data.isel(prompt=np.random.default_rng(1).permutation(90))
    again = restrict(shuffled, {"topic": "chat"})
    xr.testing.assert_equal(direct.estimate(again)["estimate"], direct.estimate(inside)["estimate"])


def test_logged_responses_of_other_prompts_carry_no_weight():
    rng = np.random.default_rng(2)
    logp = -rng.random((2, 90)) - 5
    judge = rng.random(90)
    logged = {"logp_target": logp, "logp_logger": logp[0], "logged_judge": judge, "logged_oracle": judge}
    inside = restrict(world(logged=logged), {"topic": "chat"})
    used = snips.estimate(inside)["n_logged_used"]
    assert used.values.tolist() == [30, 30]
    assert int(inside["logged_judge"].notnull().sum()) == 30
    # where no fresh label teaches, those of logged responses do, wherever they lie
    silent = world(logged=logged)
    silent = silent.assign(
        oracle=silent["oracle"].where(silent["probe"]), labelled=silent["labelled"] & False
    ).assign_attrs(calibration_policy=[])
    inside = restrict(silent, {"topic": "chat"})
    assert int(inside["logged_oracle"].notnull().sum()) == 90
    assert snips.estimate(inside)["n_logged_used"].values.tolist() == [30, 30]


def test_what_is_there_is_not_read_again():
    data = world()
    assert add_groups(data, ["topic"], "no such file") is data
