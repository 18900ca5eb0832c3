"""The paper's tables: what the text draws from them, as the studies of this project find it.

A claim here reads the sentences that a study computes from its results: those in the directory given by ``--results``,
else those on the study's page in ``docs/studies`` where there is one. Without either it is undecided, and says which
command would decide it.
"""

import json
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from studies.claims.audits import MARGIN
from studies.engine.study import load
from studies.ledger.claim import Claim, ClaimError, Evidence, Params, Sides, Trial
from studies.ledger.own import decided

if TYPE_CHECKING:
    from studies.report.page import Item

PAGES = Path(__file__).parents[2] / "docs" / "studies"
OF_TABLE = (
    "ess",
    "hill",
    "affinity",
    "ttc",
    "reliability",
    "out_of_range",
    "orthogonality",
    "residual_tails",
)
TOLD = (
    "Does {} tell when",
    "{} tells",
    "{} does not tell",
    "{} cannot be shown here to tell",
)  # how study `gates` begins a sentence on a gate; the last three on pages made before sentences were questions
STABILISED, RATIO = -84.0, 1.25  # table tab:ablation; the factor is ours
ANSWERS = {"yes": True, "no": False, "open": None}
ANSWER_WORDS = {holds: word.capitalize() for word, holds in ANSWERS.items()}


# By study: the paper's conditions of the table that it is held against, and the second method beside the simulation.
CONDITIONS: dict[str, tuple[str, str]] = {
    "estimator_benchmark": (
        "4,961 Arena prompts, five policies, a judge gpt-4.1-nano and an oracle gpt-5; subsamples of five sizes with "
        "five labelled shares, 50 seeds of each of the 25 cells; truth is the mean label of the whole sample",
        "true values, TTC and ESS of the world by quadrature, and an unbiased control on the same data, the mean of "
        "a label of every response (its rows are on the page)",
    ),
    "interval_coverage": (
        "Arena prompts, three policies that borrow the base policy's calibrator, 50 seeds of each of 4 sizes and of "
        "each labelled share, so 150 runs of a cell on shared prompts and labels",
        "claim `jackknife-level`, a closed form of both forms of the jackknife: the reference library `cje-eval` "
        "divided its sum by K before release 0.3.0",
    ),
    "weight_diagnostics": (
        "4,961 Arena prompts with teacher-forced likelihoods of four targets, one sample",
        "exact TTC, ESS and values of the world by quadrature, in the docstring of `cje_sim.scenarios.arena_like`",
    ),
    "misclassification": (
        "9,999 Arena preference pairs, a graded judge with a mean Youden's J of .41, three policies",
        "exact biases and standard errors, printed beside the simulated ones",
    ),
    "gates": (
        "Arena prompts, n = 4,961; the table gives thresholds, and no trial of what they tell",
        "exact TTC and the limit of ESS/n of each world, printed with the world",
    ),
    "tf_versus_coverage": (
        "4,961 Arena prompts; its likelihoods have both causes at once",
        "exact TTC and values of the world by quadrature",
    ),
    "budget": (
        "5,000 Arena prompts, a label at 16 judged responses; the law is derived for large samples",
        "the law itself, a closed form, beside the simulated error",
    ),
}


class Said(NamedTuple):
    """Sentences of a study with their answers and rules, and where they come from."""

    sentences: list[tuple[bool | None, str, str]]
    where: str


@lru_cache(maxsize=32)
def of_results(study: str, results: Path) -> Said | None:
    """Sentences from a directory of results; None where it has none of this study."""
    from studies.engine.running.directory import find
    from studies.report.needs import with_needs
    from studies.report.page import read

    for source in find(results):
        if source.resolve().name == study:  # a run names the directory of a study after it
            item = read(source)
            sentences = with_needs(item.study, item.results, item.findings)
            found = [(one.holds, one.sentence, one.rule) for one in sentences]
            return Said(found, f"results in {source.name}, {_of_item(item)}")
    return None


def of_page(study: str) -> Said | None:
    """Sentences from the study's page; None where there is none."""
    path = PAGES / f"{study}.json"
    if not path.exists():
        return None
    page = json.loads(path.read_text(encoding="utf-8"))
    found = [(ANSWERS[one["verdict"]], one["sentence"], one["rule"]) for one in page["findings"]]
    size = _size(page["profile"], page["cells"], page["replicates"])
    return Said(found, f"docs/studies/{study}.md, {size}")


def _of_item(item: "Item") -> str:
    last = item.manifest["runs"][-1]
    return _size(last["profile"], last["cells"], item.results.sizes["replicate"])


def _size(profile: str, cells: int, replicates: int) -> str:
    return f"profile {profile}, {cells} cells, up to {replicates:,} replicates of each"


