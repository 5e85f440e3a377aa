"""The numbers from before the house was rebuilt still come out, to 1e-6."""

import importlib.util
import json
import math
from pathlib import Path

import pytest

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE / "golden.json").read_text())
_spec = importlib.util.spec_from_file_location("golden_cases", HERE / "cases.py")
cases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(cases)


def assert_same(got, wanted, where=""):
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            assert_same(got[key], value, f"{where}/{key}")
    elif isinstance(wanted, list):
        assert len(got) == len(wanted), where
        for k, value in enumerate(wanted):
            assert_same(got[k], value, f"{where}[{k}]")
    elif isinstance(wanted, float):  # rounding through training: of a number, or of a sum that cancels
        assert math.isclose(got, wanted, rel_tol=1e-6, abs_tol=2e-6), f"{where}: {got} for {wanted}"
    else:
        assert got == wanted, f"{where}: {got} for {wanted}"


@pytest.mark.filterwarnings("ignore::steincritic.DoubtfulWarning")
@pytest.mark.parametrize("name", cases.CASES)
def test_the_library_gives_the_numbers_it_gave(name):
    assert_same(cases.CASES[name](), GOLDEN[name], name)


def test_every_kept_number_is_asked_for_again():
    commands = {name for name in GOLDEN if name.startswith(("cli", "reproduce"))}
    assert set(cases.CASES) | commands == set(GOLDEN) and len(GOLDEN) >= 50


@pytest.fixture
def command(run, tmp_path, monkeypatch):
    """A command in a folder with the files; its exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cases.files(tmp_path)
    return run


def test_check_witness_and_a_check_of_few_points(command):
    code, out, _ = command("check x.npy --model gm-2d --test ksd --json --out o")
    told = json.loads(out)
    found = {
        "code": code,
        "pvalue": told["pvalue"],
        "statistic": told["statistic"],
        "lower": told["fisher_lower_bound"],
        "findings": len(told["findings"]),
        "files": sorted(Path(file).name for file in told["files"]),
    }
    assert_same(found, GOLDEN["cli check"])
    code, out, _ = command("witness x0.npy --critic o/critic.safetensors --model gm-2d --json")
    told = json.loads(out)
    found = {"code": code, "mean": told["mean"], "standard_error": told["standard_error"]}
    assert_same(found | {"first": told["largest"][0]}, GOLDEN["cli witness"])
    code, out, _ = command("check few.npy --model gm-2d --json")
    assert_same({"code": code, "pvalue": json.loads(out)["pvalue"]}, GOLDEN["cli check, few points"])


def test_doctor_compare_and_watch(command):
    code, out, _ = command("doctor --model gm-2d --n 5000 --json")
    assert_same({"code": code, "ok": json.loads(out)["ok"]}, GOLDEN["cli doctor"])
    code, out, _ = command("compare x0.npy --model gm-2d --model gm-2d --name a --name b --test ksd --json")
    told = json.loads(out)
    found = {"code": code, "ranking": told["ranking"], "pvalues": told["pvalues"]}
    assert_same(found, GOLDEN["cli compare"])
    code, out, _ = command("watch s.csv --model gm-2d --batch 40 --json")
    told = json.loads(out.splitlines()[-1])
    found = {"code": code, "rejected_at": told["rejected_at"], "log_wealth": told["log_wealth"]}
    assert_same(found, GOLDEN["cli watch"])


def test_errors_and_files(command):
    for line, name in (("missing.npy", "cli, missing file"), ("bad.csv", "cli, bad table")):
        code, _, err = command(f"check {line} --model gm-2d")
        assert_same({"code": code, "lines": len(err.splitlines())}, GOLDEN[name])
    code, _, _ = command("fit-energy big.npy --out e --steps 20 --hidden 8x8")
    found = {"code": code, "files": sorted(path.name for path in Path("e").iterdir())}
    assert_same(found, GOLDEN["cli fit energy"])
    code, _, _ = command("reproduce gm-1d --tiny --out g --device cpu")
    record = json.loads(Path("g/record.json").read_text())
    found = {"code": code, "mean": record["results"]["statistics"]["mean"]}
    assert_same(found, GOLDEN["reproduce gm-1d tiny"])
