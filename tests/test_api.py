"""The public names and their signatures, as they are written down in api.txt.

A change of the interface shows as a change of that file. To renew it:

    python tests/test_api.py > tests/api.txt
"""

import difflib
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import steincritic

BESIDE = ("integrations", "testing")  # imported by their own names
SNAPSHOT = Path(__file__).parent / "api.txt"


def signature(thing) -> str:
    """As text, the same from run to run."""
    try:
        text = str(inspect.signature(thing))
    except (TypeError, ValueError):  # of classes written in C, such as exceptions
        return "(...)"
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", text)  # a class may move to another file
    return re.sub(r"\s+", " ", text)


def members(name: str, kind: type) -> Iterator[str]:
    """Public methods, properties and fields that this package gave the class."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("steincritic")]
    for member in sorted({key for base in ours for key in vars(base) if not key.startswith("_")}):
        value = inspect.getattr_static(kind, member)
        if isinstance(value, property):
            yield f"{name}.{member}: property"
        elif isinstance(value, classmethod | staticmethod):
            yield f"{name}.{member}{signature(getattr(kind, member))}"
        elif inspect.isfunction(value):
            yield f"{name}.{member}{signature(value)}"


def described(name: str, thing) -> Iterator[str]:
    if isinstance(thing, ModuleType):
        for inner in thing.__all__:
            yield from described(f"{name}.{inner}", getattr(thing, inner))
    elif isinstance(thing, type):
        yield f"{name}{signature(thing)}"
        yield from members(name, thing)
    elif callable(thing):
        yield f"{name}{signature(thing)}"
    else:
        yield f"{name}: {type(thing).__name__}"


def public_interface() -> list[str]:
    """One line for each public thing, sorted."""
    named = {name: getattr(steincritic, name) for name in steincritic.__all__}
    beside = {name: import_module(f"steincritic.{name}") for name in BESIDE}
    return sorted(line for name, thing in (named | beside).items() for line in described(name, thing))


def test_the_public_interface_is_the_one_written_down():
    was, now = SNAPSHOT.read_text("utf-8").splitlines(), public_interface()
    changes = [
        line
        for line in difflib.unified_diff(was, now, lineterm="", n=0)
        if line[:2] not in ("--", "++", "@@")
    ]
    assert was == now, "the public interface changed; if that is meant, renew the snapshot with\n" + (
        "  python tests/test_api.py > tests/api.txt\nand say so in CHANGELOG.md:\n" + "\n".join(changes)
    )


def test_a_changed_signature_would_be_seen():
    def one(x: int, *, y: float = 1.0) -> None: ...
    def other(x: int, *, y: float = 2.0) -> None: ...

    assert [*described("f", one)] == ["f(x: int, *, y: float = 1.0) -> None"] != [*described("f", other)]


if __name__ == "__main__":
    print("\n".join(public_interface()))
