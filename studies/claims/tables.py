"""The paper's tables: what the text draws from them, as the studies of this project find it.

A claim here reads the sentences that a study computes from its results: those in the directory given by ``--results``,
else those on the study's page in ``docs/studies`` where there is one. Without either it is undecided, and says which
command would decide it.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from studies.ledger.claim import Claim, Evidence, Trial

PAGES = Path(__file__).parents[2] / "docs" / "studies"
ANSWERS = {"yes": True, "no": False, "open": None}


class Said(NamedTuple):
    """Sentences of a study with their answers, and where they come from."""

    sentences: list[tuple[bool | None, str]]
    where: str


@lru_cache(maxsize=32)
def of_results(study: str, results: Path) -> Said | None:
    """Sentences from a directory of results; None where it has none of this study."""
    from studies.engine.running.directory import find
    from studies.report.page import read

    for source in find(results):
        if source.resolve().name == study:  # a run names the directory of a study after it
            item = read(source)
            told = f"results in {source.name}, profile {item.manifest['runs'][-1]['profile']}"
            return Said([(one.holds, one.sentence) for one in item.findings], told)
    return None


def of_page(study: str) -> Said | None:
    """Sentences from the study's page; None where there is none."""
    path = PAGES / f"{study}.json"
    if not path.exists():
        return None
    page = json.loads(path.read_text(encoding="utf-8"))
    found = [(ANSWERS[one["verdict"]], one["sentence"]) for one in page["findings"]]
    return Said(found, f"docs/studies/{study}.md, profile {page['profile']}")


def from_study(study: str, about: str) -> Callable[[Trial], Evidence]:
    """Decide by the sentences of a study that begin with, or hold, the words `about`; all of them where it is empty."""

    def decide(trial: Trial) -> Evidence:
        said = of_results(study, trial.results) if trial.results is not None else None
        said = said or of_page(study)
        chosen = [one for one in said.sentences if about in one[1]] if said is not None else []
        command = f"cje-lab run {study} --profile paper --out DIR, then cje-lab claims --results DIR"
        if said is None or not chosen:
            return Evidence(
                holds=None,
                measured="",
                expected="as the paper's text",
                text="",
                needs=f"results of the study: {command}",
            )
        answers = [holds if not trial.planted else (None if holds is None else False) for holds, _ in chosen]
        holds = False if False in answers else None if None in answers else True
        text = " ".join(sentence for _, sentence in chosen)
        return Evidence(
            holds=holds,
            measured=f"{answers.count(True)} of {len(answers)} sentences come out so",
            expected="all",
            text=f"From {said.where}: {text}",
            needs=f"more replicates: {command}" if holds is None else "",
        )

    return decide


def claim(name: str, study: str, about: str, source: str, statement: str) -> Claim:
    """A claim about a table, decided by a study."""
    return Claim(
        name=name,
        source=source,
        statement=statement,
        rule=f"the sentences of study {study} and the rules that it states for them",
        why="Simulated in a world of known truth; each figure in brackets is a Monte Carlo standard error.",
        decide=from_study(study, about),
        planted="every sentence that comes out is denied",
        kind="number",
        study=study,
    )


CLAIMS: tuple[Claim, ...] = (
    claim(
        "tab-accuracy-best",
        "estimator_benchmark",
        "direct+cov orders",
        "tab:accuracy, pairwise accuracy",
        "Direct with a covariate orders more pairs rightly than each of the other twelve estimators",
    ),
    claim(
        "tab-accuracy-chance",
        "estimator_benchmark",
        "Importance sampling orders pairs",
        "tab:accuracy and Q2: SNIPS 38%, calibrated IPS 47%",
        "importance-weighted estimators order pairs at or below chance (at most 55%)",
    ),
    claim(
        "tab-accuracy-ess",
        "estimator_benchmark",
        "Stabilisation raises ESS",
        "Q2, tab:weight-diagnostics",
        "stabilisation raises ESS above 80% and calibrated IPS still ranks worse than Direct",
    ),
    claim(
        "tab-accuracy-stack",
        "estimator_benchmark",
        "The RMSE of stacked-dr",
        "tab:accuracy, RMSE^d of stacked-dr and direct",
        "stacked doubly robust estimation has the RMSE of Direct, within 10%",
    ),
    claim(
        "covariates-matter",
        "estimator_benchmark",
        "With response length as a covariate",
        "tab:accuracy, the +cov rows",
        "response length as a covariate raises the pairwise accuracy of every family",
    ),
    claim(
        "tab-ablation-calibration",
        "estimator_benchmark",
        "Calibration takes",
        "tab:ablation: calibration -72% RMSE",
        "calibration lowers the RMSE of Direct, and intervals without it cover nothing",
    ),
    claim(
        "tab-uq-comparison",
        "interval_coverage",
        "",
        "tab:uq-comparison and tab:uq-diagnostics",
        "intervals cover as the paper's tables say, method by method",
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
        "the diagnostics order the policies as the table does and know of their errors",
    ),
    claim(
        "tab-binary-comparison",
        "misclassification",
        "",
        "tab:binary-comparison and Distribution shift robustness",
        "calibration and misclassification correction compare as the table says",
    ),
    claim(
        "tab-mbpp",
        "binary_oracle",
        "",
        "app:mbpp",
        "with a pass/fail oracle calibration lowers the RMSE and its intervals cover",
    ),
    claim(
        "ttc-gate-roc",
        "gates",
        "",
        "tab:gates, all gates as tests of what they should foretell",
        "the gates tell reliable estimates from unreliable ones",
    ),
    claim(
        "tf-versus-coverage",
        "tf_versus_coverage",
        "",
        "Q2 and Limitations: teacher forcing or coverage",
        "coverage rather than teacher-forcing noise makes importance sampling fail",
    ),
    claim(
        "two-stage-vs-monotone",
        "judge_information",
        "The covariate of a length-biased judge",
        "Section 3, two-stage calibration with response length",
        "the covariate of a length-biased judge lowers the RMSE",
    ),
    claim(
        "sqrt-law-simulated",
        "budget",
        "times the square-root law's",
        "prop:sqrt-allocation, its premise, for an isotonic calibrator in small samples",
        "the simulated error of a split is the one that the square-root law gives",
    ),
    claim(
        "tab-cost-equal-precision",
        "budget",
        "The paper's savings of 8.8 and 14",
        "tab:cost-analysis, at one standard error instead of one number of prompts",
        "the savings at the same standard error are those at the same number of prompts",
    ),
    claim(
        "audit-power",
        "transport_audit",
        "with power",
        "fig:transportability-test and Section 4: 50 to 200 probes",
        "the audit finds the shift that it is sized for",
    ),
)
