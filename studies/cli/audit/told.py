"""What an audit says: its page, its JSON, its figure, and whether it found anything."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from rich.console import Group

from cje_core.checks import probability
from cje_core.data import DataError
from studies.cli.wide import Wide


class Told(NamedTuple):
    """Everything that a command of ``cje-lab audit`` puts out."""

    name: str
    page: Group
    json: dict[str, Any]
    found: bool
    draw: Callable[[], Any] | None = None  # axes, or an array of them

    def figure(self) -> bytes:
        """The figure as PNG."""
        import matplotlib as mpl

        from cje_core.figures.style import STYLE, to_files
        from studies.cli.analysis.panels import image

        assert self.draw is not None
        with to_files(), mpl.rc_context({**STYLE, "figure.dpi": 150}):
            figure = np.ravel(self.draw())[0].get_figure(root=True)
            return image(figure)


def in_unit(value: float, name: str) -> None:
    """Stop at a level that is no probability."""
    probability(value, name, DataError)


def plain(value: Any) -> Any:
    """A JSON value of one entry of a Dataset: null for NaN and for what is endless."""
    if isinstance(value, np.ndarray):
        return [plain(one) for one in value.tolist()] if value.ndim else plain(value.item())
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def records(found: xr.Dataset, *dims: str) -> list[dict[str, Any]]:
    """One object for each entry of the first dimension, those of the next nested in it.

    Examples
    --------
    >>> records(xr.Dataset({"x": ("policy", [1.0, np.nan])}, {"policy": ["a", "b"]}), "policy")
    [{'policy': 'a', 'x': 1.0}, {'policy': 'b', 'x': None}]
    """
    dim, *rest = dims
    out = []
    for k, name in enumerate(found[dim].values.tolist()):
        at = found.isel({dim: k})
        nested = [str(v) for v in at.data_vars if rest and rest[0] in at[v].dims]
        flat = {str(v): plain(at[v].values) for v in at.data_vars if str(v) not in nested}
        inner = {f"by_{rest[0]}": records(at[nested], *rest)} if nested else {}
        out.append({dim: plain(name), **flat, **inner})
    return out


def table(*columns: str) -> Wide:
    """A table whose first column folds."""
    shown = Wide()
    for k, column in enumerate(columns):
        shown.add_column(column, overflow="fold", no_wrap=k > 0, **({"min_width": 8} if k == 0 else {}))
    return shown


def number(value: Any, form: str = ".3f") -> str:
    """A number, or a dash."""
    return f"{float(value):{form}}" if math.isfinite(float(value)) else "-"


def with_interval(at: xr.Dataset, name: str = "residual") -> str:
    """A value with its interval in brackets."""
    low, high = at["interval"].values
    return f"{number(at[name], '+.3f')} [{number(low, '+.3f')}, {number(high, '+.3f')}]"


def p_text(p: Any) -> str:
    """Three decimals; below .001 no more than that."""
    return "-" if math.isnan(float(p)) else "<0.001" if float(p) < 0.001 else f"{float(p):.3f}"
