"""What other programs read: the JSON object of every command has its schema, the verdict its JUnit file."""

import json
from copy import deepcopy
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import steincritic as sc
from steincritic.cli import COMMANDS
from steincritic.cli.guard import SCHEMA_VERSION

jsonschema = pytest.importorskip("jsonschema")

SCHEMA = json.loads((files("steincritic") / f"schema/output-{SCHEMA_VERSION}.json").read_text("utf-8"))
QUICK = "--steps 4 --batch-size 20 --log-every 2 --hidden 4 --critic-steps 1 --pictures 1"
CALLS = {
    "check": "check x.npy --model gm-2d --test ksd",
    "check, rejected": "check x.csv --model far.py:q --draws 39 --id-column who --out report",
    "check, few points": "check few.npy --model gm-2d --test ksd",
    "check, tolerance": "check x.npy --model far.py:q --tolerance 0.05",
    "check, target": "check x.csv --exclude who --model far.py:given --target b --draws 39",
    "test": "test x.npy --model gm-2d --test ksd",
    "test, dry run": "test x.npy --model gm-2d --test ksd --dry-run",
    "doctor": "doctor --model gm-2d --n 500 --data x.npy",
    "compare": "compare x.npy --model gm-2d --model far.py:q --test ksd",
    "compare, no test": "compare x.npy --model gm-2d --model far.py:q --test none",
    "watch": "watch x.npy.csv --model gm-2d --batch 20",
    "witness": "witness x.csv --critic critic --model gm-2d --id-column who",
    "fit-energy": f"fit-energy x.npy --device cpu --out energy {QUICK}",
    "demo": "demo --n 20 --test ksd --out shown",
    "reproduce": "reproduce gm-1d --tiny --device cpu --out record",
    "reproduce, list": "reproduce list",
    "error": "check nowhere.npy --model gm-2d",
}
MODELS = """
import torch
from steincritic.models import GaussianMixture

q = GaussianMixture([[2.0, 0.0]])
given = lambda x: torch.distributions.Normal(x, 1.0)
"""


def closed(schema):
    """Nothing beside what is named, at the top and in the objects that are written in one piece."""
    made = deepcopy(schema) | {"unevaluatedProperties": False}
    for name in ("error", "caveat", "tolerance", "finding_about_the_model", "seen", "region"):
        made["$defs"][name]["additionalProperties"] = False
    for name in ("points", "missing"):
        made["$defs"]["checked"]["properties"][name]["additionalProperties"] = False
    return made


VALIDATOR = jsonschema.Draft202012Validator(closed(SCHEMA))


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    q = sc.data.problem("gm-2d").model
    x = q.sample(60, seed=1).numpy()
    np.save("x.npy", x)
    np.save("few.npy", x[:5])
    np.savetxt("x.npy.csv", x, delimiter=",", header="a,b", comments="")
    rows = "".join(f"{a},{b},person {k}\n" for k, (a, b) in enumerate(x.tolist()))
    Path("x.csv").write_text(f"a,b,who\n{rows}")
    Path("far.py").write_text(MODELS)
    sc.fit_critic(q, x, training=sc.Training(epochs=2), seed=0, callbacks=()).save("critic")


def test_the_schema_is_one_and_names_every_command():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["schema_version"] == {"const": SCHEMA_VERSION}
    assert SCHEMA["$defs"]["answer"]["properties"]["command"]["enum"] == list(COMMANDS)
    assert {name.partition(",")[0] for name in CALLS} == {*COMMANDS, "error"}


@pytest.mark.parametrize("name", CALLS)
def test_every_object_is_as_the_schema_says(name, run, place):
    code, out, err = run(f"{CALLS[name]} --json")
    assert code == (2 if name == "error" else code) and code in (0, 1, 2) and out, err
    for line in out.splitlines():
        told = json.loads(line)
        assert ("error" in told) == (name == "error"), told
        VALIDATOR.validate(told)
        if "rejected" in told:
            broken = told | {"pvalue": "small"}
            broken.pop("rejected")
            assert len(list(VALIDATOR.iter_errors(broken))) >= 1
    for file in (Path(f) for f in told.get("files", ()) if f.endswith("result.json")):
        VALIDATOR.validate(json.loads(file.read_text()))


# JUnit, as the schema of Jenkins has it

ATTRIBUTES = {
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"},
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"classname", "name", "time"},
    "failure": {"message", "type"},
    "system-out": set(),
    "system-err": set(),
}


@pytest.mark.parametrize(("model", "fails"), [("gm-2d", 0), ("far.py:q", 1)])
def test_the_verdict_is_a_case_of_junit(model, fails, run, place):
    code, out, _ = run(f"check x.npy --model {model} --test ksd --junit ci/junit.xml")
    assert code == fails and "ci/junit.xml" in out
    suite = ElementTree.parse("ci/junit.xml").getroot()
    assert all(set(node.attrib) == ATTRIBUTES[node.tag] for node in suite.iter())
    assert [node.tag for node in suite] == ["properties", "testcase", "system-out", "system-err"]
    assert (suite.get("tests"), suite.get("failures")) == ("1", str(fails))
    case = suite.find("testcase")
    assert case.get("name") == f"x.npy against {model}" and case.get("classname") == "steincritic.check"
    failure = case.find("failure")
    assert (failure is not None) == bool(fails)
    if fails:
        assert failure.get("message").startswith("The data do not look like draws from the model")
        assert failure.text.count("\n") > 3 and failure.text == suite.findtext("system-out")


def test_a_junit_file_that_cannot_be_written_is_refused_first(run, place):
    code, _, err = run("check x.npy --model gm-2d --junit x.npy/junit.xml")
    assert code == 2 and err.startswith("steincritic: cannot write") and err.count("\n") == 1
