"""Each line of the proofs about gradients, computed on dense tables of random models: not the code of the ledger."""

import json
import re

import numpy as np
import pytest
from proof_lines import PAGES, Dense, numbered, registry, run

from cje_sim.exact import judge_models
from cje_sim.exact.efficiency import conditional, project, scores, variance
from cje_sim.exact.judge_models import draw_model, law_with_mean

CHECKS, line = registry()
MINE = ("surrogate_gradient", "dr_remainder")
CLOSE = {"rtol": 1e-9, "atol": 1e-12}  # sums of at most 72 products


def random_dense(rng, **options):
    return Dense(draw_model(rng, **{"labelled": "free", **options}))


def moved(d, of, score, step=1e-5):
    """Derivative of the value when the law moves along a score: the tables are changed and summed again."""
    values = []
    for sign in (1, -1):
        p = d.p * (1 + sign * step * score)
        cell, labelled = p.sum(axis=(3, 4)), p[:, :, :, 1]
        mean = (labelled * d.y).sum(axis=-1) / labelled.sum(axis=-1)
        q = (cell * mean).sum(axis=2) / cell.sum(axis=2)
        values.append(cell.sum(axis=(1, 2)) @ (d.model.target * q).sum(axis=1))
    return (values[0] - values[1]) / (2 * step)


@line("surrogate_gradient", 1)
def value(rng):
    d = random_dense(rng)
    for way in (d.g, d.w * d.r, d.m * d.r):
        np.testing.assert_allclose(d.mean(way), d.value, **CLOSE)


@line("surrogate_gradient", 2)
def parts_are_orthogonal(rng):
    d = random_dense(rng)
    parts = [d.score(rng, of, given) for of, given in (("x", ""), ("a", "x"), ("s", "xa"), ("l", "xas"))]
    k, r = d.label_score(rng)
    parts.append(d.label * k)
    gram = [[d.mean(f * h) for h in parts] for f in parts]
    np.testing.assert_allclose(gram - np.diag(np.diag(gram)), 0, atol=1e-12)
    np.testing.assert_allclose(d.given(k, "xas"), 0, atol=1e-12)
    np.testing.assert_allclose(d.given(d.y * k, "xas"), r * np.ones_like(d.r), atol=1e-12)
    t = (
        1e-3 / np.abs(k).max()
    )  # along it the model stays mean-sufficient, exactly and not to first order only
    mean = d.given(d.y * (1 + t * k), "xas")
    assert np.ptp(mean, axis=(0, 1)).max() < 1e-12


@line("surrogate_gradient", 3)
def derivatives(rng):
    d = random_dense(rng)
    a, b = d.score(rng, "x", ""), d.score(rng, "s", "xa")
    k, r = d.label_score(rng)
    loose = {"rtol": 1e-6, "atol": 1e-8}  # central differences
    np.testing.assert_allclose(moved(d, "a", d.score(rng, "a", "x")), 0, **loose)
    np.testing.assert_allclose(moved(d, "l", d.score(rng, "l", "xas")), 0, **loose)
    np.testing.assert_allclose(moved(d, "x", a), d.mean(d.g * a), **loose)
    np.testing.assert_allclose(moved(d, "s", b), d.mean(d.w * d.r * b), **loose)
    np.testing.assert_allclose(moved(d, "y", d.label * k), d.mean(d.m * r), **loose)
    assert abs(moved(d, "s", b) - d.mean(d.m * d.r * b)) > 1e-6  # planted: m in the place of W


@line("surrogate_gradient", 4)
def first_part(rng):
    d = random_dense(rng)
    a = d.score(rng, "x", "")
    np.testing.assert_allclose(d.mean((d.g - d.value) * a), d.mean(d.g * a), **CLOSE)


@line("surrogate_gradient", 5)
def second_part(rng):
    d = random_dense(rng)
    b = d.score(rng, "s", "xa")
    np.testing.assert_allclose(d.given(d.w * (d.r - d.q) * np.ones_like(d.p), "xa"), 0, atol=1e-12)
    np.testing.assert_allclose(d.mean(d.w * (d.r - d.q) * b), d.mean(d.w * d.r * b), **CLOSE)


@line("surrogate_gradient", 6)
def third_part_is_a_score(rng):
    d = random_dense(rng)
    c = d.m / d.given(d.label / d.v, "s")
    np.testing.assert_allclose(d.efficient, d.label * c * (d.y - d.r) / d.v, **CLOSE)
    np.testing.assert_allclose(d.given(d.y * c * (d.y - d.r) / d.v, "xas"), c * np.ones_like(d.r), **CLOSE)


@line("surrogate_gradient", 7)
def third_part_represents(rng):
    d = random_dense(rng)
    k, r = d.label_score(rng)
    np.testing.assert_allclose(d.mean(d.efficient * d.label * k), d.mean(d.m * r), **CLOSE)


