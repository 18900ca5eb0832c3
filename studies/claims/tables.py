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
    "tells",
    "does not tell",
    "cannot be shown here to tell",
)  # how study `gates` begins a sentence on a gate
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


def from_study(study: str, *about: str, missing: str = "") -> Callable[[Trial], Evidence]:
    """Decide by the sentences of a study that hold one of the words `about`; `missing`: what no sentence tells yet."""

    def decide(trial: Trial) -> Evidence:
        said = of_results(study, trial.results) if trial.results is not None else None
        said = said or of_page(study)
        chosen = (
            [one for one in said.sentences if any(words in one[1] for words in about)]
            if said is not None
            else []
        )
        command = f"cje-lab run {study} --profile paper --out DIR, then cje-lab claims --results DIR"
        if said is None or not chosen:
            return Evidence(
                holds=None,
                measured="",
                expected="as the paper's text",
                text="",
                needs=missing or f"results of the study: {command}",
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


def claim(
    name: str, study: str, about: str | tuple[str, ...], source: str, statement: str, missing: str = ""
) -> Claim:
    """A claim about a table, decided by the sentences of a study that hold (one of) the words `about`."""
    words = (about,) if isinstance(about, str) else about
    return Claim(
        name=name,
        source=source,
        statement=statement,
        rule=f"the sentences of study {study} and the rules that it states for them",
        why="Simulated in a world of known truth; each figure in brackets is a Monte Carlo standard error.",
        decide=from_study(study, *words, missing=missing),
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
        ("(plug_in_cluster, base labels)", "(plug_in_jackknife, base labels)"),
        "tab:uq-comparison and tab:uq-diagnostics, labels under the base policy as in the paper's set-up",
        "cluster-robust intervals cover 15 to 52% and the calibration-aware jackknife 70 to 89% (the bootstrap is "
        "bootstrap-borrowed's)",
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
        "of the RMSE of raw judge scores",
        "app:mbpp, tab:mbpp-results: calibration lowers the RMSE by 18 to 84%",
        "with a pass/fail oracle calibration lowers the RMSE of raw judge scores by 18 to 84%, more with more labels",
        "study binary_oracle states no sentence on the RMSE of raw judge scores; it depends on the bias of the "
        "paper's judge (.048), so its data or a world with that bias",
    ),
    claim(
        "binary-oracle-coverage",
        "binary_oracle",
        ("With own labels our default covers", "With borrowed labels it covers"),
        "ours: intervals with a pass/fail oracle, which app:mbpp does not give",
        "with a pass/fail oracle the project's intervals cover",
    ),
    claim(
        "ttc-gate-roc",
        "gates",
        tuple(f"{gate} {words}" for gate in OF_TABLE for words in TOLD),
        "tab:gates, the gates named there as tests of what they should foretell",
        "the table's gates tell reliable estimates from unreliable ones in the simulated worlds",
    ),
    claim(
        "tf-versus-coverage",
        "tf_versus_coverage",
        "Lack of overlap alone",
        "Q2 and Limitations: lack of coverage limits importance sampling 'even with perfect propensities'",
        "lack of overlap alone, with exact likelihoods, makes importance sampling fail",
    ),
    claim(
        "tf-errors-matter",
        "tf_versus_coverage",
        "A copy of the logger",
        "Limitations: 'we cannot cleanly separate their contributions, but both matter'",
        "errors of the likelihoods alone, on a copy of the logger, make importance sampling worse by a tenth or more "
        "(the tenth is ours)",
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
        "ours: tab:cost-analysis at one standard error; the paper compares at one number of prompts",
        "the savings at the same standard error are those at the same number of prompts",
    ),
    claim(
        "audit-power",
        "transport_audit",
        "with power",
        "ours: the project's audit of three verdicts, 25 probes and more; the paper's test is audit-power-zero's",
        "its FAIL finds a shift of .25 with a power of 80% in every cell",
    ),
)
