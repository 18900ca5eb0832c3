"""A pass/fail oracle: what calibrating on some of its labels takes off the error of raw judge scores."""

import math

import numpy as np

from studies.ledger.claim import Claim, Evidence, Trial
from studies.ledger.worlds import FloatArray

# Table tab:mbpp-results: responses, labels, share of the RMSE taken off, RMSE of raw scores; the targets' pass rate.
RESPONSES, RAW, PASSES = 974, 0.048, 0.873
LABELS = (49, 97, 244, 487, 974)
PRINTED = (0.18, 0.32, 0.60, 0.70, 0.84)  # share of the RMSE that calibration takes off
ROOM = 0.20  # share of the printed RMSE within which it is met (ours)


def reductions(unexplained: float, raw: float = RAW) -> FloatArray:
    """Share of the raw scores' RMSE that a borrowed calibration takes off, by number of labels, in large samples.

    The error is that against the mean label of the same responses: ``E Var(Y|S) (1/m + 1/n)``, the calibrator's part
    from m labels of another policy of like scores and the noise of the target's own n labels. Raw scores have a bias.
    """
    noise = unexplained * PASSES * (1 - PASSES)
    return np.array([1 - math.sqrt(noise * (1 / m + 1 / RESPONSES)) / raw for m in LABELS])


def decide_reductions(trial: Trial) -> Evidence:
    """Whether one judge has all five of the table's reductions, over shares of the label that its scores explain."""
    printed = 1 - (1 - np.array(PRINTED)) / (2 if trial.planted else 1)
    shares = np.linspace(0.01, 1, 100)
    left = 1 - printed  # the printed RMSE, over that of raw scores
    off = np.array([np.abs((1 - reductions(float(u))) / left - 1) for u in shares])
    fewer = np.array(LABELS) < LABELS[-1]
    best = float(shares[off[:, fewer].max(axis=1).argmin()])
    ratio = (1 - reductions(best)) / left
    found, blind = reductions(best), reductions(1.0)
    told = ", ".join(f"{100 * r:.0f}% at {m}" for m, r in zip(LABELS, found, strict=True))
    return Evidence(
        holds=bool(off.max(axis=1).min() <= ROOM),
        measured=f"reductions {told} labels; our RMSE over the printed one {', '.join(f'{r:.2f}' for r in ratio)}",
        expected=", ".join(f"{100 * r:.0f}%" for r in printed) + f"; every RMSE within {100 * ROOM:.0f}%",
        text=f"Raw scores are biased by the printed {RAW}, which no label changes; the error of calibration falls like "
        f"sqrt(1/m + 1/n). With a judge that explains {100 * (1 - best):.0f}% of the label's variance it is lower by "
        f"{told} labels. With one that explains nothing it would be {100 * blind[0]:+.0f}% at {LABELS[0]} and "
        f"{100 * blind[-1]:+.0f}% at {LABELS[-1]}: most of the reduction is the labels', not the score's. It is as "
        f"large as the raw scores are biased: the table tells of this judge's bias, not of judges. At {LABELS[-1]} "
        f"labels "
        f"its error is {ratio[-1]:.2f} times the printed {RAW * (1 - PRINTED[-1]):.4f}; the judge whose largest "
        f"ratio is "
        f"least is {100 * off.max(axis=1).min():.0f}% off. Up to {LABELS[-2]} labels it is at most "
        f"{100 * np.abs(ratio[fewer] - 1).max():.0f}% off.",
        curve={
            "one judge": list(zip(map(float, LABELS), found.tolist(), strict=True)),
            "printed": list(zip(map(float, LABELS), PRINTED, strict=True)),
        },
        axes=("labels", "share of the RMSE taken off"),
    )


CLAIMS: tuple[Claim, ...] = (
    Claim(
        name="tab-mbpp",
        source="app:mbpp, tab:mbpp-results: calibration lowers the RMSE by 18 to 84%",
        statement="with a pass/fail oracle calibration lowers the RMSE of raw judge scores by 18 to 84%, more with "
        "more labels: one judge with the printed error of raw scores has all five, each RMSE within a fifth of the "
        "printed one",
        rule="large-sample error of a borrowed calibration over all shares of the label that scores can explain",
        why=r"$RMSE^2 = E\,Var(Y|S)\,(1/m + 1/n)$ against the mean label of the same responses; raw scores keep their "
        "bias. One unknown, the judge's strength, meets five numbers.",
        decide=decide_reductions,
        planted="half of each printed RMSE",
        kind="number",
    ),
)
