"""The report: one HTML file that needs nothing else, drawn from a diagnosis."""

import base64
import io
import json
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steincritic.diagnosis.check_result import CheckResult
from steincritic.errors import InputError
from steincritic.files import package_version, write_atomically
from steincritic.gof.result import DATA
from steincritic.models.bounded import coordinates_of
from steincritic.report import drawings
from steincritic.report.findings import finding_plot

_TEMPLATES = Path(__file__).parent / "templates"
_ROWS = 50  # of the table of points
_COLUMNS = 12  # of the data shown in tables
_IMAGES = 24
_PIXELS = 64  # on a side; larger images are thinned out
_DOTS, _WORST = 1500, 300  # points on the map, and those of them chosen for their witness


@dataclass(frozen=True, kw_only=True)
class About:
    """How a report came to be."""

    title: str = "Does the model fit the data?"
    command: str = ""  # by default that of Python
    config: Mapping[str, Any] = field(default_factory=dict)


def save_report(
    diagnosis: CheckResult,
    path: str | Path,
    *,
    about: About | None = None,
    image_shape: tuple[int, ...] | None = None,
) -> Path:
    """Write the report to one self-contained HTML file.

    Args:
        image_shape: (height, width) or (height, width, 3) where rows are images; shows a gallery.
    """
    path = Path(path)
    write_atomically(path, render(diagnosis, about=about, image_shape=image_shape).encode("utf-8", "replace"))
    return path


def render(
    diagnosis: CheckResult, *, about: About | None = None, image_shape: tuple[int, ...] | None = None
) -> str:
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup

    check_shape(image_shape, diagnosis.data.dim)
    about = about or About()
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    field_plot = drawings.field_plot(diagnosis)
    return environment.get_template("report.html.j2").render(
        style=Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8")),
        script=Markup((_TEMPLATES / "report.js").read_text(encoding="utf-8")),
        d=diagnosis,
        about=about,
        chains="mixing" in diagnosis.test.settings,
        verdict=_verdict(diagnosis),
        bounded=coordinates_of(diagnosis.critic.model) is not None,
        caveats=diagnosis.test.caveat_lines,
        null=Markup(drawings.null_histogram(diagnosis)),
        witness=Markup(drawings.witness_histogram(diagnosis)),
        training=Markup(drawings.training_curves(diagnosis)),
        bars=Markup(drawings.coordinate_bars(diagnosis)),
        wrong=[
            (str(finding), Markup(plot[0]), plot[1])
            for k, finding in enumerate(diagnosis.seen)
            if (plot := finding_plot(diagnosis, finding, k)) is not None
        ],
        others=diagnosis.findings[len(diagnosis.seen) :],
        regions=[
            (str(region), Markup(drawings.region_plot(diagnosis, region, k)))
            for k, region in enumerate(diagnosis.regions[:6])
        ],
        field=None if field_plot is None else (Markup(field_plot[0]), field_plot[1]),
        cloud=_cloud(diagnosis),
        table=None if image_shape else _table(diagnosis),
        gallery=_gallery(diagnosis, image_shape) if image_shape else None,
        missing=_missing(diagnosis, image_shape),
        config=json.dumps(dict(about.config), indent=1, default=str, ensure_ascii=False),
        versions=f"steincritic {package_version('steincritic')}, torch {torch.__version__}, "
        f"numpy {np.__version__}, Python {platform.python_version()}",
    )


def check_shape(image_shape: tuple[int, ...] | None, dim: int) -> None:
    """Rows of `dim` numbers are images of this shape."""
    if image_shape is not None and math.prod(image_shape) != dim:
        raise InputError(
            f"image_shape {'x'.join(map(str, image_shape))} has {math.prod(image_shape)} pixels, the data "
            f"have {dim} columns"
        )


def _verdict(diagnosis: CheckResult) -> str:
    test, n = diagnosis.test, f"{diagnosis.rows_tested:,}"
    if test.subject is not DATA or test.tolerance is not None or test.undecided:
        return test.verdict
    if not test.rejected:
        return f"No evidence against the model in these {n} points (p = {test.pvalue:.2g})."
    places = [
        *map(str, diagnosis.seen),
        *(f"where {region.rule}" for region in diagnosis.regions),
        *(f"coordinate {coordinate.name}" for coordinate in diagnosis.wrong_coordinates),
        *(f"row {diagnosis.row(row)}" for row in diagnosis.points.flagged[:1]),
    ]
    most = f" The first place to look: {places[0]}." if places else ""
    return f"The model does not fit these {n} points ({test.pvalue_words}).{most}"


def _cloud(diagnosis: CheckResult) -> dict[str, Any]:
    """Places, witness as a shade from 0 to 8, and hover texts of the points on the map."""
    rows, places, how = _map(diagnosis)
    witness = diagnosis.points.witness.numpy()
    half = diagnosis.halves.first
    usual = witness if half.draws is None else half.of_draws.witness.numpy()
    low, high = np.quantile(usual, [0.01, 0.99])
    shade = np.clip((witness[rows] - low) / max(high - low, 1e-12), 0, 1)
    flagged = set(diagnosis.points.flagged.tolist())
    dots = [
        {
            "x": round(12 + 616 * float(xy[0]), 1),
            "y": round(388 - 376 * float(xy[1]), 1),
            "shade": round(8 * float(level)),
            "flagged": int(row) in flagged,
            "text": f"row {diagnosis.row(row)}: witness {witness[row]:.3g}",
        }
        for row, xy, level in zip(rows, places, shade, strict=True)
    ]
    return {"dots": dots, "how": how, "shown": len(dots)}


