"""The frame that all worlds share.

A world file states its *law*, which draws complete responses to given prompts, and its *truth*. ``simulate =
world(law)`` adds what every world has: the number of prompts, which responses an oracle labels and how noisily,
how alike the responses to one prompt are, and the generator. A file anywhere becomes a world in this way; the
registry `cje_sim.scenarios` is no more than a directory of such files.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.data.block import Block
from cje_sim.frame import BEFORE, FRAME, LABELS, described, refuse
from cje_sim.judges import (
    LINKS,
    FloatArray,
    draw_oracle,
    expected_over_scores,
    oracle_mean,
    prompt_uniforms,
    score_quantile,
)
from cje_sim.labelling import Labelling, choose, label
from cje_sim.signatures import bind, join_doc, refuse_unknown, split_doc

# Of each policy, the base first: (a, b) of its Kumaraswamy law; the same, followed by more parameters.
ScoreLaw = Mapping[str, tuple[float, float]]
Laws = Mapping[str, tuple[Any, ...]]


# Parameters of many laws, described once.
COMMON = {
    "score_law": "score_law : mapping of policy to (a, b)\n    Kumaraswamy law of its scores, the base policy first.",
    "link": "link, low, high : str, float, float\n    Shape of the oracle's mean, see `cje_sim.judges.oracle_mean`.",
    "grid": "grid : str, optional\n    Reporting scale of the judge, one of `cje_sim.judges.GRIDS`.",
}


@dataclass(frozen=True)
class Prompts:
    """The prompts that a law answers.

    Parameters
    ----------
    n : int
        How many.
    rng : Generator
        Source of all randomness of the law.
    corr : float
        Correlation of responses to one prompt, on the normal scale; 0 where the world has no ``prompt_corr``.
    """

    n: int
    rng: np.random.Generator
    corr: float = 0.0

    def uniforms(self, policies: int, draws: int | None = None, **clusters: Any) -> FloatArray:
        """Tied uniforms, shape (policies, n) or (policies, n, draws), see `cje_sim.judges.prompt_uniforms`."""
        shape = (policies, self.n) if draws is None else (policies, self.n, draws)
        return prompt_uniforms(shape, self.rng, self.corr, **clusters)

    def scores(self, laws: Laws, draws: int | None = None, **clusters: Any) -> FloatArray:
        """Scores on such uniforms, Kumaraswamy with the first two entries of each policy's law."""
        u = self.uniforms(len(laws), draws, **clusters)
        a, b = (column(laws, k).reshape(-1, *(1,) * (u.ndim - 1)) for k in (0, 1))
        return score_quantile(u, a, b)


@dataclass(frozen=True, kw_only=True)
class Responses:
    """A complete draw: what every policy answered, and all that a judge and an oracle would say of it.

    Parameters
    ----------
    policies : iterable of str
        Names; the first is the base policy, whose responses are the logged ones where there are logs.
    judge : array, shape (policies, n) or (policies, n, draws)
    mean : array, broadcast to `judge`, optional
        ``E[Y | ...]`` of each response; the frame draws labels around it with ``spread`` and ``atoms``.
    noise : array shaped like `judge`, optional
        Uniforms behind these labels; independent by default.
    oracle : array shaped like `judge`, optional
        The labels themselves, from a law that draws its own, in place of `mean`.
    true_reward : array, broadcast to `judge`, optional
        ``E[Y | Z]`` given all that an estimator can see, where it is known.
    judge_range : pair of float
    cluster : int array, shape (n,), optional
        Cluster codes 0, 1, ...
    covariate : mapping of name to array, broadcast to `judge`
    surprisal : array shaped like `judge`, optional
        Nats per token.
    log_ratio : array shaped like `judge`, optional
        Log-likelihood of each response under its policy less that under the logger, nats.
    logp_target : array, shape (policies, n), optional
        Log-likelihoods of the base policy's responses; with them come logs, and the base policy is the logger.
    n_tokens : array, broadcast to (n,)
        Lengths of these responses.
    finish : function (data, rng) -> data, optional
        What happens to the data after they were labelled, such as errors of recording.
    """

    policies: Iterable[str]
    judge: FloatArray
    mean: npt.ArrayLike | None = None
    noise: FloatArray | None = None
    oracle: FloatArray | None = None
    true_reward: npt.ArrayLike | None = None
    judge_range: tuple[float, float] = (0.0, 1.0)
    cluster: npt.NDArray[np.intp] | None = None
    covariate: Mapping[str, npt.ArrayLike] = field(default_factory=dict)
    surprisal: FloatArray | None = None
    log_ratio: FloatArray | None = None
    logp_target: FloatArray | None = None
    n_tokens: npt.ArrayLike = 1
    finish: Callable[[xr.Dataset, np.random.Generator], xr.Dataset] | None = None

    def __post_init__(self) -> None:
        """Stop at labels without a law, or with two."""
        if (self.mean is None) == (self.oracle is None):
            raise ValueError(
                "responses need either `mean`, around which labels are drawn, or the labels `oracle`"
            )


def world(law: Callable[..., Responses], **defaults: Any) -> Callable[..., xr.Dataset]:
    """``simulate`` of the world with a given law.

    Parameters
    ----------
    law : function (prompts, <world parameters>) -> Responses
        A module-level function; each parameter is a keyword with a default. Its docstring describes them.
    **defaults
        The world's defaults of keywords in `FRAME`. None, for those that not every world has: this one has no such
        keyword.

    Returns
    -------
    function
        ``simulate(*, n, oracle_fraction, label_design, label_scheme, n_probes, <world parameters>, spread, atoms,
        prompt_corr, rng) -> xr.Dataset``, evaluation data. Its signature and docstring are real, and it pickles
        when the law's module binds it to the name ``simulate``. ``simulate.block(rngs, **keywords)`` draws one data set
        per generator, the same numbers, into a `cje_core.data.block.Block`; None where a block cannot hold them.

    Raises
    ------
    TypeError
        Now, for a law with a parameter that has no default or belongs to the frame, a default of no keyword, and a
        keyword taken away that every world has; in a call, for an unknown keyword and for labels that take no noise
        from the frame that offers it.
    ValueError
        In a call, before anything is drawn, for a number of prompts, labels or noise that cannot be.

    Examples
    --------
    >>> from cje_sim.scenarios import weak_judge
    >>> simulate = world(weak_judge.law, oracle_fraction=0.5)  # the same world with another default
    >>> int(simulate(n=40, rng=1)["labelled"].sum("prompt").max())
    20
    """
    own = list(inspect.signature(law).parameters.values())[1:]
    for parameter in own:
        if parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is parameter.empty:
            raise TypeError(f"{law.__module__}: {parameter} of the law must be a keyword with a default")
        if parameter.name in FRAME:
            raise TypeError(
                f"{law.__module__}: {parameter.name!r} belongs to the frame, see cje_sim.world.world"
            )
    if unknown := set(defaults) - set(FRAME):
        raise TypeError(f"{law.__module__}: {min(unknown)!r} is no keyword of the frame: {', '.join(FRAME)}")
    for name in BEFORE:
        if defaults.get(name, "") is None:
            raise TypeError(
                f"{law.__module__}: {name} is None, and every world has one: leave it out, or set a default"
            )
    frame = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=keyword.kind)
        for name, keyword in FRAME.items()
        if (default := defaults.get(name, keyword.default)) is not None or name not in defaults
    ]

    def draws(
        arguments: Mapping[str, Any], rngs: Iterable[np.random.Generator | int | None]
    ) -> Iterator[Drawn]:
        """A draw by each generator; the keywords are read once."""
        refuse_unknown(law.__module__, "simulate", signature, arguments)
        bound = signature.bind(**arguments)
        bound.apply_defaults()
        given = {name: value for name, value in bound.arguments.items() if name != "rng"}
        labelling = Labelling(*(given.pop(name) for name in LABELS))
        noise: dict[str, float] = {n: given.pop(n) for n in ("spread", "atoms") if n in given}
        n, corr = given.pop("n"), given.pop("prompt_corr", 0.0)
        refuse(n, corr, **noise)
        for rng in map(np.random.default_rng, rngs):
            responses = law(Prompts(n, rng, corr), **given)
            if noise and responses.oracle is not None:
                raise TypeError(
                    f"the law of {law.__module__} draws its own labels, which spread and atoms cannot change: "
                    "world(law, spread=None, atoms=None) takes them away"
                )
            yield Drawn(responses, labelling, noise, rng)

    def simulate(**arguments: Any) -> xr.Dataset:
        return collect(next(draws(arguments, [arguments.get("rng")])))

    def block(rngs: Iterable[np.random.Generator], **arguments: Any) -> Block | None:
        sources = list(rngs)
        return collect_block(draws(arguments, sources), len(sources))

    before, after = ([p for p in frame if (p.name in BEFORE) == first] for first in (True, False))
    signature = inspect.Signature([*before, *own, *after], return_annotation=xr.Dataset)
    summary, own_text = split_doc(law)
    told = [
        *map(described, before),
        *(
            text
            for name, text in COMMON.items()
            if name in signature.parameters and f"{name} :" not in own_text
        ),
        *filter(None, [own_text]),
        *map(described, after),
    ]
    doc = join_doc(summary, "\n".join(told))
    doc += "\n\nReturns\n-------\nxr.Dataset\n    Evaluation data, see `cje_core.data`."
    bound: Callable[..., xr.Dataset] = bind(simulate, "simulate", law.__module__, signature, doc)
    bound.block = block  # type: ignore[attr-defined]
    return bound


class Drawn(NamedTuple):
    """What a law drew, and what the frame still has to do with it."""

    responses: Responses
    labelling: Labelling
    noise: Mapping[str, float]  # spread and atoms, where the frame draws the labels
    rng: np.random.Generator

    def uniforms(self) -> FloatArray | None:
        """Uniforms behind the labels; None where the law drew these itself."""
        if self.responses.oracle is not None:
            return None
        noise = self.responses.noise
        return self.rng.random(self.responses.judge.shape) if noise is None else noise


def labels_around(mean: FloatArray, u: FloatArray, *, spread: float = 0.9, atoms: float = 0.05) -> FloatArray:
    """`cje_sim.judges.draw_oracle` with the frame's defaults."""
    return draw_oracle(mean, u, spread=spread, atoms=atoms)


def collect(drawn: Drawn) -> xr.Dataset:
    """Evaluation data from a draw: noise of the labels, choice of the visible ones, logs.

    With logs, ``logged_judge``, ``logged_oracle`` and ``logged_covariate`` are those of the base policy's first
    responses.
    """
    responses, labelling, noise, rng = drawn
    judge, oracle, u = responses.judge, responses.oracle, drawn.uniforms()
    if u is not None:
        oracle = labels_around(np.asarray(responses.mean), u, **noise)
    assert oracle is not None
    fields: dict[str, Any] = {"surprisal": responses.surprisal, "log_ratio": responses.log_ratio}
    if responses.true_reward is not None:
        fields["true_reward"] = np.broadcast_to(responses.true_reward, judge.shape).copy()
    if responses.covariate:
        values = [np.broadcast_to(np.asarray(x, float), judge.shape) for x in responses.covariate.values()]
        fields |= {"covariate": np.stack(values, axis=-1), "features": list(responses.covariate)}
    if responses.logp_target is not None:
        logged = {
            "logp_target": responses.logp_target,
            "logp_logger": responses.logp_target[0].copy(),
            "n_tokens": np.broadcast_to(np.asarray(responses.n_tokens), judge.shape[1]).copy(),
            "logged_judge": _logged(judge),
        }
        if responses.covariate:
            logged["logged_covariate"] = np.stack([_logged(x) for x in values], axis=-1)
        fields["logged"] = logged
    data = label(
        judge,
        oracle,
        list(responses.policies),
        labelling,
        cluster=responses.cluster,
        judge_range=responses.judge_range,
        rng=rng,
        **fields,
    )
    if responses.logp_target is not None:
        seen = data["oracle"]
        data = data.assign(logged_oracle=("prompt", seen.values[0, :, 0].copy(), seen.attrs))
    return data if responses.finish is None else responses.finish(data, rng)


