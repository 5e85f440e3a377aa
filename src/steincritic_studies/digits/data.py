"""Handwritten digits as points: MNIST from its idx files, scikit-learn's 8 x 8 ones, the logit transform.

Gray levels are whole numbers in a bounded range; a density on $R^d$ needs neither. So every level is
spread over its own interval by uniform noise, and the unit interval is mapped to the line by the logit.
"""

import gzip
import hashlib
import math
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from steincritic.errors import FileFormatError, InputError, check_choice
from steincritic.rng import generator
from steincritic.shapes import Points

FOLDER_VARIABLE = "STEINCRITIC_DATA"
DEFAULT_FOLDER = Path("data/mnist")
MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_EDGE = 1e-6  # what keeps the logit finite
_ROWS = 4096  # images transformed at a time
_BYTES = 0x08  # the idx code of unsigned bytes


@dataclass(frozen=True)
class Source:
    """SHA-256 of one of the four files as it is distributed, and of what it unpacks to."""

    packed: str
    content: str


MNIST_FILES = {
    "train-images-idx3-ubyte": Source(
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    "train-labels-idx1-ubyte": Source(
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    "t10k-images-idx3-ubyte": Source(
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    "t10k-labels-idx1-ubyte": Source(
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
}
_AGAIN = "remove it and fetch it again"


@dataclass(frozen=True, eq=False)
class Digits:
    """Images of gray levels 0 to `levels` - 1, with what they show."""

    pixels: Tensor  # (n, height, width) whole numbers
    labels: Tensor  # (n,)
    levels: int = 256

    def __len__(self) -> int:
        return len(self.pixels)

    def __repr__(self) -> str:
        height, width = self.image_shape
        return f"Digits({len(self)} images of {height} x {width} in {self.levels} gray levels)"

    @property
    def image_shape(self) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[2]

    def __getitem__(self, rows: Tensor | slice | int) -> "Digits":
        if isinstance(rows, int):
            rows = slice(rows, rows + 1 or None)  # one image is a set of one
        return Digits(self.pixels[rows], self.labels[rows], self.levels)

    def only(self, *classes: int) -> "Digits":
        """The images of these digits."""
        if not classes:
            raise InputError("name the classes to keep, for example only(1) or only(3, 8)")
        present = self.labels.unique().tolist()
        for one in classes:
            if one not in present:
                raise InputError(
                    f"no images of class {one!r}; the classes are {', '.join(map(str, present))}"
                )
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


def mnist(folder: str | Path | None = None, *, part: Literal["train", "test"] = "train") -> Digits:
    """60,000 training or 10,000 test images of 28 x 28.

    Args:
        folder: where the four idx files are, packed or plain; without it the folder that the environment
            variable STEINCRITIC_DATA names, or data/mnist.
    """
    check_choice(part, name="part", choices=("train", "test"))
    place = data_folder(folder)
    stem = "train" if part == "train" else "t10k"
    pixels = _checked(place, f"{stem}-images-idx3-ubyte")
    labels = _checked(place, f"{stem}-labels-idx1-ubyte")
    return Digits(pixels, labels.long())


def data_folder(folder: str | Path | None = None) -> Path:
    return Path(folder or os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER)


def fetch_mnist(folder: str | Path | None = None) -> Path:
    """Download the four files, checksums compared, from the first mirror that has them; needs pooch."""
    try:
        import pooch
    except ImportError:
        raise InputError("downloading needs pooch: pip install 'steincritic[mnist]'") from None
    place = data_folder(folder)
    for name, source in MNIST_FILES.items():
        failures = []
        for mirror in MIRRORS:
            try:
                pooch.retrieve(
                    f"{mirror}{name}.gz", f"sha256:{source.packed}", fname=f"{name}.gz", path=place
                )
                break
            except (OSError, ValueError) as error:  # no connection; another checksum
                failures.append(f"{mirror}: {' '.join(str(error).split())}")
        else:
            raise InputError(f"could not download {name}.gz ({'; '.join(failures)})")
    return place


def small_digits() -> Digits:
    """The 1,797 images of 8 x 8 in 17 levels that come with scikit-learn: no download."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise InputError("the digits come with scikit-learn: pip install 'steincritic[sklearn]'") from None
    loaded = load_digits()
    return Digits(torch.tensor(loaded.images).to(torch.uint8), torch.tensor(loaded.target).long(), levels=17)


def digit_parts(name: str, folder: Path | None) -> tuple[Digits, Digits]:
    """Digits to learn from, and digits that nothing has seen before it is measured."""
    if name == "mnist":
        return mnist(folder), mnist(folder, part="test")
    digits = small_digits()
    half = len(digits) // 2
    return digits[:half], digits[half:]


def read_idx(path: str | Path) -> Tensor:
    """An array of bytes in the idx format, gzip-packed or plain; told by the file's first bytes."""
    return parse_idx(read_unpacked(Path(path)), name=str(path))


def read_unpacked(path: Path) -> bytes:
    if not path.is_file():
        raise InputError(f"no such file: {path}")
    content = path.read_bytes()
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        return gzip.decompress(content)
    except EOFError:
        raise FileFormatError(f"{path} is truncated; {_AGAIN}") from None
    except (OSError, zlib.error) as error:
        raise FileFormatError(f"{path} is damaged ({error}); {_AGAIN}") from None


def parse_idx(content: bytes, *, name: str) -> Tensor:
    """Two zero bytes, the type, the number of axes, their sizes (big-endian), the numbers."""
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _BYTES or not 1 <= content[3] <= 8:
        raise FileFormatError(
            f"{name} is not an idx file of bytes: it begins with {content[:4].hex() or 'nothing'}; {_AGAIN}"
        )
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise FileFormatError(f"{name} is truncated: its header ends after {len(content)} bytes; {_AGAIN}")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    wanted, found = math.prod(shape), len(content) - start
    if found != wanted:
        what = "truncated" if found < wanted else "too long"
        raise FileFormatError(
            f"{name} is {what}: {found} bytes of data for an array of shape {shape}; {_AGAIN}"
        )
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy())


def _checked(folder: Path, name: str) -> Tensor:
    path = _found(folder, name)
    content = read_unpacked(path)
    array = parse_idx(content, name=str(path))  # first: a truncated file is called by its name
    digest = hashlib.sha256(content).hexdigest()
    if digest != MNIST_FILES[name].content:
        raise FileFormatError(
            f"{path} is not MNIST's: SHA-256 of its content is {digest[:12]}..., expected "
            f"{MNIST_FILES[name].content[:12]}...; {_AGAIN}: {_fetching(folder)}"
        )
    return array


def _fetching(folder: Path) -> str:
    """The command that downloads the files."""
    place = "" if folder == data_folder() else repr(str(folder))
    code = f"from steincritic_studies.digits.data import fetch_mnist; fetch_mnist({place})"
    return f'python -c "{code}" (needs pooch)'


def _found(folder: Path, name: str) -> Path:
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return path
    what = f"no {name}.gz in {folder}" if folder.is_dir() else f"no folder {folder}"
    raise InputError(
        f"{what}: put MNIST's four idx files there ({', '.join(MNIST_FILES)}, packed or plain), or name "
        f"their folder in {FOLDER_VARIABLE}, or fetch them: {_fetching(folder)}"
    )
