"""What lies in a directory that is not one table of responses: files and directories that can be read by themselves."""

from pathlib import Path

from cje_core.data.contract import LARGEST
from cje_core.data.errors import DataError
from cje_core.io.files import read
from cje_core.io.intake.foreign import Asked
from cje_core.io.intake.raw import KINDS, kind_of, stem_of
from cje_core.workflow.reading.doctor import TABLE, Examined, examine, is_logged

PROBE = "_probe"  # ends the names of files of probes


def look_inside(path: Path, asked: Asked = Asked()) -> list[tuple[Path, Examined]]:  # noqa: B008
    """Each file or directory of a directory that can be analyzed, with what it is.

    Probes and logged responses are no data by themselves: where they are of the policies of a table beside them, they
    stand in its ``beside``.

    Parameters
    ----------
    path : Path
        A directory.
    asked : Asked
        Fields of policy and prompt in a table of scores.

    Returns
    -------
    list of (Path, Examined)
        In order of name.
    """
    held = [file for file in sorted(path.iterdir()) if not file.name.startswith(".")]
    extra = {"probes": [file for file in held if _is_probes(file)], "logged": [*filter(is_logged, held)]}
    rest = [file for file in held if not any(file in files for files in extra.values())]
    examined = [(file, examine(file, asked)) for file in rest]
    return [(file, _with(file, one, extra)) for file, one in examined if not one.problem]


def _is_probes(path: Path) -> bool:
    """Whether all files of a directory are named as probes are."""
    files = [file for file in path.iterdir() if kind_of(file) in KINDS] if path.is_dir() else []
    return bool(files) and all(stem_of(file).endswith(PROBE) for file in files)


def _with(file: Path, found: Examined, extra: dict[str, list[Path]]) -> Examined:
    """What can be read with the table, each by itself: a file of other policies cannot."""
    beside: dict[str, Path] = {}
    for option, files in extra.items() if found.what == TABLE else ():
        if len(files) == 1 and _readable(file, **{option: files[0]}):
            beside[option] = files[0]
    return found._replace(beside=beside)


def _readable(file: Path, **options: Path) -> bool:
    wide = -LARGEST, LARGEST
    try:
        read(file, judge_range=wide, oracle_range=wide, **options)  # type: ignore[arg-type]
    except DataError:
        return False
    return True
