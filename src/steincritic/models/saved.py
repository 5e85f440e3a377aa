"""Energy models in files: safetensors, so that reading one runs no code."""

from pathlib import Path
from typing import Any

from steincritic.errors import InputError
from steincritic.files import read_tensors, rebuilding, write_tensors
from steincritic.models.base import Model
from steincritic.models.perceptron_energy import PerceptronEnergy
from steincritic.models.rbm import PARAMETERS, GaussianBernoulliRBM

_KIND = "model"
SavedModel = GaussianBernoulliRBM | PerceptronEnergy


def save_model(model: Model, path: str | Path) -> None:
    """Write a machine or a perceptron energy; `load_saved` and `--model FILE` read it back."""
    if isinstance(model, GaussianBernoulliRBM):
        about: dict[str, Any] = {"kind": "rbm", "sweeps": model.sweeps}
        tensors = {name: getattr(model, name) for name in PARAMETERS}
    elif isinstance(model, PerceptronEnergy):
        about = {"kind": "mlp", "spread": model.spread}
        tensors = model.weights | {"location": model.location, "scale": model.scale}
    else:
        raise InputError(
            f"only GaussianBernoulliRBM and PerceptronEnergy are saved, got {type(model).__name__}; save the "
            "weights of a module of your own with safetensors"
        )
    write_tensors(Path(path), tensors, about, kind=_KIND)


def load_saved(path: str | Path) -> SavedModel:
    tensors, about = read_tensors(Path(path), kind=_KIND)
    with rebuilding(path):
        if about["kind"] == "rbm":
            return GaussianBernoulliRBM(*(tensors[name] for name in PARAMETERS), sweeps=about["sweeps"])
        if about["kind"] != "mlp":
            raise KeyError(about["kind"])
        base = {name: tensors.pop(name) for name in ("location", "scale")}
        return PerceptronEnergy(tensors, **base, spread=about["spread"])