def _map(diagnosis: CheckResult) -> tuple[np.ndarray, np.ndarray, str]:
    """Rows of the data, where they lie in the unit square, and how that was found."""
    n, source = len(diagnosis.data), np.random.default_rng(diagnosis.seed)
    worst = diagnosis.points.worst(min(_WORST, n)).numpy()
    others = np.setdiff1d(np.arange(n), worst)
    rows = np.concatenate([source.permutation(others)[: _DOTS - len(worst)], worst])
    x = diagnosis.data.x.detach().cpu().double().numpy()[rows]
    spread = x.std(0)
    x = (x - x.mean(0)) / np.where(spread > 0, spread, 1.0)
    if x.shape[1] == 1:
        height = source.uniform(size=(len(x), 1))
        return rows, _unit(np.hstack([x, height])), "the one coordinate; the height is random"
    if x.shape[1] == 2:
        return rows, _unit(x), "the two coordinates"
    _, _, axes = np.linalg.svd(x, full_matrices=False)
    return rows, _unit(x @ axes[:2].T), "two principal components"


def _unit(xy: np.ndarray) -> np.ndarray:
    low, high = np.quantile(xy, [0.002, 0.998], axis=0)
    unit: np.ndarray = np.clip((xy - low) / np.where(high > low, high - low, 1.0), 0, 1)
    return unit


def _table(diagnosis: CheckResult) -> dict[str, Any]:
    points, columns, worst = diagnosis.points, _telling_columns(diagnosis), diagnosis.points.worst(_ROWS)
    flagged = set(points.flagged.tolist())
    known = {} if diagnosis.rows is None else diagnosis.rows[worst.cpu().numpy()].cells()
    where = {name: known[name] for name in ("line", "id") if name in known}
    rows = [
        {
            "row": number,
            "where": [values[k] for values in where.values()],
            "witness": float(points.witness[row]),
            "pvalue": None if points.pvalues is None else float(points.pvalues[row]),
            "flagged": row in flagged,
            "values": [float(diagnosis.data.x[row, j]) for j in columns],
        }
        for k, (number, row) in enumerate(zip(diagnosis.numbers(worst), worst.tolist(), strict=True))
    ]
    return {"where": list(where), "columns": [diagnosis.names[j] for j in columns], "rows": rows}


def _telling_columns(diagnosis: CheckResult) -> list[int]:
    ranked = [j for c in diagnosis.coordinates for j in range(c.first, c.last + 1)]
    ranked += range(diagnosis.covariates)
    return list(dict.fromkeys([*ranked, *range(diagnosis.data.dim)]))[:_COLUMNS]  # a simplex has one more


def _gallery(diagnosis: CheckResult, shape: tuple[int, ...]) -> list[tuple[str, list[dict[str, str]]]]:
    points = diagnosis.points

    def image(row: torch.Tensor) -> dict[str, str]:
        text = f"row {diagnosis.row(row)}, witness {float(points.witness[row]):.3g}"
        return {"source": _png(diagnosis.data.x[row], shape), "text": text}

    return [
        ("Worst: least explained by the model", [image(row) for row in points.worst(_IMAGES)]),
        ("Best: as the model expects", [image(row) for row in points.best(_IMAGES)]),
    ]


def _missing(diagnosis: CheckResult, shape: tuple[int, ...] | None) -> dict[str, Any] | None:
    missing = diagnosis.missing
    if missing is None or not len(missing):
        return None
    columns = _telling_columns(diagnosis)
    shown = missing.flagged[:_IMAGES].tolist()
    return {
        "count": len(missing),
        "of": len(missing.witness),
        "fdr": missing.fdr,
        "columns": [diagnosis.names[j] for j in columns],
        "rows": [
            (float(missing.witness[k]), [float(missing.points.x[k, j]) for j in columns]) for k in shown[:12]
        ],
        "images": [_png(missing.points.x[k], shape) for k in shown] if shape else None,
    }


def _png(row: torch.Tensor, shape: tuple[int, ...]) -> str:
    """One row as an image of its own contrast."""
    from matplotlib.image import imsave

    pixels = row.detach().cpu().double().numpy().reshape(shape)
    step = -(-max(shape[:2]) // _PIXELS)
    pixels = pixels[::step, ::step]
    low, high = pixels.min(), pixels.max()
    unit = (pixels - low) / (high - low) if high > low else np.zeros_like(pixels)
    buffer = io.BytesIO()
    imsave(
        buffer, unit, format="png", cmap=None if unit.ndim == 3 else "gray", vmin=0, vmax=1, origin="upper"
    )
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