def explained(study: str, where: str, text: str, *, ours: bool = False) -> str:
    """Return what decides, after the paper's conditions and the study's world, and before the second method.

    `where` is its source and size; `ours` says that the question is not the paper's.
    """
    paper, second = CONDITIONS.get(study, ("", ""))
    parts = [
        "" if ours or not paper else f"The paper's conditions: {paper}.",
        f"Our world: {load(study).mechanism}",
    ]
    parts += [f"From {where}: {text}", f"The second method: {second}." if second else ""]
    return " ".join(part for part in parts if part)


def from_study(study: str, *about: str, ours: bool = False) -> Callable[[Trial], Evidence]:
    """Decide by the sentences of a study that hold one of the words `about`; `ours`: the paper states no such thing."""
    command = f"cje-lab run {study} --profile paper --out DIR, then cje-lab claims --results DIR"

    def decide(trial: Trial) -> Evidence:
        said = of_results(study, trial.results) if trial.results is not None else None
        said = said or of_page(study)
        chosen = (
            [one for one in said.sentences if any(words in one[1] for words in about)]
            if said is not None
            else []
        )
        if said is None or not chosen:
            return Evidence(
                holds=None,
                measured="",
                expected="as the paper's text",
                text="",
                needs=f"results of the study: {command}",
            )
        answers = [False if trial.planted else holds for holds, *_ in chosen]
        holds = False if False in answers else None if None in answers else True
        text = " ".join(
            f"{sentence} {ANSWER_WORDS[holds]}." if sentence.endswith("?") else sentence
            for holds, sentence, _ in chosen
        )
        return Evidence(
            holds=holds,
            measured=f"{answers.count(True)} of {len(answers)} sentences come out so",
            expected="all",
            text=explained(study, said.where, text, ours=ours),
            needs=f"the replicates that each open sentence names: {command}" if holds is None else "",
        )

    return decide


def tables_of(study: str, results: Path | None) -> tuple[dict[str, list[dict[str, str]]], str]:
    """The study's tables by title, rows as cells by column, and where they stand: results if given, else its page."""
    tables: dict[str, list[dict[str, str]]] = {}
    where, path = "", PAGES / f"{study}.json"
    if path.exists():
        page = json.loads(path.read_text(encoding="utf-8"))
        where = f"docs/studies/{study}.md, {_size(page['profile'], page['cells'], page['replicates'])}"
        tables = {
            one["title"]: [dict(zip(one["columns"], row, strict=False)) for row in one["rows"]]
            for one in page["tables"]
        }
    if results is not None:
        from studies.engine.running.directory import find
        from studies.report.page import read, render

        for source in find(results):
            if source.resolve().name == study:
                item = read(source)
                tables = {
                    name: [
                        {str(k): str(v) for k, v in row.items()} for row in render(frame).to_dict("records")
                    ]
                    for name, frame in item.tables.items()
                }
                where = f"results in {source.name}, {_of_item(item)}"
    return tables, where


def figures(cell: str) -> tuple[float, float] | None:
    """Value and Monte Carlo standard error of a cell of a table; None where it has not both.

    Examples
    --------
    >>> figures("-31.9 (1.6)"), figures("base")
    ((-31.9, 1.6), None)
    """
    found = re.fullmatch(r"(-?[\d.]+) \(([\d.]+)\)", cell)
    return (float(found[1]), float(found[2])) if found else None


def of_row(study: str, title: str, row: str, results: Path | None) -> tuple[float, float, str] | None:
    """Last cell of a row of one of the study's tables: value, Monte Carlo standard error, and where it stands."""
    tables, where = tables_of(study, results)
    for name, rows in tables.items():
        for cells in map(list, (one.values() for one in rows)) if name.startswith(title) else ():
            found = figures(cells[-1])
            if cells[0] == row and found:
                return *found, where
    return None


def decide_stabilisation(trial: Trial) -> Evidence:
    """What stabilising the weights of IPS does to its RMSE in the study's world, beside the printed share."""
    found = of_row("estimator_benchmark", "Ablations", "weight stabilisation of IPS", trial.results)
    if found is None:
        return Evidence(
            holds=None,
            measured="",
            expected=f"{STABILISED:g}%",
            text="",
            needs="results of the study: cje-lab run estimator_benchmark --out DIR, then cje-lab claims --results DIR",
        )
    change, error, where = found
    asked = 2 * STABILISED if trial.planted else STABILISED
    low, high = (change + k * 1.96 * error for k in (-1, 1))
    return Evidence(
        holds=low <= asked / RATIO and high >= asked * RATIO,
        measured=f"RMSE changes by {change:g}% ({error:g}); ours over the paper's {change / STABILISED:.2f}",
        expected=f"{STABILISED:g}%, within a factor of {RATIO:g}",
        mcse=error,
        text=explained(
            "estimator_benchmark",
            where,
            f"stabilised weights change the RMSE of IPS by {change:g}% ({error:g}), the paper's by "
            f"{STABILISED:g}%. The sign is the paper's: they lower it. How much they can take off is how bad raw "
            "weights are, a property of the logs.",
        ),
    )


