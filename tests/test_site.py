"""The built site (`make docs`): links lead somewhere, nothing comes from outside, no page is broken.

Skipped where there is no built site; the pages in a browser also where there is no Chromium.
"""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import browser

SITE = Path(__file__).parent.parent / "docs" / "_build" / "html"
PAGES = sorted(SITE.rglob("*.html"))
OUTSIDE = ("http:", "https:", "//")
NO_PLACE = {"#top", "#"}  # of the theme's own script
pytestmark = pytest.mark.skipif(not PAGES, reason="no built site: make docs")


@dataclass
class Page(HTMLParser):
    """What a page links to, what it loads, and where it can be linked."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self):
        super().__init__()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "search", "index", "next", "prev"):
            self.loaded.append(given["href"])
        elif given.get("src"):
            self.loaded.append(given["src"])


def read(path):
    page = Page()
    page.feed(path.read_text("utf-8"))
    return page


def test_links_and_anchors_lead_somewhere():
    pages = {path.resolve(): read(path) for path in PAGES}
    lost = []
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme or link.startswith("//") or link in NO_PLACE:
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not place.exists():
                lost.append(f"{path.relative_to(SITE)}: no file {link}")
            elif parts.fragment and place in pages and unquote(parts.fragment) not in pages[place].anchors:
                lost.append(f"{path.relative_to(SITE)}: no place {link}")
    assert not lost, "\n".join(lost)


def test_nothing_is_loaded_from_outside():
    outside = [
        f"{path.name}: {one}" for path in PAGES for one in read(path).loaded if one.startswith(OUTSIDE)
    ]
    sheets = [sheet for sheet in SITE.rglob("*.css") if "url(http" in sheet.read_text("utf-8")]
    assert not outside and not sheets


def test_a_lost_link_and_an_outside_script_would_be_seen():
    page = Page()
    page.feed('<a href="x.html#there"><script src="https://elsewhere/x.js"></script><h1 id="here">')
    assert (page.links, page.loaded, page.anchors) == (["x.html#there"], ["https://elsewhere/x.js"], {"here"})


STATE = """(() => {
  const lost = [...document.images].filter(i => i.complete && !i.naturalWidth && i.src).map(i => i.src);
  const loaded = performance.getEntriesByType("resource").map(e => e.name);
  const outside = loaded.filter(name => !name.startsWith("file:"));
  return [document.documentElement.scrollWidth, [...lost, ...outside]];
})()"""


@browser.needed
@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_broken(tmp_path, width):
    for first in range(0, len(PAGES), 20):
        pages = PAGES[first : first + 20]
        answers, console = browser.look(pages, STATE, tmp_path, [width])
        pairs = zip(pages, answers, strict=True)
        broken = [f"{page.name}: {wide} px, {lost}" for page, (wide, lost) in pairs if wide > width or lost]
        assert not broken and not console, "\n".join([*broken, *console])
