"""What the commands share: exit codes, the model's name, the verdict panel, errors in one line."""

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from steincritic.data import problem
from steincritic.data.problems import PROBLEM_NAMES
from steincritic.errors import DivergedError, InputError
from steincritic.gof import GofResult
from steincritic.models.base import ScoreModel, as_model
from steincritic.models.spec import load_object
from steincritic.training.progress import take_down

FITS, REJECTED, ERROR = 0, 1, 2
Device = Annotated[str, tyro.conf.arg(help="cpu, cuda, or auto: a GPU where there is one")]


@dataclass(frozen=True, kw_only=True)
class Common:
    traceback: bool = False
    """Show where an error arose instead of one line."""


def guarded(command: Callable[[], int], *, show_traceback: bool = False) -> int:
    """Run, and turn what is the user's to mend into one line; exit code 2 whatever goes wrong.

    Python's own exit code for an exception is 1, which would pass for a rejected model.
    """
    try:
        return command()
    except KeyboardInterrupt as interrupt:
        take_down()
        way_on = str(interrupt) or "nothing half-written is left behind"
        print(f"steincritic: interrupted; {way_on}", file=sys.stderr)
        return 130
    except Exception as error:
        take_down()
        if show_traceback or not isinstance(error, USERS):
            traceback.print_exc()
        else:
            print(f"steincritic: {' '.join(str(error).split())}", file=sys.stderr)
        return ERROR


USERS = (InputError, DivergedError, OSError, torch.OutOfMemoryError)  # theirs to mend


def model_named(spec: str) -> ScoreModel:
    return as_model(object_named(spec))


def object_named(spec: str) -> Any:
    """What is named, before it is made a model: what `as_model` refuses can still be examined."""
    return problem(spec).model if spec in PROBLEM_NAMES else load_object(spec)


def device_named(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from None
    return device


def prepare(folder: Path) -> None:
    """Make the folder before the work, so that hours of it do not end where nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}") from None


def print_verdict(result: GofResult, *, title: str) -> None:
    color = "red" if result.rejected else "green"
    Console().print(Panel(Text(result.summary()), title=Text(title), border_style=color, expand=False))
