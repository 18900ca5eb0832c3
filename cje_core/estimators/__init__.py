"""One file is one estimator: the directory listing is the registry.

Each module states its estimand, formula (with the paper's equation) and failure modes, declares ``NEEDS`` (what
the evaluation data must hold) and defines ``estimate(data, *, ci_prob=0.95, rng=None, **options) -> xr.Dataset``.

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
