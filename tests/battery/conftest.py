"""The battery: everything that may go wrong outside, each case a test; groups are files.

`make battery` runs all of it, `make test` a tenth. At the end one line per group says how many cases were
tried and survived.
"""

import zlib
from collections import Counter
from pathlib import Path

import pytest

import steincritic as sc

HERE = Path(__file__).parent
PART = 10  # of which one is run by `make test`


@pytest.fixture
def x(tmp_path, monkeypatch):
    """Sixty draws of gm-2d; the test is at work in an empty folder, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return sc.data.problem("gm-2d").model.sample(60, seed=1).numpy()


def pytest_collection_modifyitems(config, items):
    """Mark the cases, and leave all but a tenth of each group out unless the battery is asked for."""
    own = [item for item in items if HERE in item.path.parents]
    for item in own:
        item.add_marker(pytest.mark.battery)
    if "battery" in config.option.markexpr:
        return
    seen = Counter()
    left_out = set()
    for item in sorted(own, key=lambda item: zlib.crc32(item.name.encode())):
        if seen[item.path] % PART:
            left_out.add(item)
        seen[item.path] += 1
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter):
    tried, survived = Counter(), Counter()
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            file = Path(report.fspath)
            if file.parent.name == HERE.name and report.when in ("call", "setup"):
                tried[file.stem] += 1
                survived[file.stem] += outcome == "passed"
    for group in sorted(tried):
        name = group.removeprefix("test_").replace("_", " ")
        terminalreporter.write_line(f"battery: {name}: {tried[group]} tried, {survived[group]} survived")
