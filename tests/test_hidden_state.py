"""What is computed once is passed on: nothing in `cje_core` remembers data in hiding."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "cje_core"
# Whose objects are complete when made: no lazy attribute either.
COMPLETE = ("families/off_policy", "workflow/steps")
SCREENS = (
    "figures/style.py",
    "bayes/models/watching.py",
)  # tell where figures and progress go, and hold no data
WEAK = {"WeakKeyDictionary", "WeakValueDictionary"}
LAZY = {"cached_property", "lru_cache", "cache"}
# What a function may be asked again for without another look: numbers and names, not data.
PLAIN = {"int", "str", "float", "bool", "bytes", "None", "tuple", "Callable", "ModuleType", "", "..."}


def hidden_state(text: str, *, complete: bool, screen: bool = False) -> list[str]:
    """Lines of a module that store what was computed elsewhere than in the object that is passed on."""
    lines = []
    for node in ast.walk(ast.parse(text)):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if name in WEAK or (complete and name in LAZY) or (name == "ContextVar" and not screen):
            lines.append(f"{node.lineno} {name}")
        if isinstance(node, ast.FunctionDef):
            lines += [f"{node.lineno} cache of {kind}" for kind in remembered(node)]
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "id":  # a key by identity: of an object that may be gone, and another in its place
                lines.append(f"{node.lineno} id()")
            if called.endswith(".put") and len(node.args) + len(node.keywords) > 1:  # a value under a key
                lines.append(f"{node.lineno} .put()")
    return lines


def remembered(function: ast.FunctionDef) -> list[str]:
    """Types of a cached function's arguments that are no numbers and names."""
    marks = [
        ast.unparse(mark).removeprefix("functools.").partition("(")[0] for mark in function.decorator_list
    ]
    if not {"cache", "lru_cache"} & set(marks):
        return []
    given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    types = ["" if one.annotation is None else ast.unparse(one.annotation) for one in given]
    return [kind for kind in types if not set(re.split(r"[\[\], |]+", kind)) <= PLAIN]


def hidden_states(root: Path) -> list[str]:
    """Every such line below a folder, as "file:line what"."""
    found = []
    for path in sorted(root.rglob("*.py")):
        where = path.relative_to(root).as_posix()
        how = {"complete": where.startswith(COMPLETE), "screen": where in SCREENS}
        found += [f"{where}:{line}" for line in hidden_state(path.read_text(encoding="utf-8"), **how)]
    return found


def test_nothing_is_remembered_in_hiding():
    assert all((ROOT / place).exists() for place in (*COMPLETE, *SCREENS))
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
        ("calibration/x.py", "@lru_cache(maxsize=1)\ndef f(rows: Rows, n: int): ...", "cache of Rows"),
        ("data/x.py", "HELD = contextvars.ContextVar('held')", "ContextVar"),
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