def collect_block(drawn: Iterable[Drawn], n_sets: int) -> Block | None:
    """Draws as one block, the very numbers of `collect`; None where a block cannot hold all that matters.

    That is where responses come in draws or clusters, with covariates or logs, as probes, with errors of recording, or
    where a judge is silent.
    """
    oracle_range = 0.0, 1.0
    for r, one in enumerate(drawn):
        responses, labelling, noise, rng = one
        judge, oracle, u = responses.judge, responses.oracle, one.uniforms()
        odd = responses.covariate or responses.finish or labelling.n_probes or judge.ndim != 2
        if odd or responses.cluster is not None or responses.logp_target is not None:
            return None
        if r == 0:
            shape = n_sets, *judge.shape
            score, label, prob = np.empty(shape), np.full(shape, np.nan), np.empty(shape)
        score[r] = judge
        if u is not None and labelling.by_label:
            oracle, u = labels_around(np.asarray(responses.mean), u, **noise), None
        chosen = choose(
            judge[..., None],
            None if oracle is None else oracle[..., None],
            labelling,
            None,
            responses.judge_range,
            oracle_range,
            rng,
        )
        prob[r], seen = chosen.prob[..., 0], np.flatnonzero(chosen.seen)
        if u is not None:  # only labels that are visible
            mean = np.broadcast_to(np.asarray(responses.mean), judge.shape)
            label[r].flat[seen] = labels_around(mean.ravel()[seen], u.ravel()[seen], **noise)
        elif oracle is not None:
            label[r].flat[seen] = oracle.ravel()[seen]
    if not np.isfinite(score).all():
        return None
    return Block(tuple(map(str, responses.policies)), score, label, prob, responses.judge_range, oracle_range)


def by_policy(values: Mapping[str, float], name: str = "truth") -> xr.DataArray:
    """Numbers of policies as a labelled array over ``policy``.

    Examples
    --------
    >>> by_policy({"base": 0.5, "better": 0.6}).sel(policy="better").item()
    0.6
    """
    return xr.DataArray(list(values.values()), coords={"policy": list(values)}, name=name)


def column(laws: Laws, k: int) -> FloatArray:
    """Entry k of each policy's law, shape (policies, 1)."""
    return np.array([law[k] for law in laws.values()])[:, None]


def chosen(policies: Collection[str], name: str) -> npt.NDArray[np.bool_]:
    """Which of the policies has a name, shape (policies, 1); there must be one.

    Examples
    --------
    >>> chosen(["base", "better"], "better").tolist()
    [[False], [True]]
    """
    found = np.array([[policy == name] for policy in policies])
    if not found.any():
        raise ValueError(f"{name!r} is no policy; there are: {', '.join(policies)}")
    return found


def link_truth(laws: Laws, link: str = "sigmoid", low: float = 0.1, high: float = 0.95) -> xr.DataArray:
    """``V(policy) = E[oracle_mean(S, link, low, high)]`` for S ~ Kumaraswamy of each law's first two entries.

    By quadrature, see `cje_sim.judges.expected_over_scores`.

    Examples
    --------
    >>> link_truth({"base": (2.0, 1.0)}, "linear", 0.0, 1.0).round(9).values.tolist()  # density 2s: mean 2/3
    [0.666666667]
    """

    def mean(score: FloatArray) -> FloatArray:
        return oracle_mean(score, link, low, high)

    kinks = LINKS[link][1] if link in LINKS else ()
    return by_policy({name: expected_over_scores(mean, law[0], law[1], kinks) for name, law in laws.items()})


def _logged(values: FloatArray) -> FloatArray:
    """First responses of the base policy, shape (n,), in memory of their own."""
    return np.array(values[0].reshape(values.shape[1], -1)[:, 0])
