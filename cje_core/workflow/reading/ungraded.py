"""What items without a number of the judge are worth by calibration: no score is a score of its own.

The oracle labelled some of them. As the calibrator gives a score its mean label, it gives their lack of one the mean
label of the labelled ones, mu: a policy's own where it has enough, else that of all that teach, which is borrowed. With
the share w of a policy's prompts ungraded its value v, of the graded, becomes ``(1 - w) v + w mu``. The two parts rest
on other responses, so their intervals are put together as of independent estimates (MOVER: Zou and Donner 2008), and
prompts that happened to be graded or not add ``w (1 - w)(v - mu)^2 / n``; the sum stays on the oracle's scale.
"""

import numpy as np
import pandas as pd
import xarray as xr

from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.checks import FloatArray
from cje_core.data.build import from_arrays
from cje_core.data.contract import teaching_policies
from cje_core.estimators import labels_only
from cje_core.inference.estimate import into_scale, wald
from cje_core.io.intake.foreign import LABEL


def ungraded_worth(
    data: xr.Dataset, gone: pd.DataFrame, value: xr.Dataset, share: dict[str, float]
) -> xr.Dataset:
    """Values with the ungraded at the mean label of the labelled among them.

    Parameters
    ----------
    data : xr.Dataset
        Evaluation data.
    gone : DataFrame
        Responses left out, ``policy, prompt_id``, and ``oracle_label`` where one was labelled.
    value : xr.Dataset
        What stands first, over ``policy``.
    share : dict of str to float
        Share of each policy's prompts that is ungraded.

    Returns
    -------
    xr.Dataset
        Over ``policy``, in the order of `share`: ``calibrated``, ``calibrated_interval(policy, ci_bound)``, NaN where
        too few were labelled, and ``ungraded_labels``, the labels behind it: of the policy, or of all that teach.

    Examples
    --------
    >>> from cje_core.data import from_arrays
    >>> data = from_arrays([[0.2, 0.8, 0.5]], policies=["a"], oracle=[[0.0, 1.0, 1.0]])
    >>> gone = pd.DataFrame({"policy": "a", "prompt_id": list("wxyz"), "oracle_label": [0.1, 0.3, 0.2, 0.2]})
    >>> value = xr.Dataset({"estimate": ("policy", [0.6]), "interval": (("policy", "ci_bound"), [[0.5, 0.7]])},
    ...                    coords={"policy": ["a"]}, attrs={"ci_prob": 0.95})
    >>> float(ungraded_worth(data, gone, value, {"a": 0.25}).calibrated[0].round(3))
    0.5
    """
    ci_prob = float(value.attrs.get("ci_prob", 0.95))
    scale = (float(data.attrs["oracle_range"][0]), float(data.attrs["oracle_range"][1]))
    held = gone.get(LABEL, pd.Series(np.nan, index=gone.index)).astype(float)
    told = gone.assign(oracle_label=held, policy=gone["policy"].astype(str))[held.notna()]
    all_that_teach = told[told["policy"].isin(teaching_policies(data))]
    found = []
    for policy, w in share.items():
        own = told[told["policy"] == policy]
        used = own if own["prompt_id"].nunique() >= MIN_LABELLED_CLUSTERS else all_that_teach
        mean, ends = _mean_label(used, scale, ci_prob)
        if w and policy in value["policy"].values.astype(str):
            at = value.sel(policy=policy)
            n = int(data["evaluated"].sel(policy=policy).any("draw").sum()) / max(1 - w, 1e-9)
            v, bounds = float(at["estimate"]), np.asarray(at["interval"].values, dtype=float)
            center, interval = _together(w, (v, bounds), (mean, ends), n, ci_prob)
            found.append((len(used), center, into_scale(interval, center, scale)))
        else:
            found.append((len(used) if w else 0, np.nan, np.full(2, np.nan)))
    return xr.Dataset(
        {
            "ungraded_labels": ("policy", [n for n, _, _ in found]),
            "calibrated": ("policy", [v for _, v, _ in found]),
            "calibrated_interval": (
                ("policy", "ci_bound"), np.array([b for _, _, b in found]).reshape(len(found), 2)
            ),
        },
        coords={"policy": list(share), "ci_bound": ["lower", "upper"]},
    )  # fmt: skip


def _mean_label(told: pd.DataFrame, scale: tuple[float, float], ci_prob: float) -> tuple[float, FloatArray]:
    """Mean label and interval by `cje_core.estimators.labels_only`; NaN of fewer prompts than it takes."""
    if told["prompt_id"].nunique() < MIN_LABELLED_CLUSTERS:
        return np.nan, np.full(2, np.nan)
    prompts, at = np.unique(told["prompt_id"].to_numpy(str), return_inverse=True)
    draw = told.groupby("prompt_id").cumcount().to_numpy()
    label = np.full((1, len(prompts), draw.max() + 1), np.nan)
    label[0, at, draw] = told[LABEL]
    score = np.where(np.isfinite(label), 0.0, np.nan)
    ungraded = from_arrays(score, policies=["ungraded"], prompts=prompts, oracle=label, oracle_range=scale)
    out = labels_only.estimate(ungraded, ci_prob=ci_prob)
    return float(out["estimate"].values[0]), np.asarray(out["interval"].values[0], dtype=float)


def _together(
    w: float, graded: tuple[float, FloatArray], rest: tuple[float, FloatArray], n: float, ci_prob: float
) -> tuple[float, FloatArray]:
    """``(1 - w) v + w mu`` and its interval."""
    (v, of_v), (mu, of_mu) = graded, rest
    spread = wald(0.0, np.sqrt(w * (1 - w) / n) * abs(v - mu), np.inf, ci_prob)[1]
    center = (1 - w) * v + w * mu
    half = np.sqrt(((1 - w) * (of_v - v)) ** 2 + (w * (of_mu - mu)) ** 2 + spread**2)
    return center, center + half * [-1, 1]
