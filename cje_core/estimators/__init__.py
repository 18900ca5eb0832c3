"""One file is one estimator: the directory listing is the registry.

Each module states its estimand, formula (with the paper's equation) and failure modes, declares ``NEEDS`` (what
the evaluation data must hold) and defines ``estimate(data, *, ci_prob=0.95, rng=None, **options) -> xr.Dataset``.
``ROLE``, where a module has one, says what `cje_core.analyze` does with it; the others run where they are named.

What all of them take and give is not said again by each:

``data``
    evaluation data, see `cje_core.data.contract`
``ci_prob``
    probability of the intervals (over clusters of prompts)
``rng``
    source of randomness: a generator, or the seed of one; unused where nothing is random
``calibration``
    how the judge is calibrated, see `cje_core.calibration.calibrated`
``n_draws``
    draws of a posterior
``interval``
    {"auto", "wald", "logit", "clopper_pearson"}: ``auto`` is binomial tails on effective counts where own
    labels are binary, t limits with skewness and room for unseen drops where they are graded, and for other
    values binomial tails near an end of the oracle range, else the t interval (``wald``); see
    `cje_core.families.intervals`. Of a posterior
    {"eti", "hdi"}, equal-tailed or of highest density
returned
    the estimate contract, see `cje_core.inference.estimate`, of a posterior with ``draws(policy,
    replicate)``, and what a section "Returns" adds

Rule of this package: it holds estimators and nothing else; what they are assembled from is in `cje_core.families`.
"""

import importlib
import pkgutil
from functools import cache
from types import ModuleType
from typing import NamedTuple


class Role(NamedTuple):
    """What `cje_core.analyze` does with an estimator that is not named, and what tables call it."""

    label: str = ""  # in tables and figures; empty: the name of the module
    offered: str = (
        ""  # "always": exact on pooled data too (`cje_core.workflow.reading.pooled`); "logs": beside them
    )
    place: int = 99  # in tables and among colours; the first gives the values wherever it runs
    corrects: str = ""  # estimator whose borrowed values give way to this one's, where a policy has probes


def available() -> list[str]:
    """Names of all estimators, sorted: the module names of this directory.

    Examples
    --------
    >>> "direct" in available()
    True
    """
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


@cache  # a look at the directory for every fit costs a study more than some fits
def load(name: str) -> ModuleType:
    """Import the estimator ``name``; an unknown name raises with the names there are.

    Examples
    --------
    >>> sorted(load("direct").NEEDS)
    ['judge', 'oracle']
    """
    if name not in available():
        raise ValueError(f"no estimator named {name!r}; there are: {', '.join(available())}")
    return importlib.import_module(f"{__name__}.{name}")


def role(name: str) -> Role:
    """State what an estimator is to an analysis, with its label.

    Examples
    --------
    >>> role("labels_only").label, role("ppi").label
    ('labels only', 'ppi')
    """
    said: Role = getattr(load(name), "ROLE", Role())
    return said._replace(label=said.label or name)


def roles() -> dict[str, Role]:
    """Roles of all estimators by name, in the order of their places.

    Examples
    --------
    >>> list(roles())[:2], roles()["direct"].offered
    (['direct', 'direct_corrected'], 'always')
    """
    return {name: role(name) for name in sorted(available(), key=lambda name: role(name).place)}


def offered(*when: str) -> list[str]:
    """Names of the estimators that run unnamed, ``always`` or beside ``logs``.

    Examples
    --------
    >>> offered("always")
    ['direct', 'direct_corrected', 'labels_only', 'raw_judge']
    """
    return [name for name, said in roles().items() if said.offered in when]


def weights_logs(name: str) -> bool:
    """Say whether an estimator weights logged responses.

    Examples
    --------
    >>> weights_logs("stacked_dr"), weights_logs("direct")
    (True, False)
    """
    return "logp_target" in load(name).NEEDS


def alone(variable: str) -> str:
    """Name the control that uses one variable of the data and nothing else.

    Examples
    --------
    >>> alone("judge"), alone("oracle")
    ('raw_judge', 'labels_only')
    """
    return next(name for name in offered("always") if {variable} == load(name).NEEDS)


def corrector(name: str) -> str:
    """Name the estimator that stands in for ``name`` where a policy has probes; empty if none does.

    Examples
    --------
    >>> corrector("direct"), corrector("raw_judge")
    ('direct_corrected', '')
    """
    return next((other for other, said in roles().items() if said.corrects == name), "")
