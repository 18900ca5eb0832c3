"""A machine that has never run us: empty or unwritable homes, and warnings that are errors.

A home changes where each dependency keeps what it compiled, whatever the model: so every engine of NUTS compiles and
samples a model of one number in both homes, with every warning an error; what they say of our models is held by the
tests of those, in which warnings are errors too. PyTensor keeps what it compiles in the home: its own C, here without
optimisation, by a flag that a user may set and `caches.redirect` keeps, and models by numba. What numba compiles of
ours is kept with the package, or where `NUMBA_CACHE_DIR` says, in whatever home.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from user_files import rows, write

from cje_core import caches

CACHES = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "PYTENSOR_FLAGS")


def environment(home: str) -> dict[str, str]:
    """Environment of this process with another home and no cache of its own."""
    own = {"HOME": home, "COLUMNS": "100", "PYTENSOR_FLAGS": "gcc__cxxflags=-O0"}
    return {k: v for k, v in os.environ.items() if k not in CACHES} | own


def python(words: list[str], home: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *words], env=environment(home), capture_output=True, text=True, check=False
    )


def quietly(words: list[str], home: str) -> str:
    """What Python prints, once it has ended well and said nothing of a warning."""
    done = python(words, home)
    assert done.returncode == 0, done.stderr
    assert not re.search("warn|traceback|cache dir", done.stderr, re.IGNORECASE), done.stderr
    return done.stdout


@pytest.fixture(params=["empty", "unwritable"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "empty":
        (tmp_path / "home").mkdir()
        return str(tmp_path / "home")
    (tmp_path / "file").touch()
    return str(tmp_path / "file" / "home")  # below a file no directory can be made, not even by root


@pytest.mark.slow
def test_the_first_analysis_shows_no_warning(home: str, tmp_path: Path) -> None:
    taught = [row | ({"oracle_label": i % 5 / 5} if i < 40 else {}) for i, row in enumerate(rows(n=60))]
    write(tmp_path / "data" / "base_responses.jsonl", taught)
    write(tmp_path / "data" / "other_responses.jsonl", rows(n=60))
    words = ["analyze", str(tmp_path / "data"), "--bayes", "--out", str(tmp_path / "out"), "--json"]
    found = quietly(["-W", "error::FutureWarning", "-m", "studies", *words], home)
    assert json.loads(found)["policies"]["base"]["estimates"]["bayes_direct"]["estimate"] is not None


# one process, as imports are most of each command; every worker of the study is another
STUDY_AND_REPORT = """
import sys
from studies.__main__ import main

out = sys.argv[1]
for words in (["run", "cle_bound", "--profile", "smoke", "--jobs", "2", "--out", out], ["report", out]):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as left:
        assert not left.code, words
"""


@pytest.mark.slow
def test_the_first_study_and_its_report_show_no_warning(home: str, tmp_path: Path) -> None:
    quietly(["-c", STUDY_AND_REPORT, str(tmp_path / "out")], home)
    assert (tmp_path / "out" / "report.html").exists()


FITS = """
import logging
import numpy as np
from cje_core import figures
from cje_core.bayes.models import nuts
from cje_core.bayes.models.engines import pm
from cje_core.bayes.models.specification import Specification
from cje_core.data import from_arrays
from cje_core.estimators import bayes_direct
from pytensor import config

rng = np.random.default_rng(1)
s = rng.random((2, 60)).round(1)
y = np.where(np.arange(60) < 30, np.clip(s + rng.normal(0, .1, s.shape), 0, 1), np.nan)
out = bayes_direct.estimate(from_arrays(s, policies=["a", "b"], oracle=y), rng=1)
assert np.isfinite(out.estimate).all()
logging.getLogger("pymc").setLevel(logging.ERROR)  # chains this short are said to be short
for engine in nuts.ENGINES:
    model = Specification(lambda held: pm.Normal("value"), (), {})
    trace = nuts.run(model, nuts.NutsOptions(engine, n_draws=100, tune=50, chains=2), rng=1)
    assert np.isfinite(nuts.posterior(trace)["value"]).all()
print(*(len(list(config.base_compiledir.rglob(kind))) for kind in ("*.so", "*.nbc")))
"""


@pytest.mark.slow
def test_the_library_imports_and_fits_with_warnings_as_errors(home: str) -> None:
    done = python(["-W", "error", "-c", FITS], home)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(int(n) > 0 for n in done.stdout.split()), "nothing was compiled in C, or by numba"


TOUCHED = """
import os, sys
import scipy.stats, xarray  # which may do as they like

touched, before = [], dict(os.environ)
events = {"os.mkdir", "os.rmdir", "os.remove", "os.rename", "os.putenv", "os.unsetenv", "tempfile.mkdtemp"}
sys.addaudithook(lambda event, args: touched.append((event, *args)) if event in events else None)
sys.dont_write_bytecode = True
import cje_core.workflow.analyze
print(touched, dict(os.environ) == before)
exec(sys.argv[1])
print(len(touched) > 0)
"""


@pytest.mark.parametrize("library", ["cje_sim.tokens.kernels", "cje_core.bayes.gibbs"])
def test_importing_the_library_touches_neither_environment_nor_disk(library: str) -> None:
    """Until it imports one of those whose caches may have to move."""
    assert quietly(["-c", TOUCHED, f"import {library}"], "/dev/null").split("\n") == ["[] True", "True", ""]


def test_caches_that_can_be_written_stay_where_they_are(tmp_path: Path) -> None:
    assert caches.redirect({"HOME": str(tmp_path)}) == {}
    own = {"MPLCONFIGDIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "PYTENSOR_FLAGS": "compiledir=/x"}
    assert caches.redirect({"HOME": "/dev/null", **own}) == {}


def test_only_what_is_blocked_moves_and_flags_are_kept(tmp_path: Path) -> None:
    moved = caches.redirect({"HOME": "/dev/null", "MPLCONFIGDIR": str(tmp_path), "PYTENSOR_FLAGS": "cxx="})
    assert set(moved) == {"XDG_CACHE_HOME", "PYTENSOR_FLAGS"}
    assert moved["PYTENSOR_FLAGS"].startswith("cxx=,base_compiledir=")
    assert "MPLCONFIGDIR" in caches.redirect({"HOME": str(tmp_path), "MPLCONFIGDIR": "/dev/null/x"})


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="a directory in which not even root can make another"
)
def test_a_home_that_nobody_can_make_is_not_taken_for_writable() -> None:
    assert {"MPLCONFIGDIR", "XDG_CACHE_HOME", "PYTENSOR_FLAGS"} <= set(
        caches.redirect({"HOME": "/proc/nohome"})
    )


def test_the_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    caches.redirect({"HOME": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []
