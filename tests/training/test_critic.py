"""A fitted critic: field, witness and file."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from reference import Z_MAX, small_module, z_of_mean
from steincritic.critics import MLP
from steincritic.data import ScoredPoints, problem, scored
from steincritic.errors import DivergedError, FileFormatError, InputError
from steincritic.files import read_tensors, write_tensors
from steincritic.models import GaussianMixture, PairModel, as_model
from steincritic.stein import witness_of
from steincritic.training import Adaptive, Staged, Training, fixed
from steincritic.training import fit as fit_module
from steincritic.training.critic import fit_critic, load_critic
from steincritic.training.pacing import DEFAULT_STAGING, paced

PAIR = problem("gm-2d")
WIDE = GaussianMixture([[10.0, -3.0]], [[25.0, 0.04]])  # coordinates of very different scale
X = WIDE.sample(40, seed=0) + torch.tensor([2.0, 0.1], dtype=torch.float64)
FRESH = WIDE.sample(30, seed=1)
TRAINING = Training(epochs=4, batch_size=8, learning_rate=1e-2, dtype="float64")
NET = MLP(hidden=(6, 5))


def fit(model=WIDE, x=X, **changes):
    options = {"staging": fixed(1.0), "network": NET, "training": TRAINING, "callbacks": []} | changes
    return fit_critic(model, x, **options)


@pytest.fixture(scope="module")
def critic():
    return fit()


@pytest.mark.parametrize("standardize", [True, False])
def test_the_stein_value_of_the_field_is_the_witness(standardize):
    critic = fit(standardize=standardize)
    by_field = witness_of(critic.field, scored(WIDE, FRESH))
    torch.testing.assert_close(critic.witness(FRESH), by_field, rtol=1e-10, atol=1e-10)  # rounding


def test_field_and_score_gap_differ_by_the_squared_scale(critic):
    got, wanted = critic.field(FRESH), critic.score_gap(FRESH) * critic.frame.scale**2
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)  # rounding


def test_the_frame_is_the_models_location_and_scale(critic):
    draws = 2000  # of the model, from which the frame is taken
    mean, sd = torch.tensor([10.0, -3.0]), torch.tensor([5.0, 0.2])
    # standard errors: sd/sqrt(n) of a mean, sd/sqrt(2n) of a standard deviation
    assert bool(((critic.frame.location - mean).abs() < Z_MAX * sd / draws**0.5).all())
    assert bool(((critic.frame.scale - sd).abs() < Z_MAX * sd / (2 * draws) ** 0.5).all())


def test_standardized_training_does_not_see_the_units():
    moved = GaussianMixture(WIDE.means * 7 - 1, WIDE.covariances * 49)
    one, other = fit(), fit(moved, X * 7 - 1)
    # both frames come from the same standard normal draws, so all differs by rounding, enlarged by Adam
    torch.testing.assert_close(one.witness(FRESH), other.witness(FRESH * 7 - 1), rtol=1e-6, atol=1e-8)


def test_without_a_sampler_the_frame_is_that_of_the_data():
    critic = fit(PairModel(WIDE.score))
    torch.testing.assert_close(critic.frame.location, X.mean(0))
    assert fit(PairModel(WIDE.score), standardize=False).frame.scale.tolist() == [1.0, 1.0]


def test_the_witness_is_larger_on_the_data_than_on_the_model():
    training = Training(epochs=20, batch_size=50, learning_rate=1e-2, dtype="float64")
    critic = fit(PAIR.model, PAIR.data.sample(500, seed=0), training=training, staging=fixed(0.5))
    assert z_of_mean(critic.witness(PAIR.data.sample(5_000, seed=1))) > Z_MAX
    assert abs(z_of_mean(critic.witness(PAIR.model.sample(5_000, seed=1)))) < Z_MAX


def test_every_kind_of_points_gives_the_same_witness(critic, tmp_path):
    np.save(tmp_path / "x.npy", FRESH.numpy())
    wanted = critic.witness(FRESH)
    for given in (FRESH.numpy(), FRESH.tolist(), tmp_path / "x.npy", scored(WIDE, FRESH)):
        assert torch.equal(critic.witness(given), wanted)
        assert torch.equal(critic.field(given), critic.field(FRESH))
    assert critic.witness(FRESH[:1]).shape == (1,)
    torch.testing.assert_close(critic.witness(FRESH[:1]), wanted[:1], rtol=1e-12, atol=1e-12)  # rounding


def test_scored_points_need_no_model():
    points = scored(WIDE, X)
    critic = fit(None, points, standardize=False)
    assert torch.equal(critic.witness(points), fit(standardize=False).witness(points))


def test_the_seed_alone_decides_the_critic():
    assert torch.equal(fit(seed=3).witness(FRESH), fit(seed=3).witness(FRESH))
    assert not torch.equal(fit(seed=3).witness(FRESH), fit(seed=4).witness(FRESH))


@pytest.mark.parametrize(
    "by_monitor",
    [
        {"training": Training(**{**vars(TRAINING), "selection": "monitor", "epochs": 1})},
        {"staging": Adaptive(initial=1.0, floor=0.1, decay=0.5)},
    ],
    ids=["selection", "staging"],
)
def test_the_monitor_holds_out_a_fifth_unless_validation_is_passed(by_monitor, monkeypatch):
    seen = []
    train = fit_module._Run._train_epoch
    monkeypatch.setattr(
        fit_module._Run, "_train_epoch", lambda self, e: seen.append(len(self.points)) or train(self, e)
    )
    assert "monitor" in fit(**by_monitor).history
    assert "monitor" in fit(**by_monitor, validation=FRESH).history
    assert list(dict.fromkeys(seen)) == [32, 40]
    with pytest.raises(InputError, match="too few to hold any out"):
        fit_critic(WIDE, X[:1], network=MLP(hidden=(6,)), **by_monitor)


def test_a_critic_that_diverged_is_never_returned():
    with pytest.raises(DivergedError, match="lower the learning rate"):
        fit(training=Training(epochs=4, batch_size=8, learning_rate=1e30))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_saved_critic_comes_back_bit_by_bit(tmp_path, dtype):
    training = Training(**{**vars(TRAINING), "dtype": dtype})
    critic = fit(training=training, staging=Staged(initial=1.0, floor=0.1, decay=0.5))
    critic.save(tmp_path / "critic.safetensors")
    loaded = load_critic(str(tmp_path / "critic.safetensors"), model=WIDE)
    assert torch.equal(loaded.witness(FRESH), critic.witness(FRESH))
    assert torch.equal(loaded.field(FRESH), critic.field(FRESH))
    assert set(loaded.history) == set(critic.history)
    assert all(torch.equal(loaded.history[name], critic.history[name]) for name in critic.history)
    assert loaded.fitted.seeds == critic.fitted.seeds


def test_a_module_critic_is_saved_without_its_code(tmp_path):
    path, module = tmp_path / "critic.safetensors", small_module(2, seed=0)
    critic = fit(network=module)
    critic.save(path)
    with pytest.raises(InputError, match="pass network="):
        load_critic(path)
    loaded = load_critic(path, WIDE, network=small_module(2, seed=9))
    assert torch.equal(loaded.witness(FRESH), critic.witness(FRESH))
    with pytest.raises(FileFormatError, match="do not fit the network"):
        load_critic(path, WIDE, network=small_module(2, seed=0, width=4))


def test_a_critic_loaded_without_its_model_says_what_to_do(critic, tmp_path):
    critic.save(tmp_path / "c")
    loaded = load_critic(tmp_path / "c")
    with pytest.raises(InputError, match=r"pass ScoredPoints\(x, score\), or load_critic\(path, model=q\)"):
        loaded.witness(FRESH)
    assert torch.equal(loaded.witness(scored(WIDE, FRESH)), critic.witness(FRESH))
    assert torch.equal(loaded.field(FRESH), critic.field(FRESH))  # the field needs no score


@pytest.mark.parametrize(
    "given", [torch.zeros(3, 1), torch.zeros(3, 3), ScoredPoints(torch.zeros(3, 1), torch.zeros(3, 1))]
)
def test_points_of_another_dimension_are_refused(critic, given):
    for use in (critic.witness, critic.field, critic.score_gap):
        with pytest.raises(InputError, match="dimensions"):
            use(given)


def doctored(path, change):
    """Rewrite a saved critic with its arrays or its description changed."""
    tensors, about = read_tensors(path, kind="critic")
    change(tensors, about)
    write_tensors(path, tensors, about, kind="critic")


@pytest.mark.parametrize(
    "change",
    [
        lambda t, a: t.pop("coefficients"),
        lambda t, a: t.pop("snapshot/0/w1"),
        lambda t, a: [t.pop(name) for name in list(t) if name.startswith("snapshot/")],
        lambda t, a: t.update({"snapshot/0/w2": torch.zeros(1, 2, 2)}),
        lambda t, a: t.update({"snapshot/0/extra": torch.zeros(1)}),
        lambda t, a: t.update({"snapshot/0/w1": t["snapshot/0/w1"].half()}),
        lambda t, a: t.update({"coefficients": torch.zeros(0, 1)}),
        lambda t, a: t.update({"coefficients": torch.zeros(5, 1)}),
        lambda t, a: t.update({"frame/scale": torch.ones(3)}),
        lambda t, a: t.update({"frame/location": torch.ones(1)}),
        lambda t, a: a.update(network={"hidden": [6, 5], "activation": "evil"}),
        lambda t, a: a.update(network={"hidden": [7, 5]}),
        lambda t, a: a.update(network=[1]),
        lambda t, a: a.update(seed="x"),
        lambda t, a: a.pop("seed"),
    ],
)
def test_doctored_critics_are_refused_in_one_line(critic, tmp_path, change):
    path = tmp_path / "critic.safetensors"
    critic.save(path)
    doctored(path, change)
    with pytest.raises(FileFormatError, match=r"critic\.safetensors") as caught:
        load_critic(path)
    assert "\n" not in str(caught.value)


def test_widths_that_a_file_claims_are_compared_before_anything_is_built(critic, tmp_path, monkeypatch):
    critic.save(tmp_path / "c")
    doctored(tmp_path / "c", lambda t, a: a.update(network={"hidden": [25_000, 25_000]}))
    monkeypatch.delattr(MLP, "init")
    with pytest.raises(FileFormatError, match="do not fit the network"):
        load_critic(tmp_path / "c")


@pytest.mark.parametrize("n", [10, 40, 2666])
def test_moderate_samples_are_trained_on_with_the_usual_settings(n):
    assert paced(n, training=None, staging=DEFAULT_STAGING) == (Training(), DEFAULT_STAGING)


@pytest.mark.parametrize("n", [3000, 10_000, 50_000, 10**6])
def test_large_samples_take_no_more_steps_and_as_many_stages(n):
    training, staging = paced(n, training=None, staging=DEFAULT_STAGING)
    steps = -(-n // training.batch_size) * training.epochs
    assert steps <= max(4400, -(-n // training.batch_size)) and training.batch_size <= 200
    assert training.epochs >= 1 and abs(steps // staging.every - Training().epochs) <= 6


def test_a_critic_knows_its_model_again_and_refuses_another(tmp_path, critic):
    critic.save(path := tmp_path / "critic")
    assert load_critic(path, critic.model).model is critic.model
    single = (lambda x: critic.model.score(x.float()).to(x), None)
    assert load_critic(path, single).model is not None  # the same to rounding
    with pytest.raises(InputError, match=r"is a critic of another model than .*16 of 16 points"):
        load_critic(path, (lambda x: 1.01 * critic.model.score(x), None))


def test_a_critic_of_a_model_without_a_score_there_is_saved_all_the_same(tmp_path, critic):
    def fails(x):
        raise RuntimeError("nothing there")

    replace(critic, model=as_model((fails, None))).save(path := tmp_path / "critic")
    assert load_critic(path, critic.model).model is critic.model


def test_a_pickled_critic_leaves_its_model_behind():
    """A flow, for one, cannot be pickled."""
    model = (lambda x: -x, None)
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    critic = fit_critic(model, x, training=Training(epochs=2), callbacks=())
    again = pickle.loads(pickle.dumps(critic))
    points = ScoredPoints(x, -x)
    assert again.model is None and torch.equal(again.witness(points), critic.witness(points))
