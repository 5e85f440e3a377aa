"""The pytest plugin: a fixture `assert_fits` and an option --steincritic-report. It loads no torch."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import steincritic.testing as testing  # "from steincritic import" would load the public names


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("steincritic").addoption(
        "--steincritic-report",
        metavar="DIR",
        help="folder for the reports of failed assert_fits, one folder inside per test",
    )


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption("--steincritic-report")
    testing.REPORTS = None if folder is None else Path(folder).absolute()


@pytest.fixture
def assert_fits(tmp_path: Path) -> Callable[..., Any]:
    """`steincritic.testing.assert_fits`; the report of a failure is in the test's tmp_path by default."""
    return partial(testing.assert_fits, report=tmp_path / "report" if testing.REPORTS is None else None)
