"""Draws as samplers leave them (arrays, dictionaries, fits, files) to chains in the coordinates of a model.

| given | recognized by |
|---|---|
| (chain, draw, d) or (n, d), or a list with an array (draw, d) per chain | |
| name -> array, flat or by chain (NumPyro's `get_samples`) | a mapping |
| ArviZ's InferenceData, xarray's DataTree | `posterior` |
| xarray's Dataset, of `az.extract` or of chains | `data_vars` |
| a sampler that holds its draws (NumPyro's MCMC) | `get_samples` |
| a frame, a csv or a parquet file with names; rows of a column `chain` are one chain each | its columns |
| a file of numpy, with an array or with one per name | its path (.npy, .npz) |
| fits of CmdStanPy | `stan_variables` |
| fits of PyStan | `param_names`, `num_chains` |
| a list with a mapping per chain | |

No library is imported for this.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from steincritic.data.arrays import as_float_tensor, as_points
from steincritic.data.binary import arrays_of
from steincritic.data.layout import Table, numbered_names
from steincritic.data.tables import checked_path, load_table, reading
from steincritic.errors import InputError, check_count, listed
from steincritic.models.base import ConstrainedModel, Model, coordinate_names, dimension, own_dtype

DrawsLike: TypeAlias = Any  # whatever the table above has; objects of other libraries are not imported
_SHOWN = 8  # names in a message
_CHAIN = "chain"  # the column of a table that tells which chain a draw is of
_FREE: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # coordinates that names tell of
    "log": np.log,
    "logit": lambda p: np.log(p) - np.log1p(-p),
}
_INDEX = re.compile(r"^(.*?)[\[.](\d+(?:[,.] ?\d+)*)\]?$")  # theta[1,2], theta[0, 3], theta.1.2


@dataclass(frozen=True, eq=False)
class Chains:
    """Draws of some chains in the coordinates of a model."""

    x: Tensor  # (chains, draws, d)
    names: tuple[str, ...] | None = None  # of the coordinates, where known
    notes: tuple[str, ...] = ()  # what a reader should know of how they were read
    divergences: tuple[int, ...] = ()  # of each chain, where the sampler tells

    def __repr__(self) -> str:
        chains, draws, d = self.x.shape
        return f"Chains({chains} chains of {draws} draws in {d} dimensions)"


Named: TypeAlias = dict[str, np.ndarray]  # (chains, draws, ...) by parameter


def read_chains(
    model: Model, draws: DrawsLike, *, chains: int = 1, names: Sequence[str] | None = None
) -> Chains:
    """Draws in the coordinates of the model, by its own transforms and its own order where they have names.

    Args:
        chains: that follow one another in (n, d), or in named draws that are flat.
        names: of the coordinates; those of the model by default.
    """
    check_count(chains, name="chains")
    labels = tuple(names) if names is not None else coordinate_names(model)
    by_name = labels is not None or isinstance(model, ConstrainedModel)
    raw_draws, draws = draws, _opened(draws, by_name=by_name)
    named, notes = _named(draws, chains)
    if named is None:
        read = Chains(*_from_arrays(draws, chains, dimension(model)))
        if names is None and labels is not None:
            notes.append(f"Draws without names were taken in the model's order: {listed(labels, _SHOWN)}.")
    elif isinstance(model, ConstrainedModel) and not _has_all(named, labels):
        shape = next(iter(named.values())).shape[:2]
        x = model.unconstrain({name: v.reshape(-1, *v.shape[2:]) for name, v in _whole(named).items()})
        read = Chains(torch.as_tensor(x).unflatten(0, shape))
        labels = tuple(names) if names is not None else coordinate_names(model)  # some know them only now
    elif labels is None:
        raise InputError(
            f"draws have names ({listed(list(named), _SHOWN)}) and the model names no coordinates: give it "
            "names or unconstrain(draws), pass names= in the order of its coordinates, or an array (n, d)"
        )
    else:
        read = _by_names(named, labels)
    if (dim := dimension(model)) not in (None, read.x.shape[2]):
        raise InputError(f"draws have {read.x.shape[2]} coordinates, the model has {dim}")
    _check_finite(read.x, labels)
    x = read.x.to(own_dtype(model) or read.x.dtype)
    return replace(read, x=x, names=labels, notes=(*notes, *read.notes), divergences=_divergences(raw_draws))


def _named(draws: DrawsLike, chains: int) -> tuple[Named | None, list[str]]:
    """Draws by parameter and chain; None for arrays."""
    posterior = getattr(draws, "posterior", draws)
    if hasattr(posterior, "data_vars"):
        return _of_dataset(posterior), []
    if hasattr(draws, "stan_variables"):
        return _grouped(draws.stan_variables(), int(getattr(draws, "chains", chains))), []
    if hasattr(draws, "param_names") and hasattr(draws, "num_chains"):
        shapes = zip(draws.param_names, draws.dims, strict=True)  # PyStan keeps draws in the last axis
        of_fit = {n: np.moveaxis(np.asarray(draws[n]), -1, 0).reshape(-1, *shape) for n, shape in shapes}
        return _grouped(of_fit, int(draws.num_chains)), []
    if isinstance(draws, Mapping):
        return _grouped(draws, chains), []
    if isinstance(draws, list | tuple) and draws and all(isinstance(chain, Mapping) for chain in draws):
        return _of_chains(draws)
    return None, []


def _opened(draws: DrawsLike, *, by_name: bool) -> DrawsLike:
    """What a path, a sampler or a frame holds: names where they are wanted, chains where a column tells."""
    if isinstance(draws, str | Path):
        path = Path(draws)
        if path.suffix == ".nc":
            raise InputError(f"{path} is read by ArviZ: pass arviz.from_netcdf(path)")
        if path.suffix in (".npy", ".npz"):
            with reading(checked_path(path)):
                arrays = arrays_of(path)
            return arrays if len(arrays) != 1 else next(iter(arrays.values()))
        draws = load_table(path)
    if hasattr(draws, "get_samples"):
        return draws.get_samples(group_by_chain=True)
    if isinstance(draws, Table):
        columns = dict(zip(draws.columns, draws.x.T, strict=True))
        if draws.columns == numbered_names(len(draws.columns)):
            return draws.x
    elif hasattr(draws, "columns") and hasattr(draws, "to_numpy"):
        columns = {str(name): np.asarray(draws[name]) for name in draws.columns}
    else:
        return draws
    of_chain = columns.pop(_CHAIN, None)
    if of_chain is None:
        return columns if by_name else draws
    chains = [of_chain == chain for chain in np.unique(of_chain)]
    if by_name:
        return [{name: values[rows] for name, values in columns.items()} for rows in chains]
    x = np.stack(list(columns.values()), 1)
    return [x[rows] for rows in chains]


def _of_dataset(dataset: Any) -> Named:
    """Axes by their names; `az.extract` has one axis, sample, for chain and draw."""
    parameters = {}
    for name, values in dataset.data_vars.items():
        axes = [axis for axis in ("chain", "draw", "sample") if axis in values.dims]
        array = np.moveaxis(np.asarray(values.values), [values.dims.index(a) for a in axes], range(len(axes)))
        if axes == ["sample"]:
            array = array[None]
            labels = np.asarray(dataset.coords["chain"].values) if "chain" in dataset.coords else np.zeros(1)
            ids, counts = np.unique(labels, return_counts=True)
            if len(labels) == array.shape[1] and len(set(counts.tolist())) == 1:
                order = labels.argsort(kind="stable")
                array = array[0][order].reshape(len(ids), counts[0], *array.shape[2:])
        parameters[str(name)] = array if len(axes) == 2 or axes == ["sample"] else array[None]
    return parameters


def _grouped(draws: Mapping[str, Any], chains: int) -> Named:
    """A mapping of arrays, (n, ...) or (chains, n, ...): by chain if all have the same first two axes and
    there are fewer chains than draws."""
    arrays = {str(name): np.asarray(values) for name, values in draws.items()}
    if any(array.ndim == 0 for array in arrays.values()):
        raise InputError("draws must be arrays with one row per draw, got a number; for one pass value[None]")
    starts = {array.shape[:2] for array in arrays.values()}
    (first,) = starts if len(starts) == 1 else (None,)
    if first is not None and len(first) == 2 and first[0] < first[1] and chains in (1, first[0]):
        return arrays
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) != 1:
        raise InputError(f"every parameter needs as many draws as the others, got {counts}")
    n = next(iter(counts.values()))
    _check_divides(n, chains)
    return {name: array.reshape(chains, n // chains, *array.shape[1:]) for name, array in arrays.items()}


def _of_chains(draws: Sequence[Mapping[str, Any]]) -> tuple[Named, list[str]]:
    """One mapping per chain, cut to the shortest."""
    names = [name for name in draws[0] if all(name in chain for chain in draws)]
    arrays = [{name: np.asarray(chain[name], dtype=np.float64) for name in names} for chain in draws]
    lengths = [min((len(values) for values in chain.values()), default=0) for chain in arrays]
    cut = {name: np.stack([chain[name][: min(lengths)] for chain in arrays]) for name in names}
    return cut, _uneven(lengths)


def _uneven(lengths: list[int]) -> list[str]:
    if len(set(lengths)) == 1:
        return []
    return [f"Chains of {', '.join(map(str, lengths))} draws were cut to the shortest, {min(lengths)}."]


def _from_arrays(draws: Any, chains: int, dim: int | None) -> tuple[Tensor, None, tuple[str, ...]]:
    if isinstance(draws, list | tuple) and all(getattr(chain, "ndim", 0) == 2 for chain in draws):
        tensors = [as_float_tensor(chain, name="draws of a chain") for chain in draws]
        lengths = [len(chain) for chain in tensors]
        return torch.stack([chain[: min(lengths)] for chain in tensors]), None, tuple(_uneven(lengths))
    if getattr(draws, "ndim", 2) == 3:
        x = as_float_tensor(draws, name="draws")
        if chains not in (1, len(x)):
            raise InputError(f"draws of shape {tuple(x.shape)} are {len(x)} chains, but chains={chains}")
        return x, None, ()
    x = as_points(draws, name="draws", dim=dim)
    _check_divides(len(x), chains)
    return x.reshape(chains, -1, x.shape[1]), None, ()


def _check_divides(n: int, chains: int) -> None:
    if n % chains:
        raise InputError(f"{n} draws cannot be {chains} chains of one length")


def _columns(named: Named) -> dict[tuple[str, tuple[int, ...]], np.ndarray]:
    """(chains, draws) of every single number, by parameter and index, counted from 0."""
    columns = {}
    for name, values in named.items():
        base, index = _place(name)
        for inner in np.ndindex(*values.shape[2:]):
            columns[base, (*index, *inner)] = values[(..., *inner)]
    return _from_zero(columns)


def _whole(named: Named) -> Named:
    """Arrays of parameters that came as single numbers, theta[1], theta[2], ..."""
    if not any(_INDEX.match(name) for name in named):
        return named
    arrays: Named = {}
    for (base, index), values in sorted(_columns(named).items(), reverse=True):  # the largest index first
        if base not in arrays:
            arrays[base] = np.full((*values.shape, *(i + 1 for i in index)), np.nan)
        place: Any = (..., *index)
        arrays[base][place] = values
    return arrays


def _place(name: str) -> tuple[str, tuple[int, ...]]:
    """theta and (2,) of theta[2], theta.2; theta and () of theta."""
    match = _INDEX.match(name)
    return (match[1], tuple(map(int, re.split("[,.]", match[2])))) if match else (name, ())


def _from_zero(places: Mapping[tuple[str, tuple[int, ...]], Any]) -> dict[tuple[str, tuple[int, ...]], Any]:
    """Stan counts from 1, Python from 0."""
    least: dict[str, int] = {}
    for base, index in places:
        least[base] = min([least.get(base, 1), *index])
    return {(base, tuple(i - least[base] for i in index)): v for (base, index), v in places.items()}


def _has_all(named: Named, labels: Sequence[str] | None) -> bool:
    """Whether draws are unconstrained already: some coordinate has a name that no parameter has, and all are
    there."""
    columns, places = _columns(named), _from_zero({_place(label): label for label in labels or ()})
    return any(base.split()[0] in _FREE for base, _ in places) and all(place in columns for place in places)


def _by_names(named: Named, labels: Sequence[str]) -> Chains:
    """Columns in the order of the names; tau for "log tau" is taken the logarithm of."""
    columns, ordered, used, notes, missing = _columns(named), [], set(), [], []
    for (base, index), label in _from_zero({_place(label): label for label in labels}).items():
        change, _, rest = base.partition(" ")
        if (base, index) in columns:
            place, values = (base, index), columns[base, index]
        elif change in _FREE and (rest, index) in columns:
            place = rest, index
            with np.errstate(all="ignore"):
                values = _FREE[change](columns[place])
            notes.append(f"{label} is the {change} of {label.partition(' ')[2]} in the draws.")
        else:
            missing.append(label)
            continue
        used.add(place)
        ordered.append(np.asarray(values, dtype=np.float64))
    if missing:
        if several := [label for label in missing if label in named]:
            count = np.prod(named[several[0]].shape[2:], dtype=int)
            raise InputError(
                f"{several[0]} has {count} numbers per draw, the model has one; draws by chain are (chains, "
                "draws): are these swapped?"
            )
        raise InputError(f"draws lack {listed(missing, _SHOWN)}; they have {listed(list(named), _SHOWN)}")
    extra = list(dict.fromkeys(base for base, index in columns if (base, index) not in used))
    if extra:
        notes.append(f"Left out of the draws, as the model has no such coordinate: {listed(extra, _SHOWN)}.")
    return Chains(torch.as_tensor(np.stack(ordered, -1)), notes=tuple(notes))


def _check_finite(x: Tensor, labels: Sequence[str] | None) -> None:
    bad = ~x.isfinite()
    if not bool(bad.any()):
        return
    rows, columns = bad.any(-1), bad.any(0).any(0).nonzero()[:, 0].tolist()
    places = [
        f"chain {chain + 1}: {int(row.sum())} (the first is draw {int(row.nonzero()[0])})"
        for chain, row in enumerate(rows)
        if bool(row.any())
    ]
    names = listed([labels[j] if labels else f"x{j + 1}" for j in columns], _SHOWN)
    raise InputError(
        f"{int(rows.sum())} of {rows.numel()} draws are not finite in {names}; {listed(places, 4)}; leave "
        "them out, or find out why the sampler went there"
    )


def _divergences(draws: DrawsLike) -> tuple[int, ...]:
    """Divergent transitions of each chain, as InferenceData, CmdStanPy and PyStan tell."""
    stats = getattr(getattr(draws, "sample_stats", None), "data_vars", {})
    if "diverging" in stats:
        return tuple(np.asarray(stats["diverging"].values).sum(1).astype(int).tolist())
    if getattr(draws, "divergences", None) is not None and hasattr(draws, "stan_variables"):
        return tuple(np.atleast_1d(draws.divergences).astype(int).tolist())
    if "divergent__" in getattr(draws, "sample_and_sampler_param_names", ()):
        flat = np.asarray(draws["divergent__"]).reshape(draws.num_chains, -1)
        return tuple(flat.sum(1).astype(int).tolist())
    return ()
