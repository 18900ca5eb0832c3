"""What a PyMC model is made of, so that one compiled model can be kept and given other data."""

from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cje_core.bayes.models.engines import pm


class Specification(NamedTuple):
    """A model: how it is declared, what its code depends on, and its data.

    ``declare(held, *static)`` declares the variables in the model at hand, with `held` the variables of `data` by name.
    It sees nothing else, so what is compiled for one specification serves every other of the same `key`. Code is made
    for the sizes of the data, which follow from the key but in those that are `loose`.
    """

    declare: Callable[..., None]
    static: tuple[Hashable, ...]
    data: Mapping[str, npt.NDArray[Any]]
    # data that a compiled model's chains start from, whatever it is given later
    start: Mapping[str, float] = MappingProxyType({})
    loose: tuple[str, ...] = ()  # data whose first axis may have any length

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What a compiled model is kept under: all that data cannot change."""
        return self.declare, self.static, tuple(self.data), tuple(self.start.items())

    @property
    def shared(self) -> dict[str, npt.NDArray[Any]]:
        """The data as a compiled model holds them."""
        return self._shared(self.data)

    def _shared(self, values: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """What is `loose` by its name, all else in one vector: nutpie compiles .6 s for each array it can be given."""
        fixed = [np.ravel(one) for name, one in values.items() if name not in self.loose]
        loose = {name: values[name] for name in self.loose}
        return loose | {"fixed": np.concatenate(fixed)} if fixed else loose

    def build(self, *, to_compile: bool = False) -> pm.Model:
        """Declare the model with its data; `to_compile` with those that chains start from, held as in `shared`."""
        values = dict(self.data)
        if to_compile:
            values |= {name: np.asarray(value) for name, value in self.start.items()}
        with pm.Model() as model:
            held: dict[str, Any] = {
                name: pm.Data(name, one, shape=(None, *one.shape[1:]) if name in self.loose else one.shape)
                for name, one in (self._shared(values) if to_compile else values).items()
            }
            stop = 0
            for name, one in values.items():
                if name not in held:
                    start, stop = stop, stop + one.size
                    part = held["fixed"][start:stop]
                    held[name] = part.reshape(one.shape) if one.ndim else part[0]
            self.declare(held, *self.static)
        return model
