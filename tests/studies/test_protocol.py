"""The protocol is fixed before a run: its digest in the manifest, departures found afterwards. The crate beside it."""

import getpass
import hashlib
import json
import re
import socket
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import toy_study

from studies.cli import app as command_line
from studies.engine import blocks, run
from studies.engine import protocol as _protocol
from studies.engine import study as studies_engine
from studies.engine.outcome import NOT_RUN
from studies.engine.running import crate as _crate
from studies.engine.running import directory, shards
from studies.engine.study import Method, Profile, Protocol, StudyError

ANSWERS = Protocol(
    "by hand", "for an MCSE of 4 points", "a failure is a miss", "coverage of z", "three points"
)
TOY = replace(toy_study.STUDY, protocol=ANSWERS)


def go(out, study=TOY, profile="smoke", **options):
    return run.run_study(study, profile=profile, out=out, **options).directory


@pytest.fixture
def toy(monkeypatch):
    """Results are those of this toy: what `now` is set to."""
    now = {"study": TOY}
    monkeypatch.setattr(directory, "load", lambda name: now["study"])
    return now


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The smoke run of the toy, as planned."""
    return go(tmp_path_factory.mktemp("plain"))


def test_the_protocol_says_everything_before_a_run():
    text, digest = _protocol.protocol(TOY, "quick", 7)
    again, same = _protocol.protocol(TOY, "quick", 7)
    assert (text, digest) == (again, same)
    for piece in (
        "Check the runner.", "Normal means.", "| world | plain, crash |", "| n | 4, 16 |", "4 cells.", "zero, one",
        "| short | half width | as it comes |", "Bias & coverage.", "25 in each of 4 cells", "seed 7", digest,
        *ANSWERS, *_protocol.QUESTIONS.values(), "cje-lab run toy_study --profile quick --seed 7",
    ):  # fmt: skip
        assert piece in text, piece
    mcse = 100 * np.sqrt(0.95 * 0.05 / 25)
    assert f"{mcse:.2f} points" in text and f"{mcse:.2f}" == "4.36"
    unanswered, _ = _protocol.protocol(toy_study.STUDY, "quick")
    assert unanswered.count(_protocol.NOT_STATED) == len(Protocol._fields)
    fewer = replace(TOY, profiles={**TOY.profiles, "quick": Profile(25, without=("none",))})
    assert "Left out at this profile: none." in _protocol.protocol(fewer, "quick")[0]


@pytest.mark.parametrize(
    "change",
    [
        {"aims": "Another aim."},
        {"protocol": ANSWERS._replace(relevant="four points")},
        {"ci_prob": 0.9},
        {"methods": {**TOY.methods, "z": Method("exact", options={"sleep": 0.0})}},
        {"factors": {"world": ("plain",), "n": (4, 16)}},
        {"profiles": {**TOY.profiles, "quick": Profile(26)}},
    ],
)
def test_the_digest_tells_protocols_apart(change):
    digest = _protocol.protocol(TOY, "quick")[1]
    assert _protocol.protocol(replace(TOY, **change), "quick")[1] != digest
    assert _protocol.protocol(TOY, "quick", 2)[1] != digest


def test_a_run_keeps_the_digest_of_its_protocol_from_the_start(plain):
    manifest = json.loads((plain / "manifest.json").read_text())
    assert manifest["runs"][0]["protocol"]["digest"] == _protocol.protocol(TOY, "smoke")[1]

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(run.InterruptedRunError):
        go(plain.parent / "stopped", log=run.Log(track=stop))
    stopped = json.loads((plain.parent / "stopped/toy_study/manifest.json").read_text())
    assert stopped["runs"][0]["protocol"] == manifest["runs"][0]["protocol"]


def test_a_run_as_planned_has_no_deviations(plain, toy):
    assert _protocol.deviations(plain) == []


@pytest.mark.slow
def test_deviations_are_listed(tmp_path, toy):
    def found(out, **options):
        return _protocol.deviations(go(tmp_path / out, **options))

    lines = found("levels", levels={"n": [4, 9]})
    assert lines == [
        "levels of n were set by hand: 4, 9; planned were 4, 16",
        "2 of 4 planned cells were not run, the first world=plain, n=16",
        "2 cells were run beyond the 4 planned",
    ]
    (line,) = found("precise", mcse=0.1)
    assert re.fullmatch(
        r"more replicates than the planned 10 in 4 cells: \d+( to \d+)? \(until the MCSE of every coverage was 0.1\)",
        line,
    )
    large = go(tmp_path / "both", profile="quick")
    go(tmp_path / "both")
    assert _protocol.deviations(large) == [
        "the results hold replicates of runs with another protocol (profile quick)",
        "more replicates than the planned 10 in 4 cells: 25",
    ]


@pytest.mark.slow
def test_noisier_cells_get_more_replicates_and_that_is_no_deviation(tmp_path, toy):
    """In a run, in shards and their merge; what is told before the run says so."""
    noisier = replace(TOY, profiles={**TOY.profiles, "smoke": Profile(10, more=[({"n": 16}, 20)])})
    toy["study"] = noisier
    there = go(tmp_path / "whole", noisier)
    ds = blocks.read_results(there / "results.nc")
    ran = (ds["status"] != NOT_RUN).any(["method", "policy"]).sum("replicate")
    assert ran.sel(n=4).values.tolist() == [10, 10] and ran.sel(n=16).values.tolist() == [20, 20]
    last = json.loads((there / "manifest.json").read_text())["runs"][-1]
    assert (last["replicates"], last["asked"]) == (20, 60)
    assert _protocol.deviations(there) == []
    for number in (1, 2):
        shard = go(tmp_path / "parts", noisier, shard=run.Shard(number, 2))
    shards.merge([shard], shard)
    joined = blocks.read_results(shard / "results.nc")
    assert joined.drop_vars("seconds").equals(ds.drop_vars("seconds"))
    text, _ = _protocol.protocol(noisier, "smoke")
    assert "10 in each of 4 cells, 20 where n=16." in text and "points at most." in text
    toy["study"] = TOY  # a study that asks for fewer, or more, today
    shards.merge([shard], shard)
    toy["study"] = replace(TOY, profiles={**TOY.profiles, "smoke": Profile(30)})
    shards.merge([shard], shard)
    toy["study"] = noisier
    as_planned = json.loads((there / "manifest.json").read_text())
    as_planned["runs"][-1]["protocol"]["more"] = []
    (there / "manifest.json").write_text(json.dumps(as_planned))
    assert _protocol.deviations(there)[0] == "more replicates than the planned 10 in 2 cells: 20"


def test_what_changed_since_is_listed(plain, toy):
    toy["study"] = replace(TOY, aims="Another aim.", protocol=None)
    assert _protocol.deviations(plain) == [
        "the text of the protocol changed since the run: aims, origin, replicates, failures, primary, relevant",
        f"the study does not answer: {' '.join(_protocol.QUESTIONS.values())}",
    ]
    toy["study"] = replace(TOY, methods={**TOY.methods, "more": Method("another")}, ci_prob=0.9)
    assert _protocol.deviations(plain)[:2] == [
        "methods of the study left out at profile smoke: more",
        "the definition changed since the run: ci_prob, methods",
    ]


def test_changed_code_and_lost_replicates_are_listed(tmp_path, toy):
    there = go(tmp_path, study=TOY)
    path = there / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["definition"]["code"]["toy_study.py"] = "0" * 16
    manifest["runs"][0]["protocol"]["replicates"] = 12
    manifest["runs"][0]["finished"] = None
    path.write_text(json.dumps(manifest))
    assert _protocol.deviations(there) == [
        "the last run did not finish",
        "fewer replicates than the planned 12 in 4 cells: 10",
        "code changed since the run: toy_study.py",
    ]
    del manifest["runs"][0]["protocol"]
    path.write_text(json.dumps(manifest))
    assert _protocol.deviations(there) == ["the run kept no protocol; it was made by an older version"]
    (there / "results.nc").unlink()
    with pytest.raises(StudyError, match="no merged results yet"):
        _protocol.deviations(there)


@pytest.mark.parametrize("name", studies_engine.available())
def test_our_studies_state_their_protocol(name):
    study = studies_engine.load(name)
    assert study.protocol is not None and all(len(answer) > 20 for answer in study.protocol)


def test_the_command_writes_it_and_never_over_another(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(studies_engine, "load", lambda name: TOY)

    def say(*words):
        monkeypatch.setattr(sys, "argv", ["cje-lab", "protocol", "toy_study", *map(str, words)])
        with pytest.raises(SystemExit) as exit_:
            command_line.main()
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    text, digest = _protocol.protocol(TOY, "paper", 3)
    options = ("--profile", "paper", "--seed", 3)
    assert say(*options) == (0, text, "")
    path = tmp_path / "deep/protocol.md"
    code, out, _ = say(*options, "--out", path)
    assert code == 0 and digest in out and path.read_text() == text
    code, out, _ = say(*options, "--out", path, "--json")
    assert code == 0 and json.loads(out)["digest"] == digest  # the same text once more is no harm
    code, out, err = say("--out", path)
    assert (code, out) == (2, "") and "holds another text" in err and len(err.splitlines()) == 1
    assert path.read_text() == text
    (tmp_path / "file").write_text("")
    code, _, err = say("--out", tmp_path / "file/protocol.md")
    assert code == 2 and "cannot write" in err and len(err.splitlines()) == 1
    code, _, err = say("--profile", "huge")
    assert code == 2 and "unknown profile 'huge'" in err


def entities(there):
    found = json.loads((there / _crate.NAME).read_text())
    graph = {one["@id"]: one for one in found["@graph"]}
    assert len(graph) == len(found["@graph"])  # ids are unique
    return found, graph


def references(value):
    """Ids that an entity points to."""
    if isinstance(value, dict):
        yield from [value["@id"]] if set(value) == {"@id"} else references(list(value.values()))
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


def test_the_crate_describes_the_files_that_are_there(plain):
    found, graph = entities(plain)
    assert found["@context"][0] == "https://w3id.org/ro/crate/1.1/context"
    about = graph["ro-crate-metadata.json"]
    assert about["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.1"} and about["about"] == {"@id": "./"}
    root = graph["./"]
    assert root["@type"] == "Dataset" and {"name", "description", "datePublished", "license"} <= set(root)
    datetime.fromisoformat(root["datePublished"])
    files = {one["@id"] for one in graph.values() if one["@type"] == "File"}
    there = {p.relative_to(plain).as_posix() for p in plain.rglob("*") if p.is_file()}
    apart = {name for name in there - files if not name.startswith(("blocks/", ".run"))}
    assert apart == {"ro-crate-metadata.json"} and files <= there
    assert {one["@id"] for one in root["hasPart"]} == files | {"blocks/"}
    for name in files:
        content = (plain / name).read_bytes()
        assert graph[name]["sha256"] == hashlib.sha256(content).hexdigest()
        assert int(graph[name]["contentSize"]) == len(content)
    paths = sorted(p for p in there if p.startswith("blocks/"))
    lines = "".join(f"{hashlib.sha256((plain / p).read_bytes()).hexdigest()}  {p}\n" for p in paths)
    assert paths and graph["blocks/"]["sha256"] == hashlib.sha256(lines.encode()).hexdigest()
    outside = {"http://schema.org/CompletedActionStatus", "https://w3id.org/ro/crate/1.1"}
    for one in graph.values():
        pointed = set(references([value for key, value in one.items() if key != "@id"]))
        assert pointed - outside <= set(graph), one["@id"]


def test_the_crate_says_who_what_and_with_what(plain):
    manifest = json.loads((plain / "manifest.json").read_text())
    _, graph = entities(plain)
    cited = (Path(studies_engine.__file__).parents[2] / "CITATION.cff").read_text()
    (name,) = re.findall(r"- name: (.*)", cited)
    (creator,) = references(graph["./"]["creator"])
    assert graph[creator]["name"] == name and graph["./"]["license"] == {
        "@id": "https://spdx.org/licenses/MIT"
    }
    action = graph["#run-1"]
    assert action["@type"] == "CreateAction" and action["result"] == {"@id": "results.nc"}
    assert (action["startTime"], action["endTime"]) == tuple(
        manifest["runs"][0][k] for k in ("started", "finished")
    )
    given = {graph[one]["name"]: graph[one].get("value") for one in references(action["object"])}
    assert given["seed"] == 1 and given["profile"] == "smoke"
    assert given["protocol"] == manifest["runs"][0]["protocol"]["digest"]
    tools = {graph[one]["name"]: graph[one]["softwareVersion"] for one in references(action["instrument"])}
    assert tools == {k: v for k, v in manifest["versions"].items() if v != "not installed"}


def test_the_crate_names_no_person_machine_or_place(plain):
    text = (plain / _crate.NAME).read_text()
    private = {str(plain), str(plain.parent), str(Path.home()), socket.gethostname(), str(Path.cwd())}
    assert not [one for one in private if len(one) > 3 and one in text]
    assert getpass.getuser() == "root" or getpass.getuser() not in text
    assert not re.search(r"(?<![\w:/])/(home|tmp|work|Users)/", text)


def test_creators_of_all_kinds_are_read(tmp_path, monkeypatch):
    package = tmp_path / "studies/engine"
    package.mkdir(parents=True)
    monkeypatch.setattr(_crate, "__file__", str(package / "crate.py"))
    licence, creators = _crate.citation()  # no CITATION.cff: the package's metadata
    assert licence == "MIT" and creators[0]["name"] == "The cje-lab authors"
    (tmp_path / "CITATION.cff").write_text(
        "license: Apache-2.0\nauthors:\n  - given-names: Ada\n    family-names: Lovelace\n"
        "    orcid: https://orcid.org/0000-0000-0000-0000\n  - name: A group\ntitle: x\n"
    )
    licence, (person, group) = _crate.citation()
    assert licence == "Apache-2.0" and (person["@type"], person["name"]) == ("Person", "Ada Lovelace")
    assert person["@id"].startswith("https://orcid.org/") and group == {
        "@id": "#a-group", "@type": "Organization", "name": "A group",
    }  # fmt: skip


def test_shards_and_their_merge_have_a_crate_too(tmp_path, toy):
    for number in (1, 2):
        there = go(tmp_path, shard=run.Shard(number, 2))
        assert not (there / _crate.NAME).exists()
    shards.merge([there], there)
    _, graph = entities(there)
    assert {"shards/1-of-2.json", "shards/2-of-2.json", "results.nc"} <= set(graph) and "#run-2" in graph
    assert graph["manifest.json"]["sha256"] == _crate.of_file(there / "manifest.json")
    assert _protocol.deviations(there) == []
