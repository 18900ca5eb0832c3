"""The error of evaluation data."""


class DataError(ValueError):
    """Evaluation data that cannot be used as given; the message is one line and says the mend."""


def said(error: BaseException) -> str:
    r"""What an error of another library says, on one line, or its name where it says nothing.

    Examples
    --------
    >>> said(OSError("lost.\n\nsee the log")), said(KeyError())
    ('lost. see the log', 'KeyError')
    """
    return " ".join(str(error).split()) or type(error).__name__


def line(text: str, width: int) -> str:
    """Text on one line, shortened to `width`."""
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 3]}..."
