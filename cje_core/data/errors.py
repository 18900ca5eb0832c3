"""The error of evaluation data."""


class DataError(ValueError):
    """Evaluation data that cannot be used as given; the message is one line and says the mend."""
