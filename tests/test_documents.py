"""Names in documents and docstrings exist, and the snippets of README run."""

import ast
import importlib
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import typer
from matplotlib import pyplot as plt

import cje_core
from cje_core.io.files import read
from studies.cli.app import app, main
from studies.ledger.claim import VERDICTS

ROOT = Path(cje_core.__file__).parents[1]
DOCUMENTS = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *sorted(
        path
        for folder in ("", "claims", "guide", "project")
        for path in (ROOT / "docs" / folder).glob("*.md")
    ),
]
DECISIONS = ROOT / "docs" / "decisions.md"
NAME = re.compile(r"`((?:cje_core|cje_sim|studies)(?:\.[A-Za-z_]+)+)`")
PLACE = re.compile(r"`((?:cje_core|cje_sim|studies|tests)/[\w/.]+)`")


def texts():
    packages = ("cje_core", "cje_sim", "studies", "tests")
    sources = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    return [*DOCUMENTS, *sources]


def exists(name):
    parts = name.replace("cje_core.az.", "arviz.").split(".")
    for k in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:k]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[k:]:
            found = getattr(found, attribute, None)
        return found is not None
    return False


def test_every_name_in_backticks_exists():
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in texts()
        for name in NAME.findall(path.read_text(encoding="utf-8"))
        if not exists(name)
    }
    assert not missing
    assert not exists("cje_core.estimators.no_such") and not exists("cje_core.no_such.thing")


def test_every_place_in_backticks_exists():
    missing = {
        f"{path.relative_to(ROOT)}: {place}"
        for path in DOCUMENTS
        for place in PLACE.findall(path.read_text(encoding="utf-8"))
        if not (ROOT / place).exists() and "<" not in place
    }
    assert not missing


@pytest.mark.slow
def test_what_nothing_calls_is_for_users_and_documented():
    """A public function that no module uses stands in README, or in another module as a reference or an example."""
    texts_of = {
        path: path.read_text(encoding="utf-8")
        for path in texts()
        if path.relative_to(ROOT).parts[0] != "tests"
    }
    modules = {path: ast.parse(text) for path, text in texts_of.items() if path.suffix == ".py"}
    nodes = [node for tree in modules.values() for node in ast.walk(tree)]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    used |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    place, taken = r"(?<=[a-z_])\.([A-Za-z_]\w*)", r">>> from [\w.]+ import (\w+)"
    named = {path: {*re.findall(place, text), *re.findall(taken, text)} for path, text in texts_of.items()}
    silent = []
    for path, tree in modules.items():
        silent += [
            f"{path.relative_to(ROOT)}: {node.name}"
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            and not node.name.startswith("_")
            and node.name not in used
            and not any(  # of the command line, or a measure, which is asked for by its name
                re.search(r"command|^measure\(", ast.unparse(how)) for how in node.decorator_list
            )
            and not any(node.name in found for other, found in named.items() if other != path)
        ]
    assert not silent


def test_the_table_of_the_readme_names_what_exists():
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("| What for | Where |")[1].split("\n\n")[0]
    names = re.findall(r"`((?:[a-z_]+\.){1,3}[a-z_]+)`", table)
    assert len(names) > 20 and [name for name in names if not exists(f"cje_core.{name}")] == []


def test_history_is_told_in_one_place():
    """Docstrings say what is; what was tried and left has a date, in docs/decisions.md."""
    told = re.compile(r"\b[Tt]ried\s+and\s+worse|\(Tried\b|\bwas tried\b")
    sources = [
        path for path in texts() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] != "tests"
    ]
    assert [path.name for path in sources if told.search(path.read_text(encoding="utf-8"))] == []
    paragraphs = DECISIONS.read_text(encoding="utf-8").strip().split("\n\n")[2:]
    assert paragraphs and all(re.match(r"\*\*\d{4}-\d\d-\d\d, .+\*\* \(`", text) for text in paragraphs)


