"""Misclassification correction beside calibration: shifts of prevalence, the 1/J law, and widths."""

import math

import numpy as np
from scipy import stats

from cje_core.streams import generator
from cje_sim.exact.judged_means import BinaryJudge, own_labels, two_phase
from studies.ledger.claim import Claim, ClaimError, Evidence, Params, Sides, Trial
from studies.ledger.own import decided, first_broken
from studies.ledger.worlds import Family, FloatArray, batches, over_worlds

NATURAL = 0.505  # share of good responses in the paper's test set
PRINTED = 0.41  # Youden's index of the paper's judge
OFF = 0.12  # share by which a slope may be off (ours)
WEAK = math.sqrt(OFF / (1 + OFF))  # J at which J^2 / (1 - J^2), what the slope is beyond -1, is that share


def judge(z: FloatArray, size: int) -> dict[str, float]:
    """Sensitivity, specificity, and shares of good responses in calibration and test."""
    share = 1 / (1 + np.exp(-z))
    return {
        "sensitivity": 0.5 + 0.49 * float(share[0]),
        "specificity": 0.51 + 0.48 * float(share[1]),
        "taught": float(share[2]),
        "tested": float(share[3]),
    }


JUDGES = Family((1,), lambda size: 4, judge)


def taught(w: Params) -> BinaryJudge:
    """The judge on the calibration set."""
    found = BinaryJudge(w["taught"], w["sensitivity"], w["specificity"])
    if not (0.001 < w["taught"] < 0.999 and 0.001 < w["tested"] < 0.999 and found.youden > 0.005):
        raise ClaimError("the judge or the prevalence is degenerate")
    return found


def corrected(w: Params) -> Sides:
    """Limit of Rogan-Gladen under shifted prevalence, against the truth."""
    one = taught(w)
    passed = one._replace(good=w["tested"]).passed
    return Sides((passed + one.specificity - 1) / one.youden, w["tested"])


def calibrated(w: Params) -> Sides:
    """Limit of the borrowed calibration under shifted prevalence, against the truth."""
    one = taught(w)
    passed = one._replace(good=w["tested"]).passed
    bad, good = one.values
    return Sides((1 - passed) * bad + passed * good, w["tested"])


def calibrated_by_simulation(w: Params) -> Sides:
    """The same from simulated labels and verdicts of both sets."""

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        sets = []
        for good in (w["taught"], w["tested"]):
            y = rng.random(20_000) < good
            sets.append((y, rng.random(20_000) < np.where(y, w["sensitivity"], 1 - w["specificity"])))
        (y, z), (truth, verdict) = sets
        fit = np.array([y[~z].mean(), y[z].mean()])
        return float(fit[verdict.astype(int)].mean()), float(truth.mean())

    return batches(batch, generator(0, "claims", "misclassification", "shift"))


def graded_bias(signal: float, taught_share: float, points: int = 4001) -> float:
    """Bias of a borrowed calibration of a graded judge: scores normal around 0 or `signal` for bad and good "
    "responses.
    """
    s = np.linspace(-6, signal + 6, points)
    good, bad = stats.norm.pdf(s, signal), stats.norm.pdf(s)
    fit = taught_share * good / (taught_share * good + (1 - taught_share) * bad)
    density = NATURAL * good + (1 - NATURAL) * bad
    return float(np.trapezoid(fit * density, s) - NATURAL)


def decide_shift_law(trial: Trial) -> Evidence:
    """Straightness of the bias in the mismatch, and the judge with which it is -.14 and +.14."""
    low, high = 0.01, 6.0
    for _ in range(50):
        signal = (low + high) / 2
        low, high = (signal, high) if graded_bias(signal, 0.30) < -0.14 else (low, signal)
    shares = np.array([0.30, 0.40, 0.505, 0.60, 0.70])
    bias = np.array([graded_bias(signal, p) for p in shares])
    line = np.polynomial.polynomial.Polynomial.fit(shares - NATURAL, bias, 1).convert()
    bend = float(np.abs(bias - line(shares - NATURAL)).max() / np.abs(bias).max())
    good = bend < 0.05 and abs(bias[-1] - (0.28 if trial.planted else 0.14)) < 0.01
    auc = stats.norm.cdf(signal / math.sqrt(2))
    return Evidence(
        holds=bool(good),
        measured=f"+{bias[-1]:.3f} at .70 where it is {bias[0]:.3f} at .30; largest bend {100 * bend:.1f}% of the "
        f"largest "
        "bias",
        expected="-.14 and +.14, linear",
        text=f"A graded binormal judge whose bias is -.14 with 30% good responses in calibration and "
        f"{100 * NATURAL:.1f}% in "
        f"test (area under its curve {auc:.2f}) has +{bias[-1]:.3f} at 70%; over 30 to 70% the bias is linear up to "
        f"{100 * bend:.1f}% of its largest value, slope {line.coef[1]:.2f} per unit of mismatch.",
        curve={"bias": list(zip(shares.tolist(), bias.tolist(), strict=True))},
        axes=("share of good responses in calibration", "bias"),
    )


