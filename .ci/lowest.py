"""The lowest versions that pyproject.toml names, as pins for pip; torch as constraints.txt has it.

pip install $(python .ci/lowest.py)             # dependencies
pip install $(python .ci/lowest.py sklearn)     # and those of extras
"""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def pins(*extras: str) -> list[str]:
    """name==lowest for every dependency but torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = project["dependencies"] + [n for e in extras for n in project["optional-dependencies"][e]]
    bounded = [name for name in named if ">=" in name and not name.startswith("torch")]
    return [name.split(",")[0].replace(">=", "==") for name in bounded]


if __name__ == "__main__":
    print(*pins(*sys.argv[1:]))
