"""Stacking of estimators by the variance of their influence functions: the limit, its sparsity, its optimism, bias."""

import math

import numpy as np

from cje_core.offpolicy.simplex import simplex_qp
from cje_core.streams import generator
from studies.ledger.claim import Claim, ClaimError, Evidence, Params, Sides, Trial
from studies.ledger.own import decided, first_broken
from studies.ledger.worlds import Family, FloatArray, batches, masses, over_worlds

N = 10_000


def columns(z: FloatArray, size: int) -> dict[str, list[list[float]]]:
    """Influence columns of `size` estimators over size + 2 rows."""
    return {"influence": z.reshape(size + 2, size).tolist()}


COLUMNS = Family((2, 3, 4), lambda size: size * (size + 2), columns, 0.3)


def covariance(w: Params) -> FloatArray:
    """Covariance of centred influence columns."""
    phi = np.asarray(w["influence"], float)
    phi = phi - phi.mean(axis=0)
    return np.asarray(phi.T @ phi / len(phi))


def stacked(w: Params) -> Sides:
    """Variance of the stack against the smallest of the members'."""
    sigma = covariance(w)
    share = simplex_qp(sigma)
    return Sides(float(share @ sigma @ share), float(np.diag(sigma).min()))


def low_rank(z: FloatArray, size: int) -> dict[str, object]:
    """`size + 3` estimators whose influence columns have rank `size`."""
    members = size + 3
    return {
        "factors": z[: 8 * size].reshape(8, size).tolist(),
        "loadings": z[8 * size :].reshape(size, members).tolist(),
    }


RANKS = Family((1, 2, 3), lambda size: 8 * size + size * (size + 3), low_rank, 0.1)


def sparse(w: Params) -> Sides:
    """Members in a vertex solution that has the stack's influence function, against rank + 1."""
    from scipy.optimize import linprog

    factors = np.asarray(w["factors"], float)
    phi = (factors - factors.mean(axis=0)) @ np.asarray(w["loadings"], float)
    share = simplex_qp(phi.T @ phi / len(phi))
    rank = int(np.linalg.matrix_rank(phi, tol=1e-8 * max(float(np.abs(phi).max()), 1e-9)))
    basis = np.linalg.svd(phi, full_matrices=False)[2][:rank]  # the same equations, without redundant ones
    found = linprog(
        np.zeros(len(share)),
        A_eq=np.vstack([basis, np.ones(len(share))]),
        b_eq=np.append(basis @ share, 1.0),
        bounds=(0, None),
        method="highs-ds",
    )
    if found.x is None:
        raise ClaimError("the programme has no solution")
    return Sides(float((found.x > 1e-9).sum()), float(rank + 1))


def printed_support(w: Params) -> Sides:
    """Members that the least-norm minimiser uses, against rank + 1: the corollary read of any minimiser."""
    phi = np.asarray(w["influence"], float)
    if not phi.std(axis=0).min() > 0.1:
        raise ClaimError("an estimator has no spread")
    phi = np.repeat(phi - phi.mean(axis=0), 2, axis=1)  # each estimator twice
    share = simplex_qp(phi.T @ phi / len(phi))
    return Sides(float((share > 1e-9).sum()), float(np.linalg.matrix_rank(phi, tol=1e-9) + 1))


def printed_support_slowly(w: Params) -> Sides:
    """The same minimiser by projected gradient steps from the middle of the simplex."""
    phi = np.asarray(w["influence"], float)
    phi = np.repeat(phi - phi.mean(axis=0), 2, axis=1)
    sigma = phi.T @ phi / len(phi)
    share = np.full(len(sigma), 1 / len(sigma))
    step = 0.5 / max(float(np.linalg.eigvalsh(sigma).max()), 1e-9)
    for _ in range(4000):
        moved = share - step * 2 * sigma @ share
        order = np.sort(moved)[::-1]
        theta = (np.cumsum(order) - 1) / np.arange(1, len(order) + 1)
        share = np.maximum(moved - theta[np.flatnonzero(order > theta)[-1]], 0.0)
    return Sides(float((share > 1e-6).sum()), float(np.linalg.matrix_rank(phi, tol=1e-9) + 1))