@line("surrogate_gradient", 8)
def bound(rng):
    d = random_dense(rng)
    phi = d.g - d.value + d.w * (d.r - d.q) + d.efficient
    spread = d.given((d.r - d.q) ** 2 * np.ones_like(d.p), "xa")
    by_parts = d.var(d.g) + d.mean(d.w**2 * spread) + d.mean(d.m**2 / d.given(d.label / d.v, "s"))
    np.testing.assert_allclose(d.var(phi), by_parts, **CLOSE)
    np.testing.assert_allclose(d.mean(phi), 0, atol=1e-12)


@line("surrogate_gradient", 9)
def printed_mean(rng):
    d = random_dense(rng)
    one = np.ones_like(d.p)
    cov = d.given(d.m * d.r * one, "xa") - d.given(d.m * one, "xa") * d.given(d.r * one, "xa")
    printed = d.g + d.m * (d.r - d.q) - d.value
    np.testing.assert_allclose(d.mean(printed), d.mean(cov), **CLOSE)
    order = np.argsort(d.m.ravel())
    rising = d.model._replace(judge=d.model.judge[..., order], label=d.model.label[:, :, order])
    label = law_with_mean(rising.label, d.y, np.broadcast_to(np.sort(d.r[0, 0].ravel()), rising.judge.shape))
    up = Dense(rising._replace(label=label, seen=np.ones(rising.judge.shape)))
    assert up.mean(up.g + up.m * (up.r - up.q) - up.value) > 0
    f = random_dense(rng, judge="function")
    np.testing.assert_allclose(f.p * (f.g + f.m * (f.r - f.q) - f.g), 0, atol=1e-12)


@line("surrogate_gradient", 10)
def gain(rng):
    d = random_dense(rng, labelled="all")
    uncon = d.g + d.w * (d.y - d.q) - d.value
    phi = d.g - d.value + d.w * (d.r - d.q) + d.efficient
    learnt = d.mean(d.m**2 / d.given(1 / d.v * np.ones_like(d.p), "s"))
    np.testing.assert_allclose(d.var(uncon) - d.var(phi), d.mean(d.w**2 * d.v) - learnt, **CLOSE)
    assert d.var(uncon) > d.var(phi)
    # a judge that tells every response apart: W v is a function of S, and nothing is gained
    model = draw_model(rng, (1, 3, 3, 3), labelled="all")
    tells = Dense(model._replace(judge=np.eye(3)[None], label=np.repeat(model.label[:, :1], 3, axis=1)))
    learnt = tells.mean(tells.m**2 / tells.given(1 / tells.v * np.ones_like(tells.p), "s"))
    np.testing.assert_allclose(tells.mean(tells.w**2 * tells.v), learnt, **CLOSE)
    printed = tells.g + tells.m * (tells.r - tells.q) - tells.value
    uncon = tells.g + tells.w * (tells.y - tells.q) - tells.value
    gap = tells.var(uncon) - tells.var(printed)
    np.testing.assert_allclose(gap, tells.mean(tells.w**2 * tells.v), **CLOSE)
    assert gap > 1e-3


@line("surrogate_gradient", 11)
def full_surrogacy(rng):
    model = draw_model(rng, labelled="free")
    model = model._replace(label=np.broadcast_to(model.label[:1, :1], model.label.shape))
    space = judge_models.observed(model)
    tangent = np.hstack(
        [scores(space, "x"), scores(space, "s", "xa"), scores(space, "l", "xas"), scores(space, "y", "sl")]
    )
    found = project(space, judge_models.unrestricted(model, space), tangent)
    p = judge_models.pieces(model, space)
    learnt = p.judged_weight * space["l"] / conditional(space, space["l"], "s") * (space["y"] - p.reward)
    np.testing.assert_allclose(found, judge_models.known_reward(model, space) + learnt, atol=1e-9)
    np.testing.assert_allclose(
        variance(space, found), variance(space, judge_models.canonical(model, space)), **CLOSE
    )


def nuisances(rng):
    d = random_dense(rng, labelled="all")
    weight = rng.uniform(0, 3, (1, 1, d.p.shape[2], 1, 1))
    return d, weight, rng.uniform(0, 1, (*d.p.shape[:2], 1, 1, 1))


@line("dr_remainder", 1)
def change_of_measure(rng):
    d, _, fit = nuisances(rng)
    direct = d.model.prompt @ (d.model.target * fit[..., 0, 0, 0]).sum(axis=1)
    np.testing.assert_allclose(direct, d.mean(d.w * fit), **CLOSE)
    np.testing.assert_allclose(d.mean(d.w * d.q), d.value, **CLOSE)