def claim(
    name: str,
    study: str,
    about: str | tuple[str, ...],
    source: str,
    statement: str,
) -> Claim:
    """A claim about a table, decided by the sentences of a study that hold (one of) the words `about`."""
    words = (about,) if isinstance(about, str) else about
    return Claim(
        name=name,
        source=source,
        statement=statement,
        rule=f"the sentences of study {study} and the rules that it states for them",
        why="Simulated in a world of known truth; each figure in brackets is a Monte Carlo standard error.",
        decide=from_study(study, *words, ours=source.startswith("ours")),
        planted="every sentence is denied",
        kind="number",
        study=study,
    )


# tab:weight-diagnostics: raw ESS/n and CLE factor; n of its caption.
ROWS = 4961
ESS = {"clone": 0.262, "parallel_universe_prompt": 0.006, "premium": 0.007, "unhelpful": 0.004}
CLE = {"clone": 1.9, "parallel_universe_prompt": 60.5, "premium": 23.8, "unhelpful": 37.6}
ROUNDING = 0.0005  # of a printed ESS/n


def cle_of_ess(w: Params) -> Sides:
    """A printed CLE factor against the largest that a printed ESS/n allows with its rounding, ``1 / sqrt(ESS/n)``."""
    if not (w["ess"] > ROUNDING and w["cle"] > 0):
        raise ClaimError("ESS/n and the CLE factor must be positive")
    return Sides(w["cle"], (w["ess"] - ROUNDING) ** -0.5)


def cle_of_rows(w: Params) -> Sides:
    """The same from weights of `ROWS` rows, equal on as few as that ESS allows: their root mean square is the limit."""
    weight = np.zeros(ROWS)
    weight[: max(round((w["ess"] - ROUNDING) * ROWS), 1)] = 1.0
    weight /= weight.mean()
    return Sides(w["cle"], float(np.sqrt((weight**2).mean())))


def decide_cle(trial: Trial) -> Evidence:
    """Whether every printed CLE factor is possible with the printed ESS."""
    printed = {name: {"ess": ESS[name], "cle": CLE[name]} for name in ESS}
    if trial.planted:  # twice what the others allow: no row keeps it
        printed = {name: {**w, "cle": 2 * cle_of_ess(w).right} for name, w in printed.items()}
    broken = [name for name, w in printed.items() if cle_of_ess(w).broken("<=")]
    told = ", ".join(f"{w['cle']:.1f} against {w['ess'] ** -0.5:.1f} ({name})" for name, w in printed.items())
    return Evidence(
        holds=not broken,
        measured=told,
        expected="CLE at most 1 / sqrt(ESS/n)",
        text=f"The paper's conditions: raw weights of {ROWS:,} rows. By `cle-larger-region` the CLE factor is at most "
        f"$1/\\sqrt{{ESS/n}}$: {told}. The largest printed factor asks for a raw ESS/n of at most "
        f"{100 * CLE['parallel_universe_prompt'] ** -2:.3f}%, as the caption's rise of ESS by over 3000 times does "
        "(95.4% / 3000 = .032%), not .6%. The column of ESS is then one of clipped or otherwise processed weights.",
        counterexample=printed[broken[0]] if broken else None,
    )


