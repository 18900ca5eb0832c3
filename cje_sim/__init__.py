"""Worlds whose truth is known exactly.

``cje_sim.simulate("weak_judge", n=500, rng=1)`` draws evaluation data, ``cje_sim.truth("weak_judge")`` gives its
policies' values; ``cje_sim.scenarios.available()`` names the worlds.

Rule of this package: of ``cje_core`` it may import ``cje_core.data`` only, so that no truth can depend on an
estimator. Truth comes from enumeration, convolution or closed form; Monte Carlo only where nothing else exists,
and then with its error.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr


def simulate(world: str, **options: Any) -> "xr.Dataset":
    """Draw evaluation data from a world by its name; options as in ``help(cje_sim.scenarios.load(world).simulate)``.

    Examples
    --------
    >>> dict(simulate("weak_judge", n=50, rng=1).sizes)["prompt"]
    50
    """
    from cje_sim import scenarios

    return scenarios.load(world).simulate(**options)  # type: ignore[no-any-return]


def truth(world: str, **options: Any) -> "xr.DataArray":
    """Give the true value of each policy of a world, under the same options of its law as in `simulate`.

    Examples
    --------
    >>> "base" in truth("weak_judge").policy
    True
    """
    from cje_sim import scenarios

    return scenarios.load(world).truth(**options)  # type: ignore[no-any-return]
