"""Names that try to be more than names: markup, formulas, commands to the terminal."""

import csv
import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import steincritic as sc
from steincritic.cli.guard import shown

NAMES = {
    "script": "<script>alert(1)</script>",
    "image": '"><img src=x onerror=alert(1)>',
    "formula": "=HYPERLINK(1)",
    "command formula": "@SUM(1+1)|cmd",
    "rich markup": "[red]loud[/red][link=http://x]y[/link]",
    "math": "$\\frac{1}{$",
    "color": "\x1b[31mred",
    "clipboard": "\x1b]52;c;aGk=\x07",
    "carriage return": "fine\rgone",
    "eight-bit escape": "\x9b31mred",
    "right to left": "\u202egnp.exe",
    "long": "x" * 5000,
}
CONTROL = {chr(k) for k in [*range(32), *range(127, 160), 0x202E, 0x200B, 0x2060]} - {"\n"}


class Words(list):
    """A command line whose words may hold spaces."""

    def split(self):
        return list(self)


class Tags(HTMLParser):
    """Which elements and attributes there are."""

    def __init__(self, text):
        super().__init__()
        self.found = set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found |= {tag, *(f"{tag}.{name}" for name, _ in attributes)}


@pytest.fixture(scope="module")
def plain_tags(tmp_path_factory):
    q = sc.models.GaussianMixture([[0.0, 0.0]])
    folder = tmp_path_factory.mktemp("plain")
    sc.check(q, q.sample(60, seed=1) + 1.0, test="ksd", names=["a", "b"]).save(folder)
    return Tags((folder / "report.html").read_text()).found


@pytest.mark.parametrize("case", [*NAMES][::2])
def test_a_column_name_is_only_shown(run, case, plain_tags):
    """Two of the names, each in its column."""
    after = [*NAMES][[*NAMES].index(case) + 1]
    with open("x.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow([NAMES[name].replace(";", ",") for name in (case, after)])  # ; would make columns
        writer.writerows([[f"{value:.6f}" for value in row] for row in np.load("wrong.npy")])
    code, out, err = run("check x.csv --model models.py:normal --test ksd --out seen")
    assert code == 1 and "Traceback" not in err and not CONTROL & set(out + err)
    assert Tags(Path("seen/report.html").read_text(encoding="utf-8")).found == plain_tags
    assert len(json.loads(Path("seen/result.json").read_text())["columns"]) == 2
    cells = Path("seen/witness.csv").read_text().replace("\n", ",").split(",")
    assert not any(cell.startswith(("=", "@", "+")) for cell in cells)


@pytest.mark.parametrize("case", ["script", "image", "math", "carriage return", "right to left"])
def test_a_file_name_is_only_shown(run, case, plain_tags):
    name = NAMES[case].replace("/", ":") + ".npy"
    Path(name).write_bytes(Path("wrong.npy").read_bytes())

    code, out, err = run(
        Words(["check", f"./{name}", *"--model models.py:normal --test ksd --out seen".split()])
    )
    assert code == 1 and err == "" and not CONTROL & set(out)
    assert Tags(Path("seen/report.html").read_text(encoding="utf-8")).found == plain_tags


@pytest.mark.parametrize("case", NAMES)
def test_what_is_wrong_is_only_shown(run, case):
    code, out, err = run(Words(["check", f"nowhere{NAMES[case]}", "--model", "models.py:normal"]))
    assert code == 2 and out == "" and err.count("\n") == 1 and not CONTROL & set(err)


@pytest.mark.parametrize("case", NAMES)
def test_text_for_a_terminal_commands_nothing_and_is_whole(case):
    said = shown(NAMES[case])
    assert not CONTROL & set(said)
    assert [c for c in NAMES[case] if c.isprintable()] == [c for c in NAMES[case] if c in said]
