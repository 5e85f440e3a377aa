"""The report as a file: whole in itself, true to the diagnosis, safe with any name."""

import platform
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from steincritic.diagnosis.check import check
from steincritic.errors import InputError
from steincritic.models import GaussianMixture
from steincritic.report.page import About, render, save_report

NAMES = ("rejected", "fits", "images", "line", "no-sampler")
MEGABYTE = 1_000_000
VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Tags with their attributes, text by the tag that holds it; tags must nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and data.strip():
            self.texts.append((self._open[-1], data.strip()))

    def of(self, *tags: str) -> str:
        return "\n".join(text for tag, text in self.texts if tag in tags)


@pytest.mark.parametrize("name", NAMES)
def test_a_report_needs_nothing_from_outside(pages, name):
    text = pages[name]
    for tag, attributes in Page(text).tags:
        for key in ("src", "href", "xlink:href", "srcset", "action"):
            assert (attributes.get(key) or "#").startswith(("data:", "#")), (tag, key)
    assert "http://" not in text and "https://" not in text and "@import" not in text
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)", text))


@pytest.mark.parametrize("name", NAMES)
def test_every_name_within_a_page_is_used_once_and_every_reference_has_its_end(pages, name):
    tags = Page(pages[name]).tags
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = {a["href"][1:] for _, a in tags if (a.get("href") or "").startswith("#")}
    used |= set(re.findall(r"url\(#([^)]*)\)", pages[name]))
    assert used <= set(ids)


def test_names_are_text_and_never_markup(pages):
    text = pages["rejected"]
    page = Page(text)
    assert "<b>" not in text and "<script>alert" not in text
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    assert '<b>&"x' in page.of("th", "td") and '<b>&"x' in page.of("text")  # tables and drawings


def test_any_name_is_drawn_as_it_is(cases):
    """matplotlib would read $...$ as mathematics and fail on what is none; it warns of letters it lacks."""
    name = "$\\frac$ 收入 _😀"
    drawn = Page(render(replace(cases["rejected"].diagnosis, names=(name,) * 3, regions=()))).of("text")
    assert drawn.count(name) >= 2  # the axes of the arrows; a warning would be an error here


def test_the_verdict_leads_and_says_where_to_look(pages):
    page = Page(pages["rejected"])
    smallest = "p <= 0.001, the smallest that 999 null draws allow"
    assert f"The model does not fit these 160 points ({smallest}). The first place to look:" in page.of("p")
    assert "Where to look" in page.of("h2") and "Regions" in page.of("h2")
    assert "points are not explained by the model" in page.of("p")


def test_without_a_rejection_there_is_no_list_of_suspects(cases, pages):
    assert not cases["fits"].diagnosis.rejected
    page = Page(pages["fits"])
    assert "No evidence against the model in these 120 points" in page.of("p")
    assert "No list of suspects is shown, as any would be made of chance." in page.of("p")
    for absent in ("Where to look", "Regions", "Where data are missing"):
        assert absent not in page.of("h2")
    assert not any("f" in (a.get("class") or "").split() for tag, a in page.tags if tag == "circle")
    assert "yes" not in page.of("td")


def test_a_model_without_a_sampler_has_a_report_without_pvalues_of_points(pages):
    page = Page(pages["no-sampler"])
    assert "The model cannot be sampled, so points have no p-values" in page.of("p")
    assert "p-value" not in page.of("th") and "witness" in page.of("th")


def test_images_are_shown_as_images(cases, pages):
    page = Page(pages["images"])
    images = [a for tag, a in page.tags if tag == "img"]
    assert len(images) >= 48 and all(a["src"].startswith("data:image/png;base64,") for a in images)
    worst = int(cases["images"].diagnosis.points.worst(1)[0])
    assert images[0]["alt"].startswith(f"row {worst}, witness ")
    assert "Worst: least explained by the model" in page.of("h3")


@pytest.mark.parametrize("shape", [(8, 9), (64,) * 2, (8, 8, 3)])
def test_an_image_shape_that_is_not_the_datas_is_refused(cases, shape):
    with pytest.raises(InputError, match=r"image_shape .* pixels, the data have 64 columns"):
        render(cases["images"].diagnosis, image_shape=shape)


def test_a_report_says_how_it_was_made(pages):
    page = Page(pages["line"])
    assert "steincritic check line.csv --model 'models.py:q'" in page.of("code")
    assert "</pre><script>alert(1)</script>" in page.of("pre") and '"level": 0.05' in page.of("pre")
    made = page.of("p")
    for part in ("Seed 7.", f"torch {torch.__version__}", f"numpy {np.__version__}", "steincritic "):
        assert part in made
    assert f"Python {platform.python_version()}" in made


def test_the_same_input_gives_the_same_bytes(tmp_path):
    model = GaussianMixture([[0.0, 0.0]])
    x = model.sample(40, seed=1) + 0.5
    text = render(check(model, x, test="ksd"))
    path = save_report(check(model, x, test="ksd"), tmp_path / "deep" / "report.html")
    assert path.read_text(encoding="utf-8") == text
    assert About().title in Page(text).of("h1")


@pytest.mark.parametrize("name", NAMES)
def test_a_report_is_a_small_file(pages, name):
    assert len(pages[name].encode()) < MEGABYTE
