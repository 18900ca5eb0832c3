"""Teacher-forcing errors: a clone's ESS/n is hit exactly, moments of the noise, and the ledger."""

import numpy as np
import pytest

from cje_sim.teacher_forcing import TAILS, TeacherForcing, calibrate, clone_log_limit_ess, observe

LENGTHS = np.random.default_rng(0).integers(20, 60, 500)


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("tails", ["normal", "laplace", "contaminated"])
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"token_sd": 1.0},
        {"token_sd": 0.1, "sequence_sd": 1.0, "offset": 2.0},
        {"sequence_sd": 1.0, "mismatch_share": 0.05, "mismatch_per_token": -0.02},
    ],
)
def test_calibration_hits_the_limit_exactly(shape: dict[str, float], tails: str, passes: int) -> None:
    model = calibrate(TeacherForcing(tails=tails, **shape), 0.26, LENGTHS, passes=passes)
    assert np.exp(clone_log_limit_ess(model, LENGTHS, passes=passes)) == pytest.approx(0.26, rel=1e-10)


def test_normal_noise_gives_exp_of_minus_s_squared() -> None:
    assert clone_log_limit_ess(TeacherForcing(sequence_sd=0.7), LENGTHS) == pytest.approx(-0.49, rel=1e-12)
    assert clone_log_limit_ess(TeacherForcing(sequence_sd=0.7), LENGTHS, passes=2) == pytest.approx(-0.98)
    assert clone_log_limit_ess(TeacherForcing(token_sd=0.1), [64, 64]) == pytest.approx(-0.64, rel=1e-12)
    assert clone_log_limit_ess(TeacherForcing(tails="student_t", sequence_sd=0.1), LENGTHS) == -np.inf
    assert clone_log_limit_ess(TeacherForcing(tails="laplace", sequence_sd=1.0), LENGTHS) == -np.inf


@pytest.mark.parametrize("tails", ["normal", "laplace", "contaminated"])
def test_simulated_clone_reaches_the_limit(tails: str) -> None:
    """Both moments of the weight within 5 standard errors of their exact values."""
    model = calibrate(
        TeacherForcing(
            tails=tails, token_sd=0.02, sequence_sd=0.1, mismatch_share=0.1, mismatch_per_token=-0.02
        ),
        0.8,
        LENGTHS,
    )
    lengths = np.tile(LENGTHS, 1000)
    w = np.exp(observe(np.zeros(len(lengths)), lengths, model, rng=1).log_prob)
    # delta method for mean(w)^2 / mean(w^2)
    first, second = w.mean(), (w**2).mean()
    influence = 2 * first / second * (w - first) - first**2 / second**2 * (w**2 - second)
    error = influence.std() / np.sqrt(len(w))
    assert error < 0.01
    assert abs(first**2 / second - 0.8) < 5 * error
    assert abs(first**2 / second - 0.8 * 1.1) > 5 * error  # a planted error of 10% is noticed


@pytest.mark.parametrize("tails", TAILS)
def test_noise_has_the_declared_variance(tails: str) -> None:
    counts = np.full(200_000, 7)
    by_token = observe(np.zeros(200_000), counts, TeacherForcing(tails=tails, token_sd=0.3), rng=2).log_prob
    assert abs(by_token.mean()) < 5 * by_token.std() / np.sqrt(200_000)
    if tails != "student_t":  # its fourth moment is infinite
        square = by_token**2
        assert abs(square.mean() - 7 * 0.09) < 5 * square.std() / np.sqrt(200_000)


def test_ledger_names_every_row_that_was_changed() -> None:
    model = TeacherForcing(
        mismatch_share=0.2, mismatch_per_token=-0.5, missing_share=0.1, offset_per_token=0.01
    )
    log_prob, ledger = observe(np.full(5000, -30.0), np.full(5000, 40), model, rng=3)
    missing = ledger.loc[ledger["event"] == "missing", "row"].to_numpy()
    mismatched = ledger.loc[ledger["event"] == "tokenizer_mismatch", "row"].to_numpy()
    assert np.array_equal(np.flatnonzero(np.isnan(log_prob)), missing)
    shifted = np.flatnonzero(np.nan_to_num(log_prob, nan=-29.6) < -40)
    assert np.array_equal(np.setdiff1d(mismatched, missing), shifted)
    assert (ledger.loc[ledger["event"] == "tokenizer_mismatch", "nats"] == -20.0).all()
    clean = np.setdiff1d(np.arange(5000), ledger["row"])
    assert log_prob[clean] == pytest.approx(-29.6)
    for rows, share in ((missing, 0.1), (mismatched, 0.2)):
        assert abs(len(rows) / 5000 - share) < 5 * np.sqrt(share * (1 - share) / 5000)


def test_exact_by_default_and_pure() -> None:
    exact = np.array([-3.0, -4.0])
    got = observe(exact, [2, 2], TeacherForcing(), rng=0)
    assert np.array_equal(got.log_prob, exact)
    assert len(got.ledger) == 0
    noisy = TeacherForcing(token_sd=1.0)
    assert np.array_equal(
        observe(exact, [2, 2], noisy, rng=5).log_prob, observe(exact, [2, 2], noisy, rng=5).log_prob
    )
    assert np.array_equal(exact, [-3.0, -4.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TeacherForcing(token_sd=-1.0), ">= 0"),
        (lambda: TeacherForcing(missing_share=1.0), r"\[0, 1\)"),
        (lambda: TeacherForcing(offset=np.inf), "finite"),
        (lambda: TeacherForcing(tails="cauchy"), "one of normal"),
        (lambda: observe([0.0], [1, 2], TeacherForcing()), r"both must be \(n,\)"),
        (lambda: observe([0.0], [0], TeacherForcing()), "at least 1 token"),
        (lambda: calibrate(TeacherForcing(), 1.0, [5]), r"\(0, 1\)"),
        (lambda: calibrate(TeacherForcing(tails="student_t"), 0.5, [5]), "no limit"),
        (
            lambda: calibrate(TeacherForcing(mismatch_share=0.5, mismatch_per_token=-1.0), 0.9, [50]),
            "alone push",
        ),
        (lambda: clone_log_limit_ess(TeacherForcing(), [5], passes=3), "1 or 2"),
    ],
)
def test_bad_input_names_the_allowed_range(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
