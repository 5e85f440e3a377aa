"""Names that try to be more than names: markup, formulas, commands to the terminal."""

import csv
import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import steincritic as sc
from steincritic.cli.streams import shown

NAMES = {
    "script": "<script>alert(1)</script>",
    "image": '"><img src=x onerror=alert(1)>',
    "end of a comment": "--></style></svg><b>",
    "template": "{{ 7 * 7 }}{% raw %}",
    "entity": "&lt;b&gt;&#x41;",
    "formula": "=HYPERLINK(1)",
    "command formula": "@SUM(1+1)|cmd",
    "plus formula": "+1+1",
    "rich markup": "[red]loud[/red][link=http://x]y[/link]",
    "unclosed markup": "[/]",
    "math": "$\\frac{1}{$",
    "percent": "%s%n{0}",
    "color": "\x1b[31mred",
    "title of the window": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;aGk=\x07",
    "clear": "\x1b[2J\x1b[H",
    "backspace": "abc\b\b\bxyz",
    "carriage return": "fine\rgone",
    "bell": "\a\a",
    "eight-bit escape": "\x9b31mred",
    "right to left": "\u202egnp.exe",
    "invisible": "a\u200bb\u2060",
    "null": "a\u0001b",
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


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    x = sc.data.problem("gm-2d").model.sample(80, seed=1).numpy()
    x[:, 0] += 2.0
    np.save("x.npy", x)
    return tmp_path


def table(name):
    x = np.load("x.npy")
    with open("x.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow([name, "b"])
        writer.writerows([[f"{value:.6f}" for value in row] for row in x])


@pytest.fixture(scope="module")
def plain_tags(tmp_path_factory):
    q = sc.data.problem("gm-2d").model
    x = q.sample(80, seed=1)
    x[:, 0] += 2.0
    folder = tmp_path_factory.mktemp("plain")
    sc.check(q, x, test="ksd", names=["a", "b"]).save(folder)
    return Tags((folder / "report.html").read_text()).found


@pytest.mark.parametrize("case", NAMES)
def test_a_column_name_is_only_shown(run, case, plain_tags):
    table(NAMES[case])
    code, out, err = run("check x.csv --model gm-2d --test ksd --out seen")
    assert code in (1, 2) and "Traceback" not in err
    assert not CONTROL & set(out + err)
    if code == 2:
        assert err.count("\n") == 1
        return
    assert Tags(Path("seen/report.html").read_text(encoding="utf-8")).found == plain_tags
    assert json.loads(Path("seen/result.json").read_text())["columns"][1] == "b"
    cells = Path("seen/witness.csv").read_text().replace("\n", ",").split(",")
    assert not any(cell.startswith(("=", "@", "+")) for cell in cells)


@pytest.mark.parametrize("case", [case for case in NAMES if case not in ("long", "end of a comment")])
def test_a_file_name_is_only_shown(run, case, plain_tags):
    name = NAMES[case].replace("/", ":") + ".npy"
    Path(name).write_bytes(Path("x.npy").read_bytes())

    code, out, err = run(Words(["check", f"./{name}", *"--model gm-2d --test ksd --out seen".split()]))
    assert code == 1 and err == "" and not CONTROL & set(out)
    assert Tags(Path("seen/report.html").read_text(encoding="utf-8")).found == plain_tags


@pytest.mark.parametrize("case", NAMES)
def test_what_is_wrong_is_only_shown(run, case):
    code, out, err = run(Words(["check", f"nowhere{NAMES[case]}", "--model", "gm-2d"]))
    assert code == 2 and out == "" and err.count("\n") == 1 and not CONTROL & set(err)


@pytest.mark.parametrize("case", NAMES)
def test_text_for_a_terminal_commands_nothing_and_is_whole(case):
    said = shown(NAMES[case])
    assert not CONTROL & set(said)
    assert [c for c in NAMES[case] if c.isprintable()] == [c for c in NAMES[case] if c in said]
