"""What a release needs is there, is read by the tools it is for, and says the same everywhere."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOWS = {path.stem: path for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}
TEXTS = [*WORKFLOWS.values(), *sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))]
TEXTS += [ROOT / "action.yml", ROOT / "CITATION.cff"]


def read(path):
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


def recipe():
    """conda's meta.yaml, without its templates."""
    text = (ROOT / "recipe/meta.yaml").read_text("utf-8")
    version = re.search(r'set version = "(.*?)"', text)[1]
    text = re.sub(r"\{%.*?%\}", "", text).replace("{{ version }}", version)
    return yaml.safe_load(re.sub(r"\{\{ (\w+) \}\}", r"\1", text))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_yaml_files_are_yaml(path):
    assert isinstance(read(path), dict)


def test_the_version_is_one():
    version = PROJECT["version"]
    assert read("CITATION.cff")["version"] == version == str(recipe()["package"]["version"])
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased" and headings[1].split()[0] == version


def test_every_python_of_the_classifiers_is_tested():
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if ":: Python :: 3." in text]
    ci = read(WORKFLOWS["ci"])["jobs"]
    assert named == ci["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_ci_does_what_the_local_check_does_and_every_target_exists():
    made = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    local = set(re.findall(r"^make ([\w-]+)$", (ROOT / ".ci/run").read_text("utf-8"), re.MULTILINE))
    ci = read(WORKFLOWS["ci"])["jobs"]
    asked = {
        job: [step["run"].removeprefix("make ") for step in about["steps"] if "make " in step.get("run", "")]
        for job, about in ci.items()
    }
    assert {"test", "lint"} == set(asked["test"]) == local
    assert {"lowest", "newest", "docs", "wheels"} <= set(ci)
    assert {target for targets in asked.values() for target in targets} <= made


def test_conda_asks_for_the_versions_that_pip_asks_for():
    conda = dict(line.split(" ") for line in recipe()["requirements"]["run"] if "python_min" not in line)
    other = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
    pip = dict(re.fullmatch(r"([\w-]+)(.*)", name).groups() for name in PROJECT["dependencies"])
    assert conda == {other.get(name, name): bound for name, bound in pip.items()}


def test_the_lowest_versions_are_read_from_the_project():
    said = subprocess.check_output([sys.executable, ROOT / ".ci/lowest.py", "sklearn"], text=True).split()
    assert {pin.partition("==")[0] for pin in said} >= {"numpy", "scipy", "joblib", "scikit-learn"}
    assert all("==" in pin for pin in said) and not any(pin.startswith("torch") for pin in said)


def test_the_release_is_tried_with_files_that_are_there_and_the_report_that_the_readme_saves():
    script, readme = ((ROOT / name).read_text("utf-8") for name in (".ci/release-check", "README.md"))
    assert all((ROOT / path).is_file() for path in re.findall(r"\$root/([\w./]+\.\w+)", script))
    saved = re.search(r'd\.save\("(\w+)"\)', readme)[1]
    assert f"-f {saved}/report.html" in script


@pytest.mark.parametrize("path", [*WORKFLOWS.values(), ROOT / "action.yml"], ids=lambda path: path.name)
def test_steps_are_whole_and_outside_actions_have_a_version(path):
    about = read(path)
    jobs = about["jobs"].values() if "jobs" in about else [about["runs"]]
    for step in (step for job in jobs for step in job["steps"]):
        assert ("run" in step) != ("uses" in step), step
        assert "run" in step or step["uses"] == "./" or "@" in step["uses"]
        if "run" in step:
            subprocess.run(["bash", "-n", "-c", step["run"]], check=True)


def test_the_dockerfile_copies_what_is_there_and_what_the_build_needs():
    text = (ROOT / "Dockerfile").read_text("utf-8")
    copied = [
        word for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE) for word in line.split()
    ]
    assert all((ROOT / name).exists() for name in copied)
    assert {"pyproject.toml", "src", PROJECT["readme"], *PROJECT["license-files"]} <= set(copied)
    ignored = (ROOT / ".dockerignore").read_text("utf-8").split()
    assert {f"!{name}" for name in copied} <= set(ignored)
