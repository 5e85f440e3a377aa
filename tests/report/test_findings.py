"""Every kind of finding has its picture, and the page shows sentence and picture."""

from dataclasses import replace

import pytest
import torch

from steincritic.diagnosis.check import check
from steincritic.diagnosis.findings import Finding
from steincritic.diagnosis.words import KINDS
from steincritic.lenses.moments import DIRECTIONS
from steincritic.models import GaussianMixture
from steincritic.report.findings import finding_plot
from steincritic.report.page import render

WHOLE = ("radial tails", "tails, all alike", "scale", "shift, all alike", *DIRECTIONS)
PAIRS = ("pair", "bend", "extreme together", "cell", "mode", "pair within a mode")
WITHIN = tuple(f"{kind} within a mode" for kind in ("shift", "spread", "pair"))
ALL_KINDS = (*KINDS, *DIRECTIONS, "cell", "mode", *WITHIN)
MODEL = GaussianMixture([[0.0] * 3, [3.0, 0.0, 0.0]])
NAMES = ("<a>", "$b$", "a rather long name of a column")


def finding(kind):
    columns = (0, 1, 2) if kind in WHOLE else (0, 1) if kind in PAIRS else (0,)
    placed = kind in (*DIRECTIONS, "cell", "mode") or "within" in kind
    about = {"columns": columns, "names": tuple(NAMES[j] for j in columns), "pvalue": 0.01, "lens": "moments"}
    sizes = {"estimate": 3.0, "interval": (1.0, 7.0), "expected": 20.0}
    place = (3.0, -0.5, 0.1) if placed else ()
    return Finding(kind=kind, sentence=f"A sentence about {kind}", place=place, **about, **sizes)


@pytest.fixture(scope="module")
def diagnosis():
    x = MODEL.sample(150, seed=1) + torch.tensor([0.0, 0.8, 0.0])
    found = check(MODEL, x, test="ksd", names=NAMES)
    return replace(found, seen=tuple(map(finding, ALL_KINDS)))


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_each_kind_is_drawn(diagnosis, kind):
    picture, note = finding_plot(diagnosis, finding(kind), 0)
    assert picture.startswith("<svg") and note.endswith(".")
    assert finding_plot(diagnosis, replace(finding(kind), columns=()), 0) is None


def test_a_cell_of_one_column_is_drawn_too():
    line = GaussianMixture([[0.0]])
    found = check(line, line.sample(100, seed=1) + 1.0, test="ksd")
    one = replace(finding("cell"), columns=(0,), place=(1.0,))
    assert finding_plot(found, one, 0)[1].startswith("Red line")
    for seen in found.seen:
        assert finding_plot(found, seen, 1)


def test_the_page_says_and_shows_what_is_wrong(diagnosis):
    page = render(diagnosis)
    assert (
        page.index("What is wrong") < page.index("Where to look") < page.index("What is wrong, in pictures")
    )
    for kind in ALL_KINDS:
        assert page.count(f"A sentence about {kind}.") >= 3  # in the list, beside the picture, and read aloud
    assert "The first place to look: A sentence about shift." in page
    calm = render(replace(diagnosis, seen=()))
    assert "What is wrong" not in calm