def rg_error(youden: float, n: float = 1e6, m: float = 500) -> float:
    """Standard error of Rogan-Gladen with m own labels, symmetric judge, half of the responses good."""
    rate = (1 + youden) / 2
    return own_labels(BinaryJudge(0.5, rate, rate), n, m)["rogan_gladen"].std_error


def local_slope(youden: float, step: float = 1e-4) -> float:
    """Slope of log standard error in log J at one J, by a central difference."""
    up, down = (math.log(rg_error(youden * math.exp(k * step))) for k in (1, -1))
    return (up - down) / (2 * step)


def decide_inverse(trial: Trial) -> Evidence:
    """Slope of log standard error in log J."""
    youden = np.array([0.02, 0.05, 0.1, 0.2, 0.41, 0.6, 0.8])
    error = np.array([rg_error(j) for j in youden]) * (youden if trial.planted else 1)
    slope = np.diff(np.log(error)) / np.diff(np.log(youden))
    weak = np.linspace(0.01, WEAK, 50)
    local = np.array([local_slope(float(j)) for j in weak])
    return Evidence(
        holds=bool((np.abs(slope + 1) < 0.05).all()),
        condition=f"J is at most {WEAK:.3f}, within {100 * OFF:.0f}% of the slope"
        if not trial.planted
        else "",
        holds_under=bool((np.abs(local + 1) < OFF).all()),
        measured="slope of log SE in log J: " + ", ".join(f"{s:.2f}" for s in slope),
        expected="-1",
        text="Exact large-sample standard errors, symmetric judges, half of the responses good, 500 labels. "
        "Between J = "
        + ", ".join(f"{j:g}" for j in youden)
        + " the slopes of the chords are "
        + ", ".join(f"{s:.2f}" for s in slope)
        + f". The numerator is sqrt(1 - J^2), so that the local slope is -1 - J^2 / (1 - J^2): "
        f"{local_slope(PRINTED):.2f} "
        f"at the paper's J = {PRINTED:g}, within {100 * OFF:.0f}% of -1 up to J = {WEAK:.3f}. The law is that of weak "
        "judges, and good ones do better than it says.",
        counterexample=first_broken(({"youden": float(j)} for j in youden), inverse, "=="),
        curve={"log10 SE": [(math.log10(j), math.log10(e)) for j, e in zip(youden, error, strict=True)]},
        axes=("log10 J", "log10 SE"),
    )


def inverse(w: Params) -> Sides:
    """J times the standard error at J, against half of J times that at J / 2, in units of the latter."""
    j = w["youden"]
    if not 0 < j <= 1:
        raise ClaimError("Youden's index of a judge that helps lies in (0, 1]")
    return Sides(j * rg_error(j), j / 2 * rg_error(j / 2))


def inverse_by_simulation(w: Params) -> Sides:
    """The same from simulated labels; the verdict's pass rate is known."""

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        out = []
        for j in (w["youden"], w["youden"] / 2):
            rate = (1 + j) / 2
            y = rng.random((600, 500)) < 0.5
            z = rng.random(y.shape) < np.where(y, rate, 1 - rate)
            se = (z & y).sum(axis=1) / y.sum(axis=1)
            sp = (~z & ~y).sum(axis=1) / (~y).sum(axis=1)
            theta = (0.5 + sp - 1) / (se + sp - 1)
            out.append(j * float(np.subtract(*np.quantile(theta, [0.8413, 0.1587])) / 2))
        return out[0], out[1]

    return batches(batch, generator(0, "claims", "misclassification", "inverse"))


def width_ratio(w: Params) -> Sides:
    """Rogan-Gladen's standard error over the efficiency bound's with the same m own labels, against 9, from above."""
    one = BinaryJudge(w["tested"], w["sensitivity"], w["specificity"])
    found = own_labels(one, 9999, 500)
    return Sides(9.0, found["rogan_gladen"].std_error / found["direct"].std_error)


def graded_ratio(youden: float, points: int = 4001) -> float:
    """Rogan-Gladen's standard error over the bound's for a graded binormal judge, cut where its J is largest."""
    signal = 2 * float(stats.norm.ppf((1 + youden) / 2))
    s = np.linspace(-8, signal + 8, points)
    good, bad = NATURAL * stats.norm.pdf(s, signal), (1 - NATURAL) * stats.norm.pdf(s)
    left = float(np.trapezoid(good * bad / (good + bad), s))  # E Var(Y | S)
    bound = two_phase(NATURAL * (1 - NATURAL), left, 9999, 500)
    rate = (1 + youden) / 2
    error = own_labels(BinaryJudge(NATURAL, rate, rate), 9999, 500)["rogan_gladen"].std_error
    return error / math.sqrt(bound)


