"""What ``--out`` writes is whole or absent, replaces what is ours, and never what is another's."""

import errno
from pathlib import Path

import pytest
from analysis import Cli, world, write

from cje_core.data import DataError
from studies.cli.analysis import out

Held = dict[str, bytes]


def held(directory: Path) -> Held:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figures: what is written is what counts here."""
    monkeypatch.setattr("studies.cli.analysis.forest.render", lambda analysis: {"forest.png": b"drawn"})
    monkeypatch.setattr("studies.cli.analysis.panels.render_panels", lambda analysis, broken: {})


@pytest.mark.parametrize("name", ["index.html", "estimates.json", "ledger.nc", "forest.png"])
@pytest.mark.usefixtures("page")
def test_a_file_of_the_user_is_never_replaced(cli: Cli, tmp_path: Path, name: str) -> None:
    """Said before the work where every analysis writes that name, else after the table; nothing is written."""
    data, site = write(world(), tmp_path / "data"), tmp_path / "site"
    site.mkdir()
    (site / name).write_text("mine")
    code, shown, err = cli(data, "--out", site)
    assert code == 2 and err.startswith("cje-lab: ") and err.count("\n") == 1
    assert f"--out {site}: {name} there is not a file of ours" in err
    assert ("base" in shown) == (name == "forest.png") and held(site) == {name: b"mine"}


@pytest.mark.slow
@pytest.mark.usefixtures("page")
def test_a_second_run_replaces_its_own_and_spares_what_was_changed(cli: Cli, tmp_path: Path) -> None:
    data, site = write(world(), tmp_path / "data"), tmp_path / "site"
    assert cli(data, "--out", site)[0] == 0
    first = held(site)
    assert cli(data, "--out", site, "--margin", 0.2)[0] == 0
    assert held(site).keys() == first.keys() and held(site)["index.html"] != first["index.html"]
    (site / "index.html").write_text("edited by hand")
    code, shown, err = cli(data, "--out", site)
    assert code == 2 and not shown and "index.html there was changed since it was written" in err
    assert (site / "index.html").read_text() == "edited by hand"


def test_plans_and_audits_spare_the_files_of_others(cli: Cli, tmp_path: Path) -> None:
    data, site = write(world(), tmp_path / "data"), tmp_path / "site"
    site.mkdir()
    (site / "plan.json").write_text("mine")
    costs = ("--budget", 1000, "--cost-judge", 0.1, "--cost-oracle", 1)
    code, shown, err = cli(data, "--out", site, *costs, command="plan")
    assert code == 2 and not shown and "plan.json there is not a file of ours" in err


def test_commands_share_a_directory(tmp_path: Path) -> None:
    """Each takes away its own stale files, and may replace what another of them wrote."""
    out.write_files(tmp_path, {"a.txt": b"1", "both.txt": b"2"}, by="one")
    out.write_files(tmp_path, {"b.txt": b"3", "both.txt": b"4"}, by="two")
    out.write_files(tmp_path, {"c.txt": b"5"}, by="one")
    assert held(tmp_path).keys() == {"b.txt", "both.txt", "c.txt", out.LISTING}
    assert held(tmp_path)["both.txt"] == b"4"


def test_a_stale_file_that_was_changed_stays(tmp_path: Path) -> None:
    out.write_files(tmp_path, {"a.txt": b"1", "b.txt": b"2"}, by="one")
    (tmp_path / "b.txt").write_bytes(b"notes")
    out.write_files(tmp_path, {"a.txt": b"3"}, by="one")
    assert held(tmp_path)["b.txt"] == b"notes"


def test_a_run_that_dies_between_two_moves_leaves_files_that_are_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out.write_files(tmp_path, {"a.txt": b"1", "b.txt": b"2"}, by="one")
    replace = Path.replace

    def dies(self: Path, target: Path) -> Path:
        if Path(target).name == "b.txt":
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        out.write_files(tmp_path, {"a.txt": b"3", "b.txt": b"4"}, by="one")
    monkeypatch.undo()
    assert {name: held(tmp_path)[name] for name in ("a.txt", "b.txt")} == {"a.txt": b"3", "b.txt": b"2"}
    out.write_files(tmp_path, {"a.txt": b"5", "b.txt": b"6"}, by="one")
    assert held(tmp_path)["b.txt"] == b"6"


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what stood there stays as it was."""
    out.write_files(tmp_path, {"a.txt": b"old"}, by="one")
    before, write_bytes, count = held(tmp_path), Path.write_bytes, []

    def full(self: Path, content: bytes) -> int:
        count.append(self)
        if len(count) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_bytes(self, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(DataError, match="no space left on device; name another directory"):
        out.write_files(tmp_path, {"a.txt": b"new", "b.txt": b"new"}, by="one")
    with pytest.raises(DataError):
        count[:] = [tmp_path]
        out.write_files(tmp_path / "deep" / "er", {"a.txt": b"new"}, by="one")
    monkeypatch.undo()
    assert held(tmp_path) == before and not (tmp_path / "deep").exists()


@pytest.mark.parametrize("text", ["[1]", "{", '{"one": 3}', '{"one": {"../x.txt": ["a"], "a.txt": 1}}'])
def test_a_list_that_is_not_one_makes_nothing_ours(tmp_path: Path, text: str) -> None:
    (tmp_path / out.LISTING).write_text(text)
    (tmp_path / "a.txt").write_text("mine")
    with pytest.raises(DataError, match=r"a\.txt there is not a file of ours"):
        out.write_files(tmp_path, {"a.txt": b"new"}, by="one")
    assert held(tmp_path)["a.txt"] == b"mine"
