"""Models named on the command line."""

import importlib
import sys

import pytest
import torch

from steincritic.errors import InputError, ModelError
from steincritic.models import GaussianMixture, as_model
from steincritic.models.spec import load_attribute, load_object

CODE = """
from dataclasses import dataclass

from steincritic.models import GaussianMixture

@dataclass
class Settings:  # dataclasses look their module up
    scale: "float" = 1.0

normal = GaussianMixture([[0.0, 0.0]], Settings().scale)
number = 3
_hidden = normal

def log_density(x):
    return -0.5 * (x**2).sum(-1)
"""


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "my_models.py"
    path.write_text(CODE)
    return path


def test_an_attribute_of_a_module_or_a_file_is_found(code):
    assert load_attribute("steincritic.models:GaussianMixture") is GaussianMixture
    assert load_object(f"{code}:normal").dim == 2
    x = torch.tensor([[1.0, -2.0]])
    assert torch.equal(as_model(load_object(f"{code}:log_density")).score(x), -x)


@pytest.mark.parametrize("place", ["pkg.mod:", ":attr", "nothing", ""])
def test_a_name_without_both_parts_is_refused(place):
    with pytest.raises(InputError, match=r"a model is named package\.module:attr or file\.py:attr, got"):
        load_object(place)


def test_what_is_missing_is_reported_with_its_neighbors(code):
    with pytest.raises(InputError, match=r"my_models\.py has no attribute 'normale'; did you mean normal\?$"):
        load_object(f"{code}:normale")
    with pytest.raises(InputError, match=r"no such model file: .*my_model\.py; did you mean my_models\.py\?"):
        load_object(f"{code.with_name('my_model.py')}:normal")
    with pytest.raises(InputError, match="no such model file"):
        load_object(f"{code.parent / 'nowhere' / 'x.py'}:normal")


@pytest.mark.parametrize("name", ["no_such_package", "steincritic.no_such_module", "steincritic..models"])
def test_a_missing_module_is_reported_with_the_way_to_name_a_file(name):
    with pytest.raises(InputError, match=rf"cannot import '{name}' .*name a file as path/to/file\.py:attr"):
        load_object(f"{name}:q")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("raise RuntimeError('the weights\\nare away')", "RuntimeError: the weights$"),
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("def (:", "SyntaxError: invalid syntax"),
        ("import sys; sys.exit('usage: fit.py DATA')", "SystemExit: usage: fit.py DATA"),
    ],
)
@pytest.mark.parametrize("as_module", [False, True])
def test_code_that_raises_is_reported_in_one_line(tmp_path, monkeypatch, line, words, as_module):
    (tmp_path / "broken_model.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    place = "broken_model" if as_module else str(tmp_path / "broken_model.py")
    if as_module and "no_such_package" in line:
        words = "cannot import 'broken_model' .No module named 'no_such_package'"
    with pytest.raises(InputError, match=words) as caught:
        load_object(f"{place}:q")
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ModelError) or as_module


def test_a_class_is_no_model_yet(code):
    with pytest.raises(InputError, match="is a class"):
        load_object(f"{code}:GaussianMixture")


def test_a_model_file_imports_what_lies_beside_it(tmp_path):
    (tmp_path / "beside_the_model.py").write_text("answer = 42\n")
    (tmp_path / "uses_it.py").write_text("from beside_the_model import answer\n")
    (tmp_path / "json.py").write_text("answer = 1\n")  # replaces nothing
    load_object(f"{tmp_path}/json.py:answer")
    assert importlib.import_module("json").__file__ != str(tmp_path / "json.py")
    assert load_attribute(f"{tmp_path}/uses_it.py:answer") == 42
    with pytest.raises(InputError, match=r"has no attribute 'zzz'; it has answer"):
        load_attribute(f"{tmp_path}/uses_it.py:zzz")


@pytest.fixture(autouse=True)
def paths(monkeypatch):
    """Folders of model files stay where they are looked for; not so after a test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
