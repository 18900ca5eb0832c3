"""Evaluation data: the contract, its error, construction from arrays, cohorts, and the same data as flat arrays.

Rule of this package: of the project it imports `checks` alone. Simulators may import it, and nothing else of
``cje_core``, so that a truth cannot depend on an estimator.
"""

from cje_core.data.build import from_arrays
from cje_core.data.contract import (
    LOGGED,
    LOGGED_DIMS,
    LOGP_ROUNDING,
    RESPONSE,
    SCHEMA,
    check_data,
)
from cje_core.data.errors import DataError

__all__ = [
    "LOGGED",
    "LOGGED_DIMS",
    "LOGP_ROUNDING",
    "RESPONSE",
    "SCHEMA",
    "DataError",
    "check_data",
    "from_arrays",
]