def decide_width(trial: Trial) -> Evidence:
    """Width ratio at J = .41 for graded judges and the best of verdicts, and the J at which nine times are reached."""
    grid = np.linspace(0.42, 0.99, 200)
    ratio = [
        width_ratio({"tested": 0.505, "sensitivity": se, "specificity": 1.41 - se}).right
        for se in grid
        if 0.41 < se < 1
    ]
    graded = graded_ratio(0.41)
    most = max(*ratio, graded)
    low, high = 0.01, 0.41
    for _ in range(50):
        middle = (low + high) / 2
        r = (1 + middle) / 2
        found = width_ratio({"tested": 0.505, "sensitivity": r, "specificity": r}).right
        low, high = (middle, high) if found > 9 else (low, middle)
    symmetric = width_ratio({"tested": 0.505, "sensitivity": 0.705, "specificity": 0.705}).right
    return Evidence(
        holds=bool(most >= (1e9 if trial.planted else 9)),
        measured=f"{graded:.2f} for a graded judge, {symmetric:.2f} to {max(ratio):.2f} for its verdict, at J = .41",
        expected="9",
        text=f"A graded binormal judge whose verdict has J = .41 at best: Rogan-Gladen on the verdict is "
        f"{graded:.2f} "
        f"times as wide as the efficiency bound on the score. With the same 500 "
        f"labels of each policy, the binary verdict and J = .41, Rogan-Gladen is "
        f"{symmetric:.2f} times "
        f"as wide as the efficiency bound for a symmetric judge and at most {max(ratio):.2f} times for any other; nine "
        f"times are "
        f"reached at J = {low:.2f}. What labels are borrowed from other policies is not in this comparison.",
    )


CLAIMS: tuple[Claim, ...] = (
    over_worlds(
        name="rg-shift",
        source="Distribution shift robustness: Rogan-Gladen stays unbiased",
        statement="with rates shared by both sets, the limit of Rogan-Gladen is the test share whatever the "
        "calibration "
        "share",
        why=r"$\hat p = \theta Se + (1 - \theta)(1 - Sp)$ is solved for $\theta$; the calibration share does not "
        r"enter.",
        family=JUDGES,
        sides=corrected,
        relation="==",
        planted="right side times 1.1",
        falsified=lambda s: Sides(s.left, 1.1 * s.right),
    ),
    over_worlds(
        name="calibration-shift",
        source="Distribution shift robustness: calibration is biased under a shift of prevalence",
        statement="with rates shared by both sets, the limit of the borrowed calibration is the test share",
        why=r"$P(Y=1|\hat Z)$ moves with the prevalence; only where the shares agree is it the test set's.",
        family=JUDGES,
        sides=calibrated,
        relation="==",
        second=calibrated_by_simulation,
        condition="both sets have the same share of good responses",
        restrict=lambda w: {**w, "tested": w["taught"]},
        planted="right side times 1.2",
        falsified=lambda s: Sides(s.left, 1.2 * s.right),
    ),
    Claim(
        name="calibration-shift-linear",
        source="Distribution shift robustness: -.14 at 30%, +.14 at 70%, linear in the mismatch",
        statement="the bias of a borrowed calibration is -.14 at 30% and +.14 at 70% good responses, and linear "
        "between",
        rule="quadrature for a binormal judge; its strength is the one that gives -.14",
        why="The posterior is a Möbius function of the prior odds, nearly straight in the middle.",
        decide=decide_shift_law,
        planted="+.28 at 70%",
        kind="number",
    ),
    decided(
        name="rg-inverse-youden",
        source="Comparison to misclassification correction: SE scales like 1/J",
        statement=r"the standard error of Rogan-Gladen is proportional to $1/J$",
        rule="exact large-sample variance over J; simulated labels",
        why=r"$n$ large: $m\,Var = E Var(Z|Y)/J^2 = (1 - J^2)/(4J^2)$ for a symmetric judge.",
        decide=decide_inverse,
        sides=inverse,
        second=inverse_by_simulation,
        relation="==",
        planted="SE times J",
        kind="theory",
    ),
    Claim(
        name="rg-nine-times",
        source="tab:binary-comparison: intervals nine times narrower at J = .41",
        statement="with the same labels, calibration on the graded score is nine times narrower than Rogan-Gladen on "
        "its verdict at J = .41",
        rule="exact large-sample variances of a binormal judge, and over all binary judges of that J",
        why="Their squared errors' label parts stand as one to the squared correlation of verdict and label.",
        decide=decide_width,
        planted="a billion times narrower",
        kind="number",
    ),
)
