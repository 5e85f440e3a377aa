"""Records to tables and figures."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from steincritic.errors import InputError
from steincritic.files import write_atomically
from steincritic_studies.digits.images_figures import draw_images, images_table
from steincritic_studies.digits.mnist_figures import digits_table, draw_digits
from steincritic_studies.lazy.figures import draw_lazy, lazy_table
from steincritic_studies.learning.figures import draw_learning, learning_table
from steincritic_studies.paper.figures import draw_adaptive, draw_one_dimension, draw_table_figures
from steincritic_studies.posteriors.figures import draw_posteriors, posterior_table
from steincritic_studies.power.figures import (
    calibration_table,
    draw_calibration,
    draw_faults,
    draw_power,
    draw_streams,
    power_table,
    streams_table,
)
from steincritic_studies.power.staging_figures import draw_stagings, staging_table
from steincritic_studies.record import Record
from steincritic_studies.tables import adaptive_table, faults_table, mixture_table, one_dimension_table


@dataclass(frozen=True)
class Page:
    """How the record of an experiment is shown."""

    table: Callable[[Record], str]
    figures: Callable[[Record, Path], list[Path]]


PAGES: dict[str, Page] = {
    "gm-1d": Page(one_dimension_table, draw_one_dimension),
    "gm-2d": Page(mixture_table, draw_table_figures),
    "gm-10d": Page(mixture_table, draw_table_figures),
    "gm-25d": Page(mixture_table, draw_table_figures),
    "adaptive": Page(adaptive_table, draw_adaptive),
    **dict.fromkeys(
        ("ksd-50d", "ksd-50d-easy", "ksd-bandwidth", "splits", "rbm-benchmark"),
        Page(power_table, draw_power),
    ),
    "calibration": Page(calibration_table, draw_calibration),
    "streams": Page(streams_table, draw_streams),
    "planted-faults": Page(faults_table, draw_faults),
    "lazy-training": Page(lazy_table, draw_lazy),
    "posterior-checks": Page(posterior_table, draw_posteriors),
    **dict.fromkeys(("image-models", "small-images"), Page(images_table, draw_images)),
    "learn-ebm": Page(learning_table, draw_learning),
    "auto-staging": Page(staging_table, draw_stagings),
    "mnist": Page(digits_table, draw_digits),
}


def present(record: Record, folder: Path) -> list[Path]:
    """Write the table and the figures of a record beside it."""
    if record.name not in PAGES:
        raise InputError(f"no page for a record of {record.name!r}")
    page = PAGES[record.name]
    table = folder / "table.md"
    write_atomically(table, page.table(record).encode())
    return [table, *page.figures(record, folder)]


__all__ = ["PAGES", "Page", "present"]
