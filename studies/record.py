"""What a run leaves: configuration, results, versions, hardware; JSON both ways."""

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from steincritic import FileFormatError, InputError
from steincritic.errors import first_line
from steincritic.files import json_digest, package_version, plain, write_atomically

_FORMAT = "steincritic-record-2"
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, kw_only=True)
class Record:
    """One run of one study. Figures and tables are drawn from this and nothing else."""

    name: str
    command: str
    config: Mapping[str, Any]
    seed: int
    results: Mapping[str, Any]
    seconds: Mapping[str, float]
    environment: Mapping[str, Any] = field(default_factory=dict)
    finished: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def save(self, path: Path) -> None:
        save_sealed(path, {"format": _FORMAT, **plain(asdict(self))})

    @classmethod
    def load(cls, path: Path) -> "Record":
        """Read a record, and see that nobody changed it."""
        if not path.is_file():
            raise InputError(f"no record at {path}")
        try:
            content = load_sealed(path)
            if content.pop("format") != _FORMAT:
                raise ValueError("another format")
            return cls(**content)
        except UNREADABLE as error:
            raise FileFormatError(f"{path} is not a steincritic record: {first_line(error)}") from None


def save_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """JSON with a digest of itself."""
    text = json.dumps({**content, "sha256": json_digest(content)}, indent=1, allow_nan=False)
    write_atomically(path, (text + "\n").encode())


def load_sealed(path: Path) -> dict[str, Any]:
    """What was saved so; one of `UNREADABLE` if it is damaged or was changed."""
    content: dict[str, Any] = json.loads(path.read_text())
    if content.pop("sha256") != json_digest(content):
        raise ValueError("it was changed after it was written")
    return content


def hardware(device: torch.device | str) -> str:
    """In words that name no machine."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    about = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.split(":")[1].strip() for line in about.splitlines() if line.startswith("model name")]
    return f"CPU, {(names or [platform.processor() or platform.machine()])[0]}"


def environment(device: torch.device) -> dict[str, Any]:
    """Versions and hardware."""
    return {
        "python": platform.python_version(),
        "steincritic": package_version("steincritic"),
        "torch": torch.__version__,
        "numpy": package_version("numpy"),
        "device": hardware(device),
        "threads": torch.get_num_threads(),
    }
