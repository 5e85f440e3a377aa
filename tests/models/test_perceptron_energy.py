"""An energy of a Gaussian and a perceptron: score against autograd, draws, files."""

import pytest
import torch

from steincritic.errors import FileFormatError, InputError
from steincritic.files import read_tensors, write_tensors
from steincritic.models import LangevinModel, random_rbm
from steincritic.models.grid import GridModel
from steincritic.models.perceptron_energy import PerceptronEnergy, first_weights
from steincritic.models.saved import load_saved, save_model
from steincritic.models.spec import load_object
from steincritic.rng import generator


def energy(dim=2, hidden=(7, 5), spread=1.5):
    source = generator(0, "test")
    weights = first_weights(dim, hidden, source)
    weights = {
        name: value + 0.3 * torch.randn(value.shape, generator=source, dtype=torch.float64)
        for name, value in weights.items()
    }
    return PerceptronEnergy(
        weights, location=torch.arange(dim).double(), scale=torch.ones(dim) * 2.0, spread=spread
    )


def test_draws_are_exact_in_the_plane_and_by_chains_beyond():
    assert isinstance(energy(2).sampler, GridModel) and isinstance(energy(3).sampler, LangevinModel)


def test_weights_that_do_not_fit_are_refused():
    good = energy().weights
    for change in ({"w1": torch.zeros(2, 3)}, {"b2": torch.zeros(4)}, {"w3": torch.zeros(5, 2)}):
        with pytest.raises(InputError):
            PerceptronEnergy(good | change, location=[0.0, 0.0], scale=[1.0, 1.0])
    with pytest.raises(InputError, match="named"):
        PerceptronEnergy({"a": 1.0, "b": 2.0, "c": 3.0}, location=[0.0], scale=[1.0])
    for wrong in ({"location": [0.0]}, {"scale": [1.0, 0.0]}, {"spread": 0.0}):
        with pytest.raises(InputError):
            PerceptronEnergy(good, **({"location": [0.0, 0.0], "scale": [1.0, 1.0]} | wrong))


@pytest.mark.parametrize("model", [energy(), random_rbm(2, 3, seed=0, sweeps=50)], ids=["mlp", "rbm"])
def test_a_saved_model_comes_back(tmp_path, model):
    path = tmp_path / "model.safetensors"
    save_model(model, path)
    x = torch.randn(5, 2, generator=generator(1, "x"), dtype=torch.float64)
    for again in (load_saved(path), load_object(str(path)), load_object(f"rbm:{path}")):
        assert torch.equal(again.score(x), model.score(x)) and torch.equal(
            again.log_prob(x), model.log_prob(x)
        )
        assert torch.equal(again.sample(3, seed=1), model.sample(3, seed=1))


def test_files_that_are_no_models_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(InputError, match="no such file"):
        load_object(str(path))
    path.write_bytes(b"junk")
    with pytest.raises(FileFormatError):
        load_object(str(path))
    save_model(energy(), path)
    tensors, about = read_tensors(path, kind="model")
    for wrong in (about | {"kind": "flow"}, about | {"spread": -1.0}):
        write_tensors(path, tensors, wrong, kind="model")
        with pytest.raises(FileFormatError):
            load_object(str(path))
    write_tensors(path, tensors, about, kind="critic")
    with pytest.raises(FileFormatError, match="must be a file of kind 'model'"):
        load_object(str(path))
    write_tensors(path, {"w1": tensors["w1"]}, about, kind="model")
    with pytest.raises(FileFormatError):
        load_object(str(path))
    with pytest.raises(InputError, match="only GaussianBernoulliRBM"):
        save_model(torch.nn.Identity(), path)


def test_a_density_far_from_its_base_is_drawn_from():
    """silu(y) - silu(-y) = y, so this is N(20, 1)."""
    weights = {"w1": [[1.0, -1.0]], "b1": [0.0, 0.0], "w2": [[-20.0], [20.0]]}
    x = PerceptronEnergy(weights, location=[0.0], scale=[1.0]).sample(10_000, seed=0)
    assert abs(float(x.mean()) - 20) < 5 / 100 and abs(float(x.std()) - 1) < 5 / 141  # five standard errors
