"""Models of other libraries. None of these is imported before one of its objects is at hand.

`adapt` looks at the class of an object, `as_model` asks it first. What cannot be recognized (a plain
function written for JAX, a NumPyro model, a diffusion net) has its own class in a file here; `sc.models` has
them all.
"""

from importlib import import_module
from typing import Any

from steincritic.models.base import Model

# libraries, by the first part of a class's module; a file here knows the objects of each
_KNOWN = ("bridgestan", "jaxlib", "normflows", "numpyro", "openmm", "pymc", "sbi", "scipy", "sklearn", "zuko")


def adapt(obj: Any) -> Model | None:
    """The object of another library as a model; None where it is of no library known here, or no model."""
    for kind in type(obj).__mro__:
        if (library := kind.__module__.partition(".")[0]) in _KNOWN:
            file = import_module(f"{__name__}.{library.removesuffix('lib')}")
            model: Model | None = file.adapt(obj)
            return model
    return None
