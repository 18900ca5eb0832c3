"""What is computed once is passed on: no object of the estimators' families or of the run steps remembers in hiding."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "cje_core"
FOLDERS = ("families", "workflow/steps")
COMPLETE = (
    "families/off_policy",
    "workflow/steps",
)  # whose objects are complete when made: no lazy attribute either
WEAK = {"WeakKeyDictionary", "WeakValueDictionary", "ContextVar"}
LAZY = {"cached_property", "lru_cache", "cache"}


def hidden_state(text: str, *, complete: bool) -> list[str]:
    """Lines of a module that store what was computed elsewhere than in the object that is passed on."""
    lines = []
    for node in ast.walk(ast.parse(text)):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if name in WEAK or (complete and name in LAZY):
            lines.append(f"{node.lineno} {name}")
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "id":  # a key by identity: of an object that may be gone, and another in its place
                lines.append(f"{node.lineno} id()")
            if called.endswith(".put") and len(node.args) + len(node.keywords) > 1:  # a value under a key
                lines.append(f"{node.lineno} .put()")
    return lines


def hidden_states(root: Path) -> list[str]:
    """Every such line of the folders, as "file:line what"."""
    return [
        f"{where}:{line}"
        for folder in FOLDERS
        for path in sorted((root / folder).rglob("*.py"))
        for where in [path.relative_to(root).as_posix()]
        for line in hidden_state(path.read_text(encoding="utf-8"), complete=where.startswith(COMPLETE))
    ]


def test_nothing_is_remembered_in_hiding():
    assert all((ROOT / folder).is_dir() for folder in (*FOLDERS, *COMPLETE))
    assert hidden_states(ROOT) == []


@pytest.mark.parametrize(
    ("where", "line", "what"),
    [
        ("families/x.py", "_LOGS: WeakKeyDictionary[object, int] = WeakKeyDictionary()", "WeakKeyDictionary"),
        ("families/x.py", "_LOGS = weakref.WeakKeyDictionary()", "WeakKeyDictionary"),
        ("families/direct/x.py", "rows = {}\nrows[id(z)] = 1", "id()"),
        ("families/x.py", "rows.setdefault(id(term.labels), {})", "id()"),
        ("workflow/steps/x.py", "logs.put(('member', name, p), value)", ".put()"),
        ("families/x.py", "logs.put(key=1, made=2)", ".put()"),
        (
            "families/off_policy/x.py",
            "class A:\n    @cached_property\n    def b(self): ...",
            "cached_property",
        ),
        ("workflow/steps/x.py", "@functools.lru_cache\ndef f(): ...", "lru_cache"),
    ],
)
def test_a_planted_one_is_seen(tmp_path, where, line, what):
    path = tmp_path / where
    path.parent.mkdir(parents=True)
    path.write_text(line, encoding="utf-8")
    found = hidden_states(tmp_path)
    assert found and all(one.startswith(f"{where}:") and one.endswith(what) for one in found)


def test_queues_and_names_that_look_alike_pass():
    assert hidden_state("queue.put(1)\ngrid(3)\nrow.id\ncache_size = 2", complete=True) == []
