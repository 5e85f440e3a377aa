"""The report in a browser, used as a person would use it: mouse, keyboard, dark mode, a phone.

Screenshots are left in out/screenshots. Without a Chromium these tests are skipped.
"""

from itertools import pairwise
from pathlib import Path

import pytest

from browser import Browser, installed

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium here: apt-get install chromium")

NAMES = ("rejected", "fits", "images", "line", "no-sampler")
SHOTS = Path(__file__).parents[2] / "out" / "screenshots"
TEXT_CONTRAST, SHAPE_CONTRAST = 4.5, 3.0  # WCAG 2.2, 1.4.3 and 1.4.11, level AA

# Contrast of every piece of text, and of the map's dots, with what is behind it.
CONTRAST = """
(() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = parse(color).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if ((parse(color)[3] ?? 1) > 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const ratio = (one, other) => {
    const [a, b] = [light(one), light(other)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const texts = [], shapes = [];
  for (const details of document.querySelectorAll("details")) details.open = true;
  const speaks = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  for (const e of document.body.querySelectorAll("*")) {
    const style = getComputedStyle(e), color = e instanceof SVGElement ? style.fill : style.color;
    if (["SCRIPT", "STYLE"].includes(e.tagName) || !e.getClientRects().length) continue;
    if (e.matches("#map circle")) shapes.push([ratio(color, behind(e)), e.getAttribute("class")]);
    else if (speaks(e)) texts.push([ratio(color, behind(e)), e.tagName + ": " + e.textContent.slice(0, 40)]);
  }
  const least = (list) => list.reduce((a, b) => a[0] < b[0] ? a : b);
  return { texts: texts.length, text: least(texts), shape: least(shapes) };
})()
"""
# Letters of a drawing that lie outside it, so that they are cut.
CUT = """
[...document.querySelectorAll("figure svg")].flatMap((svg) => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter((text) => {
    const box = text.getBoundingClientRect();
    const [across, down] = [Math.max(frame.left - box.left, box.right - frame.right),
                            Math.max(frame.top - box.top, box.bottom - frame.bottom)];
    return Math.max(across, down) > 1;
  }).map((text) => text.textContent);
})
"""
STRUCTURE = """
((all) => ({
  headings: all("h1, h2, h3, h4").map((h) => Number(h.tagName[1])),
  images: all("img").length,
  unnamed: [
    ...all("img").filter((e) => !e.alt || !e.complete || !e.naturalWidth),
    ...all("[role=img], [role=region], section").filter((e) => !e.getAttribute("aria-label")),
    ...all("svg").filter((e) => !e.closest("[role=img]")),
    ...all("button, summary, a").filter((e) => !e.textContent.trim()),
    ...all("th").filter((e) => e.scope !== "col"),
  ].map((e) => e.outerHTML.slice(0, 200)),
  resources: performance.getEntriesByType("resource").map((e) => e.name),
  language: document.documentElement.lang, title: document.title,
}))((selector) => [...document.querySelectorAll(selector)])
"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
WIDTHS = "[document.documentElement.scrollWidth, innerWidth]"


@pytest.fixture(scope="module")
def folder(pages, tmp_path_factory):
    place = tmp_path_factory.mktemp("reports")
    for name, text in pages.items():
        (place / f"{name}.html").write_text(text, encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    try:
        running = Browser(installed(), tmp_path_factory.mktemp("profile"))
    except (AssertionError, OSError) as error:
        pytest.skip(f"a Chromium is installed but does not run here: {error}")
    with running:
        yield running


def heads(table):
    return f"[...document.querySelectorAll('{table} th button')]"


def column(number, table="#worst"):
    return (
        f"[...document.querySelector('{table}').tBodies[0].rows]"
        f".map((row) => Number(row.cells[{number}].dataset.value))"
    )


def test_errors_and_requests_would_be_seen(browser, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<script>console.error('one'); Promise.reject(Error('two'))</script><script>three()</script>"
        "<img src='http://127.0.0.1:9/four.png'>"
    )
    seen = browser.open(bad)
    assert all(any(word in error for error in seen.errors) for word in ("one", "two", "three"))
    assert "http://127.0.0.1:9/four.png" in seen.requests


@pytest.mark.parametrize("name", NAMES)
def test_a_report_loads_quietly_and_is_well_built(browser, folder, name):
    path = folder / f"{name}.html"
    seen = browser.open(path)
    page = browser.run(STRUCTURE)
    assert seen.errors == [] and seen.requests == [path.as_uri()] and page["resources"] == []
    assert page["unnamed"] == []
    assert page["language"] == "en" and page["title"].startswith(name)
    levels = page["headings"]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    assert (page["images"] > 0) == (name == "images")
    assert browser.run(CUT) == []
    browser.screenshot(SHOTS / f"{name}-light.png")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_every_text_can_be_read_in_both_themes(browser, folder, name, dark):
    seen = browser.open(folder / f"{name}.html", dark=dark)
    contrast = browser.run(CONTRAST)
    assert contrast["texts"] > 50
    assert contrast["text"][0] >= TEXT_CONTRAST, contrast["text"]
    assert contrast["shape"][0] >= SHAPE_CONTRAST, contrast["shape"]
    assert seen.errors == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_button_turns_the_theme_and_follows_the_system_before(browser, folder, dark):
    browser.open(folder / "rejected.html", dark=dark)
    colors, label = [browser.run(BACKGROUND)], "document.getElementById('theme').textContent"
    assert browser.run(label) == ("Light mode" if dark else "Dark mode")
    for _ in range(2):
        browser.click("document.getElementById('theme')")
        colors.append(browser.run(BACKGROUND))
    assert colors[0] == colors[2] != colors[1]
    paper = ["rgb(20, 25, 31)", "rgb(253, 253, 251)"]
    assert colors[:2] == (paper if dark else paper[::-1])
    if dark:
        browser.screenshot(SHOTS / "rejected-dark.png")


def test_a_theme_that_was_chosen_can_be_read_too(browser, folder):
    browser.open(folder / "fits.html")
    browser.click("document.getElementById('theme')")
    contrast = browser.run(CONTRAST)
    assert browser.run(BACKGROUND) == "rgb(20, 25, 31)" and contrast["text"][0] >= TEXT_CONTRAST
    browser.screenshot(SHOTS / "fits-dark.png")


def test_print_is_dark_on_white_whatever_the_theme(browser, folder):
    browser.open(folder / "rejected.html", dark=True, media="print")
    assert browser.run(BACKGROUND) == "rgb(255, 255, 255)"
    assert browser.run("getComputedStyle(document.body).color") == "rgb(27, 39, 51)"


def test_a_table_is_sorted_by_mouse_and_by_keyboard(browser, folder):
    seen = browser.open(folder / "rejected.html")
    witness = browser.run(column(1))
    assert witness == sorted(witness, reverse=True) and len(witness) == 50
    state = f"{heads('#worst')}[1].parentElement.getAttribute('aria-sort')"
    assert browser.run(state) == "descending"
    browser.click(f"{heads('#worst')}[1]")
    assert browser.run(column(1)) == sorted(witness) and browser.run(state) == "ascending"
    browser.run(f"{heads('#worst')}[1].focus()")
    browser.press("Enter")
    assert browser.run(column(1)) == witness and browser.run(state) == "descending"
    browser.press("Tab")  # to the p-values
    browser.press("Enter")
    pvalues = browser.run(column(2))
    assert pvalues == sorted(pvalues) and browser.run(state) is None
    assert browser.run("document.querySelectorAll('#worst [aria-sort]').length") == 1
    assert seen.errors == []


def test_names_are_sorted_by_their_numbers(browser, folder):
    browser.open(folder / "images.html")
    browser.click("document.querySelector('details summary')")
    browser.click("document.querySelector('details th button')")
    names = browser.run(
        "[...document.querySelectorAll('details tbody tr')].map((r) => r.cells[0].textContent)"
    )
    assert names == [f"x{j + 1}" for j in range(64)]


def test_the_first_key_leads_to_the_verdict(browser, folder):
    browser.open(folder / "fits.html")
    browser.press("Tab")
    assert browser.run("document.activeElement.textContent") == "Skip to the verdict"
    assert browser.run("document.activeElement.getBoundingClientRect().left >= 0")
    browser.press("Enter")
    assert browser.run("location.hash") == "#verdict"


@pytest.mark.parametrize("name", ["rejected", "line"])
def test_a_point_tells_its_row(browser, folder, cases, name):
    browser.open(folder / f"{name}.html")
    last = "[...document.querySelectorAll('#map circle')].at(-1)"  # drawn last, so nothing covers it
    assert browser.run("document.getElementById('tip').hidden")
    browser.hover(last)
    said = browser.run("document.getElementById('tip').textContent")
    assert said == browser.run(f"{last}.dataset.t")
    row = int(said.removeprefix("row ").split(":")[0])
    assert said == f"row {row}: witness {float(cases[name].diagnosis.points.witness[row]):.3g}"
    left, right, height = browser.run(
        "(({ left, right, height }) => [left, right, height])"
        "(document.getElementById('tip').getBoundingClientRect())"
    )
    assert left >= 0 and right <= 1100 and height > 0
    browser.hover("document.querySelector('h1')")
    assert browser.run("document.getElementById('tip').hidden")


@pytest.mark.parametrize("width", [390, 320])
@pytest.mark.parametrize("name", NAMES)
def test_a_report_fits_a_phone(browser, folder, name, width):
    browser.open(folder / f"{name}.html", width=width, height=844)
    page, window = browser.run(WIDTHS)
    assert page <= window == width
    assert browser.run(CUT) == []
    if width == 390 and name in ("rejected", "images"):
        browser.screenshot(SHOTS / f"{name}-phone.png")
