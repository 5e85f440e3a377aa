"""Handwritten digits as points: MNIST from its idx files, scikit-learn's 8 x 8 ones, the logit transform.

Gray levels are whole numbers in a bounded range; a density on $R^d$ needs neither. So every level is
spread over its own interval by uniform noise, and the unit interval is mapped to the line by the logit.
"""

import gzip
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from steincritic.errors import FileFormatError, InputError
from steincritic.models.adapters.outside import require
from steincritic.rng import generator
from steincritic.shapes import Points

MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST_FILES = {  # SHA-256 of each file as it is distributed
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
_EDGE = 1e-6  # what keeps the logit finite
_ROWS = 4096  # images transformed at a time


@dataclass(frozen=True, eq=False)
class Digits:
    """Images of gray levels 0 to `levels` - 1, with what they show."""

    pixels: Tensor  # (n, height, width) whole numbers
    labels: Tensor  # (n,)
    levels: int = 256

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, rows: Tensor | slice) -> "Digits":
        return Digits(self.pixels[rows], self.labels[rows], self.levels)

    def only(self, *classes: int) -> "Digits":
        """The images of these digits."""
        return self[torch.isin(self.labels, torch.tensor(classes))]

    def logits(self, *, seed: int) -> Points:
        """(n, height * width) points of the line, in single precision; the seed decides the noise."""
        source = generator(seed, "dequantize")
        parts = self.pixels.flatten(1).split(_ROWS)
        return torch.cat([to_logits(part, levels=self.levels, generator=source).float() for part in parts])


def to_logits(pixels: Tensor, *, levels: int, generator: torch.Generator) -> Tensor:
    r"""$\mathrm{logit}(\epsilon + (1 - 2\epsilon) y)$ with $y = (\text{level} + u) / \text{levels}$.

    u is uniform. With 256 levels y is x 255/256 + u/256 for gray values x in [0, 1].
    """
    noise = torch.rand(pixels.shape, generator=generator, dtype=torch.float64)
    y = (pixels.to(torch.float64) + noise) / levels
    return torch.logit(_EDGE + (1 - 2 * _EDGE) * y)


def from_logits(x: Tensor) -> Tensor:
    """Gray values in [0, 1]: `to_logits` undone up to the noise. Points far out are black or white."""
    y: Tensor = (torch.sigmoid(x) - _EDGE) / (1 - 2 * _EDGE)
    return y.clamp(0, 1)


def as_pixels(x: Points) -> list[str]:
    """Gray values of each image from black 00 to white ff, two hexadecimal digits per pixel."""
    gray = (255 * from_logits(x.double())).round().to("cpu", torch.uint8).numpy()
    return [bytes(row).hex() for row in gray]


def from_pixels(pixels: str, shape: Sequence[int]) -> np.ndarray:
    """`as_pixels` undone: gray values of one image in [0, 1], (height, width)."""
    return np.frombuffer(bytes.fromhex(pixels), np.uint8).reshape(*shape) / 255


def mnist(part: Literal["train", "test"] = "train") -> Digits:
    """60,000 training or 10,000 test images of 28 x 28, from the folder of `mnist_folder`."""
    stem = {"train": "train", "test": "t10k"}[part]
    labels = _read(f"{stem}-labels-idx1-ubyte.gz").long()
    return Digits(_read(f"{stem}-images-idx3-ubyte.gz"), labels)


def mnist_folder() -> Path:
    """That of the environment variable STEINCRITIC_DATA, or data/mnist."""
    return Path(os.environ.get("STEINCRITIC_DATA") or "data/mnist")


def fetch_mnist() -> None:
    """Download the four files and compare their checksums, by pooch."""
    registry = {name: f"sha256:{digest}" for name, digest in MNIST_FILES.items()}
    pooch = require("pooch", extra="mnist")
    files = pooch.create(path=mnist_folder(), base_url=MIRROR, registry=registry)
    for name in registry:
        files.fetch(name)


def small_digits() -> Digits:
    """The 1,797 images of 8 x 8 in 17 levels that come with scikit-learn: no download."""
    loaded = require("sklearn.datasets", extra="sklearn").load_digits()
    return Digits(torch.tensor(loaded.images).to(torch.uint8), torch.tensor(loaded.target).long(), levels=17)


def digit_parts(name: str) -> tuple[Digits, Digits]:
    """Digits to learn from, and digits that nothing has seen before it is measured."""
    if name == "mnist":
        return mnist(), mnist("test")
    digits = small_digits()
    half = len(digits) // 2
    return digits[:half], digits[half:]


def _read(name: str) -> Tensor:
    """An array in the idx format: two zero bytes, the type, the number of axes, their sizes, the numbers."""
    path = mnist_folder() / name
    fetch = 'python -c "from studies.digits.data import fetch_mnist; fetch_mnist()"'
    if not path.is_file():
        raise InputError(
            f"no {name} in {path.parent}: put MNIST's four files there ({', '.join(MNIST_FILES)}), or name "
            f"their folder in STEINCRITIC_DATA, or fetch them: {fetch} (needs pooch)"
        )
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != MNIST_FILES[name]:
        raise FileFormatError(f"{path} is not MNIST's by its SHA-256; remove it and fetch it again: {fetch}")
    content = gzip.decompress(content)
    start = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:start], ">u4").tolist()
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy())
