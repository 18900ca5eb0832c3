"""Standard errors and degrees of freedom of Direct's own-label routes, against loops over rows and clusters."""

import numpy as np
import oracles_uncertainty as slow
import pytest
from oracles_uncertainty import row_dicts, table

from cje_core.estimators import direct
from cje_core.io import from_frame

ROUTES = {
    "hajek": {},
    "ht": {"correction": "horvitz_thompson"},
    "tmle": {"correction": "tmle"},
}


def world(seed, *, binary=False, share=0.7):
    """Labels of both policies with unequal probabilities, up to three draws, clusters of up to three prompts, ties."""
    frame = table(n=40, seed=seed, own=("a", "b"), share=share, draws=3)
    frame["label_prob"] = 0.3 + 0.5 * frame["judge_score"]
    frame["cluster"] = np.random.default_rng(seed).integers(0, 17, 40)[frame.prompt_id.str[1:].astype(int)]
    if binary:
        frame["oracle_label"] = frame.oracle_label.where(
            frame.oracle_label.isna(), frame.oracle_label > 0.5
        ).astype(float)
    return from_frame(frame, oracle_range=(0, 1))


def compare(out, dicts, folds, kind):
    for policy in "ab":
        mine = out.sel(policy=policy)
        expected = slow.own_error(dicts, policy, folds, kind)
        np.testing.assert_allclose([mine.std_error, mine.df], expected, rtol=1e-9)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("kind", ROUTES)
@pytest.mark.parametrize("seed", range(3))
def test_errors_of_own_label_routes_are_their_definition(seed, kind, binary):
    data = world(seed, binary=binary)
    compare(direct.estimate(data, power_tuned=False, **ROUTES[kind]), *row_dicts(data), kind)


def test_a_fully_labelled_policy_is_its_weighted_label_mean():
    data = world(0, share=2.0)
    out = direct.estimate(data)
    assert (out.route == "label_mean").all()
    compare(out, *row_dicts(data), "label_mean")
