"""Does my model fit my data, how sure can I be, and where does it fail?

The model is known by its score. See the README for the idea and ten lines that work.

The names are those of `steincritic.public`. They are loaded on first use (PEP 562), so that the command line
can answer a question for help, or about a missing file, without waiting for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steincritic.public import *  # noqa: F403

    __version__: str
else:  # a type checker that saw this would take any name for a public one

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            globals()[name] = _version()
        elif name == "__all__" or not name.startswith("__"):
            public = import_module("steincritic.public")  # makes attributes of the parts too, as sc.gof
            if hasattr(public, name):
                globals()[name] = getattr(public, name)
            elif name in public.GONE:
                raise AttributeError(f"steincritic.{name} is gone: {public.GONE[name]}")
        if name not in globals():
            raise AttributeError(f"module 'steincritic' has no attribute {name!r}")
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), "__version__", *import_module("steincritic.public").__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("steincritic")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0.0.0+source"
