"""Records: what was measured comes back from JSON, and nothing else is taken for a record."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from steincritic.errors import FileFormatError, InputError
from studies.record import Record, environment


@dataclass(frozen=True)
class Settings:
    scale: float
    sizes: tuple[int, ...]


RECORD = Record(
    name="gm-2d",
    command="python -m studies gm-2d",
    config={"type": "Settings", "inner": Settings(0.5, (3, 4)), "folder": Path("out")},
    seed=2**61 + 1,
    results={
        "curve": torch.tensor([[1.0, 2.5], [torch.nan, -torch.inf]]),
        "count": torch.tensor(3),
        "rows": [{"λ": 1e-3, "missing": None, "flag": True}],
    },
    seconds={"training": 1.23456789},
    environment={"torch": "2"},
)


def test_a_record_comes_back_from_its_file(tmp_path):
    RECORD.save(tmp_path / "deep" / "record.json")
    loaded = Record.load(tmp_path / "deep" / "record.json")
    assert loaded.name == RECORD.name and loaded.command == RECORD.command
    assert loaded.seed == 2**61 + 1  # JSON would allow a float, which has no room for this
    assert loaded.finished == RECORD.finished and loaded.environment == {"torch": "2"}
    assert loaded.config == {"type": "Settings", "inner": {"scale": 0.5, "sizes": [3, 4]}, "folder": "out"}
    assert loaded.results["rows"] == [{"λ": 1e-3, "missing": None, "flag": True}]
    assert loaded.results["count"] == 3
    assert loaded.seconds["training"] == pytest.approx(1.23456789, rel=1e-6)  # seven digits are kept


def test_values_that_are_not_finite_become_null_and_saving_again_changes_no_byte(tmp_path):
    RECORD.save(tmp_path / "record.json")
    Record.load(tmp_path / "record.json").save(tmp_path / "again.json")
    assert (tmp_path / "record.json").read_bytes() == (tmp_path / "again.json").read_bytes()
    assert Record.load(tmp_path / "record.json").results["curve"] == [[1.0, 2.5], [None, None]]
    text = (tmp_path / "record.json").read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_saving_replaces_the_whole_file_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    RECORD.save(path)
    before = path.read_bytes()

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(InputError, match="No space left on device; the old file is untouched"):
            replace(RECORD, seed=5).save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["record.json"]


@pytest.mark.parametrize("damaged", [b"", b"\xff\xfe\x00", b"[1, 2]", b"{}", ...])
def test_files_that_are_no_records_are_refused_in_one_line(tmp_path, damaged):
    path = tmp_path / "record.json"
    RECORD.save(path)
    changed = path.read_text().replace('"missing": null', '"missing": 1').encode()
    path.write_bytes(changed if damaged is ... else damaged)
    with pytest.raises(FileFormatError, match=r"record\.json is not a steincritic record: ") as caught:
        Record.load(path)
    assert "\n" not in str(caught.value)


def test_the_environment_names_versions_and_kinds_and_no_machine():
    found = environment(torch.device("cpu"))
    assert found["torch"] == torch.__version__ and found["device"].startswith("CPU")
    assert os.uname().nodename not in json.dumps(found)
