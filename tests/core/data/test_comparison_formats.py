"""Comparisons of two models in files of AlpacaEval, Arena-Hard and the Chatbot Arena: values by hand, and refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
from user_files import agree, as_csv, of, refuse, write

from cje_core.data.files import read
from cje_core.data.intake.foreign import foreign
from cje_core.workflow.reading.doctor import examine

Record = dict[str, Any]


def said(found: Record) -> str:
    return " | ".join(found["left out"]["reason"])


def alpaca(preferences: list[Any], model: str = "m", annotator: str = "judge", **more: Any) -> list[Record]:
    return [
        {"instruction": f"Write {k}.", "output_1": "a", "generator_1": "ref", "output_2": f"b{k}", "generator_2": model,
         "annotator": annotator, "preference": value} | more for k, value in enumerate(preferences)
    ]  # fmt: skip


def as_json(path: Path, records: list[Record], indent: int | None = 2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(records, indent=indent))
    return path


def test_alpaca_eval_preferences_are_wins_of_the_second(tmp_path: Path) -> None:
    path = as_json(tmp_path / "annotations.json", alpaca([1, 2, 1.5, 0, 1.75, None]))
    found = of(path)
    assert found["m"][0] == [0, 1, 0.5, 0.5, 0.75] and said(found) == "ungraded: judge gave no number"
    assert agree(path) == ""
    rated = alpaca([1, 2, 1.25], annotator="gpt") + alpaca([2, 2], annotator="human")
    path = as_json(tmp_path / "two.json", rated)
    assert of(path, "gpt", "human")["m"] == ([0, 1, 0.25], [1, 1, None])
    as_json(tmp_path / "d" / "m" / "annotations.json", alpaca([2, 2]))
    as_json(tmp_path / "d" / "n" / "annotations.json", alpaca([1, 2], model="n"))
    data, _ = read(foreign(tmp_path / "d"))
    assert dict(data.sizes) == {"policy": 2, "prompt": 2, "draw": 1}


def test_alpaca_eval_4_the_leaderboard_beside_is_compared(tmp_path: Path) -> None:
    path = as_json(tmp_path / "annotations.json", alpaca([1, 2, 1.5, 2]))
    board = tmp_path / "leaderboard.csv"
    board.write_text(",win_rate,standard_error\nother,10,1\nm,62.5,1\n")
    assert "win_rate" not in said(of(path) | {})
    board.write_text(",win_rate,standard_error\nother,10,1\nm,75,1\n")
    assert (
        "win_rate in leaderboard.csv of judge in the file is 0.750, the mean of the 4 grades read 0.625"
        in said(of(path))
    )


def test_alpaca_eval_refuses_what_has_no_one_meaning(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for bad, word in ((3, "3"), ("m", "'m'"), (True, None), (-1, "-1")):
        if word is not None:
            refuse(lambda bad=bad: of(as_json(path, alpaca([1, bad]))), "row 2", f"preference is {word}")  # type: ignore[misc]
    assert "no preference is above 1" in said(of(as_json(path, alpaca([1, 0, 0, 1]))))
    other = [*alpaca([1]), alpaca([1, 2])[1] | {"generator_1": "gpt4"}]
    refuse(
        lambda: of(as_json(path, other)),
        "row 2",
        "the reference is 'gpt4', and 'ref'",
        "give the files of one",
    )
    refuse(lambda: of(as_json(path, alpaca([1]) * 2)), "row 2", "judge annotated this output", "keep one")
    refuse(lambda: of(path, policy="generator_1"), "it names the reference")
    table = alpaca([1, 2])
    del table[1]["generator_2"]
    refuse(lambda: of(as_json(path, table)), "row 2", "generator_2 is missing", "name the policy")
    two = alpaca([1, 2], temperature=0) + [r | {"output_2": "c"} for r in alpaca([2, 2], temperature=1)]
    refuse(
        lambda: of(as_json(path, two)), "temperature tells responses of one policy and prompt apart (0, 1)"
    )
    assert of(path, policy="temperature")["1"][0] == [1, 1]
    as_json(tmp_path / "d" / "1.json", alpaca([1, 2]))
    as_json(tmp_path / "d" / "2.json", [r | {"output_2": "c"} for r in alpaca([2, 2])])
    refuse(lambda: of(tmp_path / "d"), "2.json, row 1", "two runs")


def games(first: Any, second: Any) -> list[Any]:
    return [{"score": verdict, "judgment": "", "user_prompt": ""} for verdict in (first, second)]


def hard(
    verdicts: list[tuple[Any, Any]], key: str = "question_id", judge: str = "gpt", **more: Any
) -> list[Record]:
    return [
        {key: f"q{k}", "model": "m", "judge": judge, "games": games(*pair)} | more
        for k, pair in enumerate(verdicts)
    ]


@pytest.mark.parametrize(
    ("key", "more"), [("question_id", {}), ("uid", {"baseline": "o3", "category": "hard_prompt"})]
)
def test_arena_hard_swaps_the_second_game(tmp_path: Path, key: str, more: Record) -> None:
    """The baseline is A in the first game and B in the second; a large win is one win of the response."""
    verdicts = [("A>>B", "B>A"), ("B>A", "A>B"), ("A=B", "B<A"), ("B>>A", "B>A"), ("A>B", "A=B")]
    found = of(write(tmp_path / "m.jsonl", hard(verdicts, key, **more)))
    assert found["m"][0] == [0, 1, 0.75, 0.5, 0.25]
    # Games of weight 3: the loss of q0 and the win of q3. (1 + 1 + .5 + 1 + 3 + .5) / (3 + 1 + 8 - 2 + 3 + 1)
    assert "mean of m by gpt is 0.500, and 0.500 where" not in said(found)
    lopsided = hard([("B>>A", "B>A"), ("A>B", "B>A")], key, **more)
    # Games 1 (three times), 0, 0, 0: 1/4 and 3/6.
    assert "mean of m by gpt is 0.250, and 0.500 where a large win counts three times" in said(
        of(write(tmp_path / "n.jsonl", lopsided))
    )


def test_arena_hard_4_a_game_without_a_verdict_is_no_full_win(tmp_path: Path) -> None:
    path = write(tmp_path / "m.jsonl", hard([("B>A", None), ("B>A", "A>B"), (None, None)]))
    found = of(path)
    assert (
        found["m"][0] == [1] and found["left out"]["reason"].tolist() == ["ungraded: gpt gave no number"] * 2
    )
    table = hard([("B>A", "A>B")] * 2, "uid", baseline="o3")
    table[0]["games"][1] = None
    assert of(write(tmp_path / "n.jsonl", table))["m"][0] == [1] and agree(path) == ""


def test_arena_hard_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    pair = ("A>B", "B>A")
    refuse(lambda: of(write(path, hard([pair, ("A>B", "A is better")]))), "row 2", "verdict 'A is better'")
    table = hard([pair] * 2)
    table[1]["games"].pop()
    refuse(lambda: of(write(path, table)), "row 2", "1 games", "has two")
    refuse(lambda: of(write(path, hard([pair]) * 2)), "row 2", "gpt judged 'm' on 'q0'", "keep one")
    two = hard([pair], baseline="o3") + hard([pair], baseline="o4", judge="claude")
    refuse(lambda: of(write(path, two), "gpt"), "row 2", "the baseline is 'o4', and 'o3'")
    refuse(
        lambda: of(write(path, [{"question_id": None} | hard([pair])[0] | {"question_id": None}])),
        "question_id is missing",
    )
    mixed = hard([pair], category="creative_writing") + [
        r | {"question_id": "z"} for r in hard([pair], category="math")
    ]
    assert "questions of creative_writing, math are in one mean" in said(of(write(path, mixed)))
    both = hard([("B>A", "A>B")] * 3) + hard([pair], judge="people")
    assert of(write(path, both), "gpt", "people")["m"] == ([1, 1, 1], [0, None, None])


def battles(winners: list[int], **more: list[Any]) -> list[Record]:
    """Battles of x and y by the place of the winner: 0 the first, 1 the second, 2 a tie."""
    table = [{"id": 10 + k, "model_a": "xy"[k % 2], "model_b": "yx"[k % 2], "prompt": f'["p{k // 2}"]',
              "response_a": '["one two", "three"]', "response_b": '["four", null]',
              "winner_model_a": int(w == 0), "winner_model_b": int(w == 1), "winner_tie": int(w == 2)}
             for k, w in enumerate(winners)]  # fmt: skip
    return [r | {name: values[k] for name, values in more.items()} for k, r in enumerate(table)]


def test_battles_have_votes_of_people_as_labels(tmp_path: Path) -> None:
    path = as_csv(tmp_path / "train.csv", battles([0, 0, 1, 2]))
    found = of(path)
    assert found["x"][0] == [1, 0, 0, 0.5] and found["y"][0] == [0, 1, 1, 0.5]
    assert "the votes are of people, and no judge is in the file" in said(found)
    path = as_csv(tmp_path / "judged.csv", battles([0, 0, 1, 2], p_llm=[0.75, 0.5, "", 0.25]))
    found = of(path, "p_llm", "human")
    assert found["x"] == ([0.75, 0.5, 0.75], [1, 0, 0.5]) and found["y"] == ([0.25, 0.5, 0.25], [0, 1, 0.5])
    assert (examine(path).judge, examine(path).oracle) == ("p_llm", "human") and agree(path) == ""
    data, _ = read(foreign(path, judge="p_llm"), covariates=["response_length"])
    assert data.covariate.sel(policy="x", prompt="10").values.ravel().tolist() == [
        3.0
    ]  # turns of one response
    assert data.cluster.sel(prompt="10") == data.cluster.sel(prompt="11")


def test_battles_refuse_rows_without_one_winner(tmp_path: Path) -> None:
    def battle(**change: Any) -> Path:
        return as_csv(tmp_path / "x.csv", [battles([0, 1])[0], battles([0, 1])[1] | change])

    refuse(
        lambda: of(battle(winner_tie=1)),
        "row 3",
        "winner_model_b '1', winner_tie '1'",
        "one of the three is 1",
    )
    refuse(lambda: of(battle(winner_model_b=0)), "row 3", "one of the three is 1")
    refuse(lambda: of(battle(winner_model_b=0.4, winner_tie=0.6)), "row 3", "one of the three is 1")
    refuse(lambda: of(battle(winner_model_b="")), "row 3", "one of the three is 1")
    refuse(lambda: of(battle(model_b="y")), "row 3", "compared with itself")
    refuse(lambda: of(battle(model_b="")), "row 3", "model_b is missing")
    refuse(lambda: of(battle(id=10)), "row 3", "battle '10' is already in")
    refuse(lambda: of(battle(), policy="model_a"), "leave it out")
    refuse(
        lambda: of(as_csv(tmp_path / "y.csv", battles([0, 1], size=[1, 7]))),
        "row 3",
        "size is 7",
        "in [0, 1]",
    )
    refuse(
        lambda: of(as_csv(tmp_path / "z.csv", battles([0, 1], lang=["en", "de"]))),
        "lang is 'en'",
        "judge's number",
    )