CLAIMS: tuple[Claim, ...] = (
    decided(
        name="tab-cle-ess",
        source="tab:weight-diagnostics: its columns ESS (raw) and CLE",
        statement=r"the printed CLE factors agree with the printed raw ESS: $CLE \le 1/\sqrt{ESS/n}$ in each row",
        rule="the bound of `cle-larger-region` for the region of all responses, at the printed figures "
        "with their rounding; weights of 4,961 rows that attain it",
        why=r"$CLE^2 = E_0[W^2 1_T] \le E_0[W^2] = n/ESS$.",
        decide=decide_cle,
        sides=cle_of_ess,
        second=cle_of_rows,
        planted="twice the largest possible factors",
    ),
    Claim(
        name="tab-ablation-stabilisation",
        source="tab:ablation: stabilisation -84% RMSE of IPS",
        statement="stabilised weights take 84% off the RMSE of self-normalised importance sampling, within a quarter",
        rule="the ablation table of study estimator_benchmark, 95% Monte Carlo bounds",
        why="Simulated in a world of known truth, the same data with both weights.",
        decide=decide_stabilisation,
        planted="twice the share",
        kind="number",
        study="estimator_benchmark",
    ),
    claim(
        "tab-accuracy-best",
        "estimator_benchmark",
        ("Does direct+cov rank policies best", "direct+cov orders"),
        "tab:accuracy, pairwise accuracy",
        "Direct with a covariate orders more pairs rightly than each of the other twelve estimators",
    ),
    claim(
        "tab-accuracy-chance",
        "estimator_benchmark",
        ("Does importance sampling rank near or below chance", "Importance sampling orders pairs"),
        "tab:accuracy and Q2: SNIPS 38%, calibrated IPS 47%",
        "importance-weighted estimators order pairs at or below chance (at most 55%)",
    ),
    claim(
        "tab-accuracy-ess",
        "estimator_benchmark",
        ("Does stabilisation restore ESS", "Stabilisation raises ESS"),
        "Q2, tab:weight-diagnostics",
        "stabilisation raises ESS above 80% and calibrated IPS still ranks worse than Direct",
    ),
    claim(
        "tab-accuracy-stack",
        "estimator_benchmark",
        ("Is stacked-dr as accurate as direct", "The RMSE of stacked-dr"),
        "tab:accuracy, RMSE^d of stacked-dr and direct",
        "stacked doubly robust estimation has the RMSE of Direct, within 10%",
    ),
    claim(
        "covariates-matter",
        "estimator_benchmark",
        ("Does response length as a covariate improve", "With response length as a covariate"),
        "tab:accuracy, the +cov rows",
        "response length as a covariate raises the pairwise accuracy of every family",
    ),
    claim(
        "tab-ablation-calibration",
        "estimator_benchmark",
        ("Does calibration lower the RMSE", "Calibration takes"),
        "tab:ablation: calibration -72% RMSE",
        "calibration lowers the RMSE of Direct, and intervals without it cover nothing",
    ),
    claim(
        "uq-own-labels",
        "interval_coverage",
        (
            "(plug_in_cluster, own labels)",
            "(plug_in_jackknife, own labels)",
            "(direct_bootstrap, own labels)",
        ),
        "ours: tab:uq-comparison with labels under every policy",
        "with labels under every policy the three methods cover as the table says",
    ),
    claim(
        "bootstrap-borrowed",
        "interval_coverage",
        "(direct_bootstrap, base labels)",
        "alg:bootstrap-direct with labels of another policy; tab:uq-comparison, 93-99%",
        "the percentile bootstrap of a policy that borrows its calibrator covers as with labels of its own, 93 to 99%",
    ),
    claim(
        "tab-weight-diagnostics",
        "weight_diagnostics",
        "",
        "tab:weight-diagnostics",
        "the diagnostics order the targets as printed; stabilised ESS is healthy and knows nothing of errors of SNIPS; "
        "TTC tells them with an area of .8",
    ),
    claim(
        "tab-binary-comparison",
        "misclassification",
        "",
        "tab:binary-comparison and Distribution shift robustness",
        "calibration and misclassification correction compare as the table says",
    ),
    claim(
        "binary-oracle-coverage",
        "binary_oracle",
        ("Does our default with", "With own labels our default covers", "With borrowed labels it covers"),
        "ours: intervals with a pass/fail oracle, which app:mbpp does not give",
        "with a pass/fail oracle the project's intervals cover: more than 90% in every cell",
    ),
    claim(
        "ttc-gate-roc",
        "gates",
        tuple(words.format(gate) for gate in OF_TABLE for words in TOLD),
        "tab:gates, the gates named there as tests of what they should foretell",
        "the table's gates tell reliable estimates from unreliable ones in the simulated worlds",
    ),
    claim(
        "tf-versus-coverage",
        "tf_versus_coverage",
        ("Does SNIPS fail for lack of overlap", "Lack of overlap alone"),
        "Q2 and Limitations: lack of coverage limits importance sampling 'even with perfect propensities'",
        "lack of overlap alone, with exact likelihoods, makes importance sampling fail",
    ),
    claim(
        "sqrt-law-simulated",
        "budget",
        ("Does the square-root law give", "times the square-root law's"),
        "prop:sqrt-allocation, its premise, for an isotonic calibrator in small samples",
        "the simulated error of a split is the one that the square-root law gives",
    ),
    claim(
        "tab-cost-equal-precision",
        "budget",
        "The paper's savings of 8.8 and 14",
        "ours: tab:cost-analysis at one standard error; the paper compares at one number of prompts",
        "the savings at the same standard error are those at the same number of prompts",
    ),
    claim(
        "audit-power",
        "transport_audit",
        "with power",
        "ours: the project's audit of three verdicts, 25 probes and more; the paper's test is audit-power-zero's",
        f"the audit's FAIL (margin {MARGIN:g}) finds a shift of .25 with a power of 80% in every cell",
    ),
)
