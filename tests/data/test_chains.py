"""Draws as samplers leave them: every form gives the same chains."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from steincritic.data.chains import read_chains
from steincritic.errors import InputError

CHAINS, STEPS = 3, 20
SOURCE = np.random.default_rng(0)
MU = SOURCE.normal(size=(CHAINS, STEPS))
TAU = np.exp(SOURCE.normal(size=(CHAINS, STEPS)))
THETA = SOURCE.normal(size=(CHAINS, STEPS, 2))
BY_CHAIN = {"mu": MU, "tau": TAU, "theta": THETA}
WANTED = torch.as_tensor(np.concatenate([np.log(TAU)[..., None], THETA, MU[..., None]], -1))


class Named:
    """Coordinates in another order than the parameters, one of them a logarithm; counted from 0."""

    dim, names = 4, ["log tau", "theta[0]", "theta[1]", "mu"]

    def score(self, x):
        return -x


class Constrained:
    """Names its coordinates otherwise, and transforms draws itself."""

    dim, names = 4, ["tau_log__", "a", "b", "mu"]

    def score(self, x):
        return -x

    def unconstrain(self, draws):
        assert all(len(values) == CHAINS * STEPS for values in draws.values())
        columns = [np.log(draws["tau"])[:, None], draws["theta"], draws["mu"][:, None]]
        return torch.as_tensor(np.concatenate(columns, 1))


def flat(values):
    return values.reshape(CHAINS * STEPS, *values.shape[2:])


def variable(values, dims):
    return SimpleNamespace(values=values, dims=dims)


def dataset():
    dims = {"mu": (), "tau": (), "theta": ("k",)}
    return SimpleNamespace(
        data_vars={name: variable(v, ("chain", "draw", *dims[name])) for name, v in BY_CHAIN.items()},
        coords={},
    )


def extracted():
    """One axis for chain and draw, the last one, its chains interleaved."""
    order = np.arange(CHAINS * STEPS).reshape(CHAINS, STEPS).T.ravel()
    found = {name: np.moveaxis(flat(values)[order], 0, -1) for name, values in BY_CHAIN.items()}
    dims = {"mu": ("sample",), "tau": ("sample",), "theta": ("k", "sample")}
    chain = SimpleNamespace(values=np.repeat(np.arange(CHAINS), STEPS)[order])
    return SimpleNamespace(
        data_vars={name: variable(values, dims[name]) for name, values in found.items()},
        coords={"chain": chain},
    )


class CmdStan:
    chains = CHAINS
    divergences = np.array([0, 2, 0])

    def stan_variables(self):
        return {name: flat(values) for name, values in BY_CHAIN.items()} | {"lp": flat(MU)}


class PyStan:
    """Draws are in the last axis, chain after chain."""

    param_names, dims, num_chains = ("mu", "tau", "theta"), ([], [], [2]), CHAINS

    def __getitem__(self, name):
        return np.moveaxis(flat(BY_CHAIN[name]), 0, -1)


def mappings(first=1):
    return [
        {"mu": MU[c].tolist(), "tau": TAU[c].tolist()}
        | {f"theta[{k + first}]": THETA[c, :, k].tolist() for k in range(2)}
        for c in range(CHAINS)
    ]


def columns():
    theta = flat(THETA)
    return {"mu": flat(MU), "tau": flat(TAU), "theta[0]": theta[:, 0], "theta[1]": theta[:, 1]}


def frame(path):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"chain": np.arange(CHAINS).repeat(STEPS), **columns()})


def csv(path):
    frame(path).to_csv(path / "x.csv", index=False)
    return str(path / "x.csv")


def npz(path):
    np.savez(path / "x.npz", **BY_CHAIN)
    return path / "x.npz"


FORMS = {
    "by chain": lambda path: BY_CHAIN,
    "InferenceData": lambda path: SimpleNamespace(posterior=dataset()),
    "Dataset": lambda path: dataset(),
    "az.extract": lambda path: extracted(),
    "CmdStanPy": lambda path: CmdStan(),
    "PyStan": lambda path: PyStan(),
    "mappings": lambda path: mappings(),
    "mappings from 0": lambda path: mappings(0),
    "a sampler": lambda path: SimpleNamespace(get_samples=lambda group_by_chain: BY_CHAIN),
    "a frame": frame,
    "csv": csv,
    "npz": npz,
}


@pytest.mark.parametrize("model", [Named(), Constrained()])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_draws_gives_the_same_chains(form, model, tmp_path):
    read = read_chains(model, FORMS[form](tmp_path))
    torch.testing.assert_close(read.x, WANTED)
    assert read.names == tuple(model.names)


@pytest.mark.parametrize("model", [Named(), Constrained()])
def test_flat_draws_are_cut_into_the_chains_that_were_told(model):
    read = read_chains(model, {name: flat(values) for name, values in BY_CHAIN.items()}, chains=CHAINS)
    torch.testing.assert_close(read.x, WANTED)


def test_arrays_are_taken_as_they_are_and_uneven_chains_are_cut():
    model = Named()
    for draws in (WANTED, WANTED.numpy(), list(WANTED)):
        torch.testing.assert_close(read_chains(model, draws).x, WANTED)
    torch.testing.assert_close(read_chains(model, WANTED.flatten(0, 1), chains=CHAINS).x, WANTED)
    read = read_chains(model, [WANTED[0], WANTED[1, :15], WANTED[2]])
    torch.testing.assert_close(read.x, WANTED[:, :15])
    assert "cut to the shortest, 15" in read.notes[1]
    short = mappings()
    short[1] = {name: values[:12] for name, values in short[1].items()}
    assert read_chains(model, short).x.shape == (3, 12, 4)


def test_names_decide_the_order_and_the_rest_is_told():
    read = read_chains(Named(), CmdStan())
    assert any("log tau is the log of tau" in note for note in read.notes)
    assert any("no such coordinate: lp" in note for note in read.notes)
    assert read.divergences == (0, 2, 0)
    free = {"log tau": np.log(TAU), "theta": THETA, "mu": MU}  # unconstrained already
    torch.testing.assert_close(read_chains(Named(), free).x, WANTED)
    nameless = SimpleNamespace(score=lambda x: -x)
    torch.testing.assert_close(read_chains(nameless, BY_CHAIN, names=Named.names).x, WANTED)


def test_divergent_draws_are_counted_by_chain():
    stats = SimpleNamespace(data_vars={"diverging": SimpleNamespace(values=np.eye(CHAINS, STEPS))})
    read = read_chains(Named(), SimpleNamespace(posterior=dataset(), sample_stats=stats))
    assert read.divergences == (1, 1, 1)


def broken(chain, draw):
    x = WANTED.clone()
    x[chain, draw, 1] = torch.nan
    return x


@pytest.mark.parametrize(
    ("draws", "options", "message"),
    [
        (
            {name: np.swapaxes(values, 0, 1) for name, values in BY_CHAIN.items()},
            {},
            r"mu has 3 numbers per draw, .*: are these swapped\?",
        ),
        ({"mu": MU, "theta": THETA}, {}, "draws lack log tau; they have mu, theta"),
        ({"mu": flat(MU), "tau": flat(TAU)[:-1]}, {}, "as many draws as the others"),
        ({"mu": 0.0}, {}, "one row per draw"),
        ({name: flat(values) for name, values in BY_CHAIN.items()}, {"chains": 7}, "cannot be 7 chains"),
        (WANTED[..., :3], {}, "3 coordinates, the model has 4"),
        (WANTED, {"chains": 2}, "are 3 chains, but chains=2"),
        (broken(1, 5), {}, r"1 of 60 draws are not finite in theta\[0\]; chain 2: 1 \(the first is draw 5\)"),
    ],
)
def test_bad_draws_are_refused_in_a_line(draws, options, message):
    with pytest.raises(InputError, match=message) as error:
        read_chains(Named(), draws, **options)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="names no coordinates"):
        read_chains(SimpleNamespace(score=lambda x: -x), BY_CHAIN)


def test_a_file_of_chains_is_an_array_of_chains(tmp_path):
    np.save(tmp_path / "x.npy", WANTED.numpy())
    assert torch.equal(read_chains(Named(), tmp_path / "x.npy").x, WANTED)
    (tmp_path / "broken.npz").write_bytes(b"PK")
    with pytest.raises(InputError, match="cannot be read as npz"):
        read_chains(Named(), tmp_path / "broken.npz")
    with pytest.raises(InputError, match=r"arviz\.from_netcdf"):
        read_chains(Named(), tmp_path / "x.nc")


def test_a_column_of_chains_is_no_coordinate(tmp_path):
    free = SimpleNamespace(score=lambda x: -x)
    x = read_chains(free, frame(tmp_path)[["chain", "mu"]]).x
    torch.testing.assert_close(x[..., 0], torch.as_tensor(MU))