def snippets():
    """Blocks of Python in README."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_snippet_of_the_first_screen_runs(capsys):
    exec(compile(snippets()[0], "README", "exec"), {})  # the block is ours
    assert "interval" in capsys.readouterr().out


def test_the_numbers_of_the_first_screen_are_those_of_the_page():
    """A value of the table by its column, and the sentence as the results wrote it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("## Two commands")[0]
    page = json.loads((ROOT / "docs/studies/interval_coverage.json").read_text(encoding="utf-8"))
    table = page["tables"][0]
    (row,) = (row for row in table["rows"] if row[:5] == ["smooth", "own", "value", "1000", "0.05"])
    head, _, numbers = (line.strip("| ").split(" | ") for line in re.findall(r"^\|.*\|$", text, re.MULTILINE))
    names = [name.strip("`") for name in head]
    assert len(names) == 3 and numbers == [row[table["columns"].index(name)] for name in names]
    (sentence,) = re.findall(r"\*(direct's [^*]*)\*", text)
    assert " ".join(sentence.split()) in {finding["sentence"] for finding in page["findings"]}


def test_the_first_snippet_of_the_readme_runs(arena, tmp_path, monkeypatch):
    (code,) = (code for code in snippets() if "cje_core.compare" in code)
    (tmp_path / "fresh_draws").symlink_to(arena / "fresh_draws")
    (tmp_path / "probe_slice").symlink_to(arena / "probe_slice")
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {}
    exec(compile(code, "README", "exec"), found)  # the block is ours
    assert found["both"].sizes["method"] == 2 and (found["both"].overlap > 0).any()
    plt.close("all")


def commands():
    """Lines of README that call ``cje-lab``, in order, without their comments."""
    inside, found = False, []
    for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines():
        inside ^= line.startswith("```")
        if inside and line.startswith("cje-lab "):
            found.append(line.split("#")[0].strip())
    return found


# Parts of commands that take hours, a cluster, or a file of the reader's own: these are held by tests of their own.
ELSEWHERE = ("--profile paper", "--mcse", "./my_study.py", "merge ", "solve ", "tf-cache ")


def test_every_command_of_readme_has_its_options():
    for line in commands():
        command = typer.main.get_command(app)
        words = line.split()[1:]
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line


@pytest.mark.slow
def test_the_commands_of_readme_run_one_after_the_other(arena, tmp_path, monkeypatch, capsys):
    """As printed, but for the profile: the quick one of a study takes minutes.

    And of the ledger, each of whose claims has a test of its own, one claim of each verdict in place of all.
    """
    for name in ("fresh_draws", "probe_slice"):
        (tmp_path / name).symlink_to(arena / name)
    lines = [line for line in commands() if not any(part in line for part in ELSEWHERE)]
    names = [
        "demo",
        "doctor",
        "analyze",
        "plan",
        "list",
        "protocol",
        "run",
        "status",
        "report",
        "plot",
        "replay",
        *["claims"] * 4,
        "bench",
    ]
    assert [line.split()[1] for line in lines] == names
    ledger = json.loads((ROOT / "docs" / "claims.json").read_text(encoding="utf-8"))["claims"]
    of_each_verdict = list({claim["verdict"]: claim["id"] for claim in ledger}.values())
    assert len(of_each_verdict) == len(VERDICTS)
    monkeypatch.chdir(tmp_path)
    for line in lines:
        words = shlex.split(line.replace("--profile quick", "--profile smoke"))[1:]
        if words[0] == "replay":
            words[-1] = "0"  # of a run of few replicates
        if words[0] == "claims" and "--at" not in words:
            words += ["--profile", "smoke"]
            words[1:1] = of_each_verdict if words[1].startswith("--") else []
        monkeypatch.setattr(sys, "argv", ["cje-lab", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        assert not ended.value.code and told.out, (line, told.out[-300:], told.err)
    assert (tmp_path / "out" / "forest.png").exists() and (
        tmp_path / "results" / "mine" / "report.html"
    ).exists()


def test_the_row_that_readme_shows_is_read(tmp_path):
    row = (ROOT / "README.md").read_text(encoding="utf-8").split("```json\n")[1].split("```")[0]
    (tmp_path / "base_responses.jsonl").write_text(row, encoding="utf-8")
    data, left_out = read(tmp_path)
    shown = json.loads(row)
    assert data["judge"].item() == shown["judge_score"] and data["oracle"].item() == shown["oracle_label"]
    assert data["prompt"].item() == shown["prompt_id"] and left_out.empty