@line("dr_remainder", 2)
def two_residuals(rng):
    d, weight, fit = nuisances(rng)
    np.testing.assert_allclose(
        d.mean(weight * (d.r - fit)), d.mean(weight * (d.q - fit)) + d.mean(weight * (d.r - d.q)), **CLOSE
    )


def covariance(d, f, h, given="xa"):
    one = np.ones_like(d.p)
    return d.given(f * h * one, given) - d.given(f * one, given) * d.given(h * one, given)


@line("dr_remainder", 3)
def residual_is_a_covariance(rng):
    d, weight, _ = nuisances(rng)
    np.testing.assert_allclose(d.mean(weight * (d.r - d.q)), d.mean(covariance(d, weight, d.r)), **CLOSE)


@line("dr_remainder", 4)
def limit(rng):
    d, weight, fit = nuisances(rng)
    found = d.mean(d.w * fit + weight * (d.r - fit))
    right = d.value + d.mean((weight - d.w) * (d.q - fit)) + d.mean(covariance(d, weight, d.r))
    np.testing.assert_allclose(found, right, **CLOSE)
    np.testing.assert_allclose(found, d.value + d.mean((weight - d.w) * (d.r - fit)), **CLOSE)
    printed = d.value + d.mean((weight - d.m) * (d.q - fit))
    assert abs(found - printed) > 1e-4


@line("dr_remainder", 5)
def sign(rng):
    d, _, _ = nuisances(rng)
    order = np.argsort(np.argsort(d.r[0, 0, :, 0, 0]))
    rising = np.sort(rng.uniform(0, 3, len(order)))[order][:, None, None]
    assert (covariance(d, rising, d.r) >= -1e-12).all()
    f = random_dense(rng, judge="function", labelled="all")
    np.testing.assert_allclose(covariance(f, rng.uniform(0, 3, (3, 1, 1)), f.r), 0, atol=1e-12)


@line("dr_remainder", 6)
def averaged_weights(rng):
    d, weight, fit = nuisances(rng)
    mean = d.given(weight * np.ones_like(d.p), "xa")
    found = d.mean(d.w * fit + mean * (d.r - fit))
    np.testing.assert_allclose(found, d.value + d.mean((mean - d.w) * (d.q - fit)), **CLOSE)


@line("dr_remainder", 7)
def printed_remainder_is_right(rng):
    d = Dense(draw_model(rng, (2, 4, 2, 3), judge="function"))  # some responses share a score
    weight, fit = rng.uniform(0, 3, (1, 1, 2, 1, 1)), rng.uniform(0, 1, (1, 1, 2, 1, 1))
    np.testing.assert_allclose(d.p * (d.q - d.r), 0, atol=1e-12)
    error = d.mean((weight - d.w) * (d.r - fit))
    np.testing.assert_allclose(error, d.mean((weight - d.m) * (d.q - fit)), **CLOSE)
    with_covariates = rng.uniform(0, 1, (2, 4, 1, 1, 1))
    error = d.mean((weight - d.w) * (d.r - with_covariates))
    assert abs(error - d.mean((weight - d.m) * (d.q - with_covariates))) > 1e-4


@pytest.mark.parametrize(("page", "number"), sorted(CHECKS))
def test_line(page, number):
    run(CHECKS[page, number])


def test_every_numbered_line_has_a_check():
    assert set().union(*(numbered(page) for page in MINE)) == set(CHECKS)


def test_every_page_is_listed_and_checked():
    pages = {path.stem for path in PAGES.glob("*.md")} - {"README", "repairs"}
    table = (PAGES / "README.md").read_text(encoding="utf-8").split("| page |")[1]
    listed = set(re.findall(r"\| \[\w+\]\((\w+)\.md\)", table))
    checked = set()
    for path in (PAGES.parents[1] / "tests" / "studies" / "claims").glob("test_proofs*.py"):
        checked |= set(re.findall(r'@line\("(\w+)", \d+\)', path.read_text(encoding="utf-8")))
    assert pages == listed == checked


def test_short_proofs_are_of_statements_that_the_ledger_decides():
    ledger = json.loads((PAGES.parent / "claims.json").read_text(encoding="utf-8"))["claims"]
    verdicts = {claim["id"]: claim["verdict"] for claim in ledger}
    headings = re.findall(r"^## .*", (PAGES / "repairs.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = [re.findall(r"`([\w-]+)`", heading) for heading in headings]
    assert headings and all(names and "holds" in {verdicts[name] for name in names} for names in named)


def test_no_formula_runs_over_a_line():
    """A formula that is broken over two lines is not set by every reader of Markdown."""
    for path in PAGES.glob("*.md"):
        for text in path.read_text(encoding="utf-8").splitlines():
            assert text.replace("$$", "").count("$") % 2 == 0, f"{path.name}: {text}"