def optimism(rng: np.random.Generator, w: Params, split: bool) -> tuple[float, float]:
    """Variance that a stack of independent, equally good estimators reports, and the one that it has, as multiples."""
    rows, members = int(w["rows"]), int(w["members"])
    if not (rows // 2 > members >= 2):
        raise ClaimError("a stack takes two members, and more rows than twice their number")
    claimed, true = [], []
    for _ in range(12):
        phi = rng.standard_normal((rows, members))
        part = phi[: rows // 2] if split else phi
        share = simplex_qp(np.cov(part.T))
        own = phi[rows // 2 :] if split else phi
        claimed.append(float(share @ np.cov(own.T) @ share))
        true.append(float(share @ share))
    return float(np.mean(true)), float(np.mean(claimed))


def decide_optimism(trial: Trial) -> Evidence:
    """Reported variance of a stack against its own, on the rows that chose it and on others."""
    # fewest members first, on as many rows as may be: optimism falls with the rows and rises with the members
    sizes = ({"rows": rows, "members": members} for members in range(2, 11) for rows in (200, 100, 50))
    w = first_broken(sizes, optimism_by_formula, "==")
    if w is None:
        raise ClaimError("no size of a stack reports another variance than its own")
    same, other = (_optimism(trial, w, split) for split in (False, True))
    ratio = same.right / same.left
    mcse = same.mcse / same.left
    again = optimism_by_formula(w)
    holds = abs(ratio - 1) < 5 * mcse if not trial.planted else abs(ratio - 0.5) < 5 * mcse
    return Evidence(
        holds=bool(holds),
        measured=f"reported / true variance {ratio:.3f} ({mcse:.3f})",
        expected="1",
        mcse=mcse,
        text=f"{w['members']} independent estimators of equal variance, {w['rows']} rows: the stack reports "
        f"{ratio:.3f} ({mcse:.3f}) of the variance that it has. With an outer split it reports "
        f"{other.right / other.left:.3f} ({other.mcse / other.left:.3f}) of it. The affine minimiser, in closed form: "
        f"{again.right / again.left:.3f}.",
        counterexample=w,
    )


def _optimism(trial: Trial, w: Params, split: bool) -> Sides:
    rng = trial.rng("optimism", split)
    both = np.array([optimism(rng, w, split) for _ in range(trial.size(30, 60, 600))])
    gap = both[:, 0] - both[:, 1]
    true, claimed = both.mean(axis=0)
    return Sides(float(true), float(claimed), float(gap.std(ddof=1) / math.sqrt(len(gap))))


def optimism_at(w: Params) -> Sides:
    """True and reported variance, by simulation."""
    return _optimism(Trial("stack-optimism", "smoke"), w, False)


def optimism_by_formula(w: Params) -> Sides:
    """True and reported variance of the affine minimiser ``S^-1 1 / (1' S^-1 1)`` of a Wishart covariance.

    With f = n - 1 degrees of freedom and k members ``1 / (1' S^-1 1)`` has mean ``(f - k + 1) / (f k)``, and its true
    variance mean ``(f - 1) / ((f - k) k)``: the global minimum variance portfolio of finance.
    """
    f, k = w["rows"] - 1, w["members"]
    return Sides((f - 1) / ((f - k) * k), (f - k + 1) / (f * k))


def capped(z: FloatArray, size: int) -> dict[str, list[float]]:
    """Responses with masses under target and logger, and mean outcomes between 0 and 1."""
    p, q, mean = z.reshape(3, size)
    return {
        "target": np.exp(p).tolist(),
        "logger": np.exp(q).tolist(),
        "mean": (1 / (1 + np.exp(-2 * mean))).tolist(),
    }


CAPPED = Family((2, 3, 5), lambda size: 3 * size, capped, 0.5)


def capped_parts(w: Params) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Logger masses, values of IPS and of IPS with weights cut at 2 and brought to mean one, and V."""
    p, q = masses(w["target"]), masses(w["logger"])
    if not q.min() > 1e-4:
        raise ClaimError("a response has no mass")
    ratio, mean = p / q, np.asarray(w["mean"], float)
    cut = np.minimum(ratio, 2.0)
    cut = cut / float(q @ cut)
    return q, np.stack([ratio * mean, cut * mean]), mean, float(p @ mean)


def capped_stack(w: Params) -> Sides:
    """Mean squared error of the stack of IPS and capped IPS at 10,000 rows against the smaller of the two's."""
    q, values, _, truth = capped_parts(w)
    centre = values @ q
    sigma = ((values - centre[:, None]) * q) @ (values - centre[:, None]).T / N
    share = simplex_qp(sigma + 1e-15 * np.eye(2))
    own = np.diag(sigma) + (centre - truth) ** 2
    return Sides(float(share @ sigma @ share + (share @ centre - truth) ** 2), float(own.min()) + 1e-15)


def capped_by_simulation(w: Params) -> Sides:
    """The same from simulated rows: 10,000 a data set, the stack chosen on each."""
    q, values, _, truth = capped_parts(w)

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        counts = rng.multinomial(N, q, size=20) / N
        errors = []
        for share_of in counts:
            centre = values @ share_of
            sigma = ((values - centre[:, None]) * share_of) @ (values - centre[:, None]).T
            a = float(
                np.clip(
                    (sigma[1, 1] - sigma[0, 1]) / max(sigma[0, 0] + sigma[1, 1] - 2 * sigma[0, 1], 1e-15),
                    0,
                    1,
                )
            )
            errors.append([(a * centre[0] + (1 - a) * centre[1] - truth) ** 2, *((centre - truth) ** 2)])
        mse = np.mean(errors, axis=0)
        return float(mse[0]), float(mse[1])

    return batches(batch, generator(0, "claims", "stacking", "capped"))


CLAIMS: tuple[Claim, ...] = (
    over_worlds(
        name="thm-stack",
        source="Theorem (influence-function stacking), thm:stack",
        statement=r"$\min_{\alpha \in \Delta} \alpha'\Sigma\alpha \le \min_e \Sigma_{ee}$",
        why="Each member is a vertex of the simplex.",
        family=COLUMNS,
        sides=stacked,
        planted="half of the best member's variance",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="cor-caratheodory",
        source="Corollary (Carathéodory sparsity), cor:caratheodory, read as: there is such a combination",
        statement="some combination of at most rank + 1 estimators has the stack's influence function",
        why="A vertex of the polytope of all shares with that influence function has as many members as independent "
        "equations: the rank, and the sum.",
        family=RANKS,
        sides=sparse,
        planted="at most one",
        falsified=lambda s: Sides(s.left, 0.9),
    ),
    over_worlds(
        name="cor-caratheodory-any",
        source="ours: cor:caratheodory says that some minimiser uses at most rank + 1 estimators, not that any does",
        statement="the minimiser that a solver returns uses at most rank + 1 estimators; each stands in the "
        "library twice",
        why="With equal columns the minimiser is not unique, and the one of least norm shares out.",
        family=Family((1, 2, 3), lambda size: size * (size + 2), columns, 0.2),
        sides=printed_support,
        second=printed_support_slowly,
        planted="at most one",
        falsified=lambda s: Sides(s.left, 0.9),
    ),
    decided(
        name="stack-optimism",
        source="ours: thm:stack in finite samples without the outer split that the paper recommends",
        statement="the variance that the stack reports on the rows that chose it is the variance that it has",
        rule="simulated influence functions; the affine minimiser's Wishart formula",
        why="The minimum of an estimated quadratic form lies below the form at that point.",
        decide=decide_optimism,
        sides=optimism_at,
        second=optimism_by_formula,
        relation="==",
        planted="half of it is reported",
    ),
    over_worlds(
        name="stack-biased-member",
        source="Section 3, 'a small library of regular estimators (DR, TMLE, MRDR, capped IPS)'",
        statement="the stack of IPS and capped IPS has at 10,000 rows at most the mean squared error of the better one",
        why="The theorem needs members with one limit. A capped member has another, and the smallest variance: "
        "the stack "
        "chooses it, and its bias stays as the rows grow.",
        family=CAPPED,
        sides=capped_stack,
        second=capped_by_simulation,
        planted="half of the better one's",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
)
