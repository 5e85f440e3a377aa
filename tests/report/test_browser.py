"""Reports in a browser: quiet, whole in narrow and wide windows, with tables that can be sorted."""

from browser import look, needed

pytestmark = needed
WIDTHS = (320, 390, 1100)
# Width of the page, letters that a drawing cuts off, what has no name, what was loaded from elsewhere.
SHAPE = """
({
  width: document.documentElement.scrollWidth,
  cut: [...document.querySelectorAll("figure svg")].flatMap((svg) => {
    const frame = svg.getBoundingClientRect();
    return [...svg.querySelectorAll("text")].map((text) => [text.getBoundingClientRect(), text.textContent])
      .filter(([box]) => frame.left - box.left > 1 || box.right - frame.right > 1
                      || frame.top - box.top > 1 || box.bottom - frame.bottom > 1);
  }),
  unnamed: document.querySelectorAll("img:not([alt]), [role=img]:not([aria-label])").length,
  resources: performance.getEntriesByType("resource").length,
})
"""
SORTED = """
(() => {
  const table = document.querySelector("#worst"), head = table.querySelectorAll("th button")[1];
  const witness = () => [...table.tBodies[0].rows].map((row) => Number(row.cells[1].dataset.value));
  const [paper, before] = [getComputedStyle(document.body).backgroundColor, witness()];
  head.click();
  document.getElementById("theme").click();
  const dot = [...document.querySelectorAll("#map circle")].at(-1);
  dot.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  const says = document.getElementById("tip").textContent === dot.dataset.t;
  const turned = paper !== getComputedStyle(document.body).backgroundColor;
  return { before, after: witness(), turned, says };
})()
"""


def written(pages, folder):
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return [folder / f"{name}.html" for name in pages]


def test_reports_are_quiet_and_fit_narrow_and_wide_windows(pages, tmp_path):
    answers, console = look(written(pages, tmp_path), SHAPE, tmp_path, WIDTHS)
    assert console == [] and len(answers) == len(pages) * len(WIDTHS)
    for answer, width in zip(answers, WIDTHS * len(pages), strict=True):
        assert answer["width"] <= width and answer["cut"] == []
        assert answer["unnamed"] == answer["resources"] == 0


def test_a_table_is_sorted_the_theme_turned_and_a_point_tells_its_row(pages, tmp_path):
    ((answer,), console) = look(written({"rejected": pages["rejected"]}, tmp_path), SORTED, tmp_path, [1100])
    assert console == [] and len(answer["before"]) == 50
    assert answer["before"] == sorted(answer["before"], reverse=True)
    assert answer["after"] == sorted(answer["before"])
    assert answer["turned"] and answer["says"]


def test_errors_and_requests_would_be_seen(tmp_path):
    bad = "<script>console.error('one')</script><script>two()</script><img src='http://nowhere.test/x.png'>"
    (answer,), console = look(written({"bad": bad}, tmp_path), SHAPE, tmp_path, [390])
    assert answer["unnamed"] == answer["resources"] == 1
    assert all(any(word in line for line in console) for word in ("one", "two"))
