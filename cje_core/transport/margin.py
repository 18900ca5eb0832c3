"""The margin of an audit: how large a mean residual is harmless, in units of the oracle scale."""

MARGIN = 0.05  # where none is declared, as a share of the oracle scale's width


def check_margin(margin: float, error: type[ValueError] = ValueError) -> None:
    """Raise `error` unless a margin is a positive, finite number.

    Examples
    --------
    >>> check_margin(0.0)
    Traceback (most recent call last):
    ValueError: margin=0: it must be a positive number in units of the oracle scale
    """
    if not 0 < margin < float("inf"):
        raise error(f"margin={margin:g}: it must be a positive number in units of the oracle scale")


def harmless_margin(
    margin: float | None, oracle_range: tuple[float, float], error: type[ValueError] = ValueError
) -> float:
    """Return the declared margin, checked, or 5% of the width of the oracle scale.

    Examples
    --------
    >>> harmless_margin(None, (1.0, 5.0)), harmless_margin(0.5, (1.0, 5.0))
    (0.2, 0.5)
    """
    width = oracle_range[1] - oracle_range[0]
    if margin is None:
        return MARGIN * float(width)
    check_margin(margin, error)
    if margin >= width:
        raise error(f"margin={margin:g}: it must be smaller than the oracle scale, which is {width:g} wide")
    return margin
