import json
import re
import zipfile

import pytest
import torch

import steincritic as sc

ABOUT = {"model_name": "momiq", "data_name": "kids", "reference_posterior_name": "kids-momiq"}
CHAINS = [
    {"beta[1]": [1.0, 2.0, 3.0], "sigma": [0.5, 0.6, 0.7]},
    {"beta[1]": [4, 5, 6], "sigma": [0.8, 0.9, 1.0]},
]


def pack(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(path.stem, content if isinstance(content, str) else json.dumps(content))


@pytest.fixture
def clone(tmp_path):
    folder = tmp_path / "posterior_database"
    (folder / "posteriors").mkdir(parents=True)
    (folder / "posteriors/kids-momiq.json").write_text(json.dumps(ABOUT))
    (folder / "posteriors/kids-undrawn.json").write_text(
        json.dumps(ABOUT | {"reference_posterior_name": None})
    )
    pack(folder / "data/data/kids.json.zip", {"N": 2, "y": [1.5, 2.5]})
    pack(folder / "reference_posteriors/draws/draws/kids-momiq.json.zip", CHAINS)
    return tmp_path


def draws_file(clone):
    return clone / "posterior_database/reference_posteriors/draws/draws/kids-momiq.json.zip"


@pytest.mark.parametrize("inside", ["", "posterior_database"])
def test_draws_names_and_data_as_published(clone, inside):
    p = sc.data.posteriordb(clone / inside, "kids-momiq")
    assert (p.name, p.model, p.names) == ("kids-momiq", "momiq", ("beta[1]", "sigma"))
    assert p.draws.shape == (2, 3, 2) and p.draws.dtype == torch.float64
    assert p.draws[1, 2].tolist() == [6.0, 1.0]
    assert p.data == {"N": 2, "y": [1.5, 2.5]}
    assert repr(p) == "Posterior('kids-momiq', 2 chains of 3 draws in 2 dimensions)"


def refused(path, name, *words):
    with pytest.raises(sc.InputError) as error:
        sc.data.posteriordb(path, name)
    assert "\n" not in str(error.value)
    for word in words:
        assert re.search(word, str(error.value)), str(error.value)


def test_a_name_that_is_not_there_gets_the_nearest(clone):
    refused(clone, "kids-momiqq", "did you mean kids-momiq")
    refused(clone, "garch", "there are kids-momiq, kids-undrawn")
    refused(clone, "../kids-momiq", "no posterior")
    refused(clone, "kids-undrawn", "no reference draws", "there are kids-momiq")


def test_a_folder_that_is_no_clone(tmp_path):
    refused(tmp_path, "kids-momiq", "it has no posteriors; git clone")
    refused(tmp_path / "none", "kids-momiq", "no such folder; git clone")


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        "[1]",
        '[{"a": []}]',
        '[{"a": [1, 2]}, {"a": [1]}]',
        '[{"a": [1]}, {"b": [1]}]',
        "[" * 10**5,
    ],
)
def test_draws_that_are_none(clone, content):
    pack(draws_file(clone), content)
    refused(clone, "kids-momiq", "kids-momiq.json.zip")


def test_draws_that_are_not_finite(clone):
    pack(draws_file(clone), '[{"a": [1.0, NaN], "b": [1.0, 2.0]}]')
    refused(clone, "kids-momiq", "NaN or infinite draws of a;")


def test_files_that_are_damaged_missing_or_packed_too_well(clone):
    pack(draws_file(clone), " " * 2**28 + "[]")  # 256 KB that claim to be 256 MB
    refused(clone, "kids-momiq", "claims to unpack")
    draws_file(clone).write_bytes(b"PK no archive")
    refused(clone, "kids-momiq", "cannot be read")
    draws_file(clone).unlink()
    refused(clone, "kids-momiq", "not complete")
    (clone / "posterior_database/posteriors/kids-momiq.json").write_text("[")
    refused(clone, "kids-momiq", "kids-momiq.json cannot be read")
