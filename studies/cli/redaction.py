"""What may be shown to others: ids of prompts salted, or withheld.

The salt is read from a file, or is the text of ``CJE_LAB_SALT``; no option takes it as text, since command lines end up
in histories and logs.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from cje_core.io.schema.redacted import check_salt, read_salt, redact

VARIABLE = "CJE_LAB_SALT"
FIELDS = ("prompt_id", "probes_of_unknown_prompts")  # of the JSON that the commands print and write


def salt_of(path: Path | None) -> str | None:
    """Return the salt in a file, else of the environment; None where neither is given."""
    if path is not None:
        return read_salt(path)
    text = os.environ.get(VARIABLE, "").strip()
    return check_salt(text, VARIABLE) if text else None


def hidden(told: Any, salt: str | None) -> Any:
    """Return a JSON value with the ids of prompts redacted; null in their place without a salt.

    Examples
    --------
    >>> hidden({"left_out": [{"row": 3, "prompt_id": "p1"}]}, None)
    {'left_out': [{'row': 3, 'prompt_id': None}]}
    """
    if isinstance(told, list):
        return [hidden(one, salt) for one in told]
    if not isinstance(told, dict):
        return told
    out = {}
    for key, value in told.items():
        if key in FIELDS:
            names = value if isinstance(value, list) else [value]
            # left out without an id: a whole file
            found = redact([None if name in (None, "") else str(name) for name in names], salt)
            out[key] = found if isinstance(value, list) else found[0]
        else:
            out[key] = hidden(value, salt)
    return out


def hidden_prompts(data: xr.Dataset, salt: str | None) -> xr.Dataset:
    """Return a Dataset with its prompts redacted, in the order of the new ids; as it is without a salt."""
    if salt is None or "prompt" not in data.coords:
        return data
    names = redact(data["prompt"].values.astype(str).tolist(), salt)
    return data.assign_coords(prompt=np.array(names, dtype=str)).sortby("prompt")
