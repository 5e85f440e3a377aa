"""What adapters do without their libraries."""

import subprocess
import sys

import pytest

from steincritic.errors import InputError
from steincritic.models import JaxDensity, NumPyroPosterior, OpenMMModel, PyMCPosterior
from steincritic.models.adapters import outside


@pytest.mark.parametrize(
    ("make", "extra"),
    [
        (lambda: JaxDensity(lambda v: v), "jax"),
        (lambda: NumPyroPosterior(lambda: None), "numpyro"),
        (lambda: PyMCPosterior(None), "pymc"),
        (lambda: OpenMMModel(None), "openmm"),
    ],
    ids=["jax", "numpyro", "pymc", "openmm"],
)
def test_a_missing_library_is_one_line_with_the_command(make, extra, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named '{name}'")

    monkeypatch.setattr(outside, "import_module", missing)
    with pytest.raises(InputError, match=rf"pip install 'steincritic\[{extra}\]'") as raised:
        make()
    assert "\n" not in str(raised.value)


def test_no_optional_library_is_imported_before_one_of_its_objects_is_at_hand():
    code = (
        "import sys, torch, steincritic as sc\n"
        "sc.as_model(torch.nn.Linear(2, 1)); sc.as_model(lambda x: -x.square().sum(-1))\n"
        "names = 'jax numpyro pymc openmm zuko normflows sklearn'.split()\n"
        "assert not [n for n in names if n in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
