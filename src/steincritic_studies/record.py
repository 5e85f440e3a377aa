"""What a run leaves: configuration, results, versions, hardware; JSON both ways."""

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from steincritic.errors import FileFormatError, InputError, first_line
from steincritic.files import json_digest, package_version, plain, write_atomically

_FORMAT, _BEFORE = "steincritic-record-2", "steincritic-record-1"


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
        content = {"format": _FORMAT, **plain(asdict(self))}
        text = json.dumps(content | {"sha256": json_digest(content)}, indent=1, allow_nan=False)
        write_atomically(path, (text + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> "Record":
        """Read a record; one that was made before records had a hash is taken as it is."""
        if not path.is_file():
            raise InputError(f"no record at {path}")
        try:
            content = json.loads(path.read_text())
            if content["format"] != _BEFORE and content.pop("sha256") != json_digest(content):
                raise ValueError("it was changed after it was written")
            if content.pop("format") not in (_FORMAT, _BEFORE):
                raise ValueError("another format")
            return cls(**content)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FileFormatError(f"{path} is not a steincritic record: {first_line(error)}") from None


def environment(device: torch.device) -> dict[str, Any]:
    """Versions and hardware, in words that name no machine."""
    return {
        "python": platform.python_version(),
        "steincritic": package_version("steincritic"),
        "torch": torch.__version__,
        "numpy": package_version("numpy"),
        "device": _device_name(device),
        "threads": torch.get_num_threads(),
    }


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"CPU, {name}"
