"""Odd tables: each is read as the numbers that a person sees, or refused in one line with the way out."""

import json

import numpy as np
import pytest

MODEL = "any_dimension = (lambda x: -x, None)\n"
PLAIN = [[1.0, 2.0], [3.0, 4.5], [-1.0, 0.25]]
WIDE = [[float(k + row) for k in range(3000)] for row in range(2)]
LOST = "NaN or infinite values in 2 of 3 rows, the first is row 1 (line 3); repair them or leave them out"


def text(rows, separator=","):
    return "".join(separator.join(f"{value:g}" for value in row) + "\n" for row in rows)


def gap(cell):
    return f"a,b\n1,2\n{cell},7\n3,4.5\n-1,0.25\n"


# name: what the file holds, options, the numbers that it gives
GIVES = {
    "plain": ("a,b\n" + text(PLAIN), "", PLAIN),
    "byte order mark": ("\ufeffa,b\n" + text(PLAIN), "", PLAIN),
    "byte order mark and a chosen column": ("\ufeffa,b\n" + text(PLAIN), "--columns a,b", PLAIN),
    "semicolons": ("a;b\n" + text(PLAIN, ";"), "", PLAIN),
    "tabs": ("a\tb\n" + text(PLAIN, "\t"), "", PLAIN),
    "no header": (text(PLAIN), "", PLAIN),
    "no header, columns by number": (text(PLAIN), "--columns x2,x1", [row[::-1] for row in PLAIN]),
    "no newline at the end": ("a,b\n" + text(PLAIN).rstrip(), "", PLAIN),
    "carriage returns": (("a,b\n" + text(PLAIN)).replace("\n", "\r\n"), "", PLAIN),
    "mixed line ends": ("a,b\r\n1,2\n3,4.5\r\n-1,0.25\n", "", PLAIN),
    "empty lines": ("\n\na,b\n\n1,2\n  \n3,4.5\n\n\n-1,0.25\n\n", "", PLAIN),
    "remarks": ("# made by hand\na,b\n1,2\n# a remark\n3,4.5\n-1,0.25\n", "", PLAIN),
    "spaces about cells": (" a , b \n 1 , 2 \n 3 , 4.5 \n -1 , 0.25 \n", "", PLAIN),
    "quoted numbers": ('"a","b"\n"1","2"\n"3","4.5"\n"-1","0.25"\n', "", PLAIN),
    "a comma in a quoted name": ('"a, b",c\n' + text(PLAIN), "--columns c", [row[1:] for row in PLAIN]),
    "a comma in quoted text that is left out": (
        't,a,b\n"u, v",1,2\n"w",3,4.5\nx,-1,.25\n',
        "--exclude t",
        PLAIN,
    ),
    "a line break in quoted text that is left out": (
        't,a,b\n"u\nv",1,2\n"w",3,4.5\nx,-1,.25\n',
        "--exclude t",
        PLAIN,
    ),
    "a quote in a name": ('"a ""x""",b\n' + text(PLAIN), "", PLAIN),
    "text left out": ("a,color,b\n1,red,2\n3,blue,4.5\n-1,red,.25\n", "--exclude color", PLAIN),
    "text not kept": ("a,color,b\n1,red,2\n3,blue,4.5\n-1,red,.25\n", "--columns a,b", PLAIN),
    "other order": ("b,a\n2,1\n4.5,3\n.25,-1\n", "--columns a,b", PLAIN),
    "ids of text": ("who,a,b\nanna,1,2\nbob,3,4.5\n,-1,.25\n", "--id-column who", PLAIN),
    "ids in the last column": ("a,b,who\n1,2,u\n3,4.5,v\n-1,.25,w\n", "--id-column who", PLAIN),
    "ids that are numbers": ("a,b,who\n1,2,7\n3,4.5,8\n-1,.25,9\n", "--id-column who", PLAIN),
    "ids that repeat": ("a,b,who\n1,2,u\n3,4.5,u\n-1,.25,u\n", "--id-column who", PLAIN),
    "ids that look like formulas": ("a,b,who\n1,2,=A1\n3,4.5,@x\n-1,.25,+1+1\n", "--id-column who", PLAIN),
    "ids and text": ("a,b,who,t\n1,2,u,x\n3,4.5,v,y\n-1,.25,w,z\n", "--id-column who --exclude t", PLAIN),
    "a gap in a column that is left out": ("a,b,c\n1,2,\n3,4.5,x\n-1,.25,nan\n", "--exclude c", PLAIN),
    "a separator at the end": ("a,b,\n1,2,\n3,4.5,\n-1,.25,\n", "--exclude x3", PLAIN),
    "the same header twice, both left out": (
        "t,a,t,b\nx,1,y,2\nx,3,y,4.5\nx,-1,y,.25\n",
        "--exclude t",
        PLAIN,
    ),
    "one column": ("a\n1\n3\n-1\n", "", [[1.0], [3.0], [-1.0]]),
    "very wide": (text(WIDE), "", WIDE),
    "numbers with exponents and signs": ("a,b\n+1,2e0\n3E0,45e-1\n-1.,.25\n", "", PLAIN),
    "a year as a name": ("1999,2000\n".replace("2000", "b") + text(PLAIN), "", PLAIN),
    **{
        f"gap {cell!r}, left out": (gap(cell), "--drop-nan", PLAIN)
        for cell in ("", "nan", "NaN", "NA", "N/A", "null", "None", "inf", "-inf", "-Infinity", '""', " ")
    },
}

# name: what the file holds, options, what the line must say
SAYS = {
    "nothing": ("", "", "must hold rows of numbers, it holds nothing"),
    "a header only": ("a,b\n", "", "it holds only the header a, b"),
    "a header and remarks": ("a,b\n# 1,2\n\n", "", "it holds only the header a, b"),
    "decimal commas": ("a;b\n1,5;2,5\n3,0;4,5\n", "", "decimal commas in columns a ('1,5' in line 2)"),
    "thousands": ('a,b\n"1,000",2\n"2,000",3\n', "", "write 1.5, not 1,5"),
    "one decimal comma": ("a;b\n1;2\n3;4,5\n", "", "'4,5' in line 3); repair line 3 or remove it"),
    "units below the header": (
        "a,b\ncm,kg\n1,2\n3,4\n",
        "",
        "a ('cm' in line 2), b ('kg' in line 2); repair line 2",
    ),
    "numbers with units": (
        "a,b\n1 cm,2\n3 cm,4\n",
        "",
        "got text in column a ('1 cm' in line 2); leave it out",
    ),
    "text": (
        "a,color\n1,red\n2,blue\n",
        "",
        "leave it out with --exclude color, name rows by it with --id-column",
    ),
    "two columns of text": ("t,a,u\nx,1,y\nx,2,z\n", "", "leave them out with --exclude t,u"),
    "text with a space in its name": ("a,eye color\n1,red\n2,blue\n", "", "--exclude 'eye color'"),
    "dates": ("a,day\n1,2024-01-31\n2,2024-02-01\n", "", "got dates in column day"),
    "truth values": ("a,ok\n1,yes\n2,no\n", "", "got truth values in column ok ('yes' in line 2)"),
    "spaces for separators": ("1.0 2.0\n3.0 4.0\n", "", "separate them by commas"),
    "the same header twice": ("a,a\n1,2\n3,4\n", "", "'a' is there more than once"),
    "a short line": ("a,b\n1,2\n3\n", "", "has 1 cell in line 3 but 2 columns"),
    "a long line": ("a,b\n1,2\n3,4,5\n", "", "has 3 cells in line 3 but 2 columns"),
    "a long line beyond the chosen columns": (
        "a,b\n1,2\n3,4,5\n",
        "--columns a",
        "3 cells in line 3 but 2 columns",
    ),
    "a separator at the end, not left out": (
        "a,b,\n1,2,\n3,4,\n",
        "",
        "no number is in x3, so perhaps --exclude x3",
    ),
    "a separator at the end and --drop-nan": (
        "a,b,\n1,2,\n3,4,\n",
        "--drop-nan",
        "nothing is left; no number is in x3",
    ),
    "a separator behind the rows alone": ("a,b\n1,2,\n3,4,\n", "", "has 3 cells in line 2 but 2 columns"),
    "gaps": ("a,b\n1,2\n,3\n4,inf\n", "", LOST),
    "gaps alone": ("a,b\n,2\n1,\n", "--drop-nan", "in all of its 2 rows; nothing is left"),
    "no such column": (
        "height,weight\n1,2\n",
        "--columns height,wieght",
        "no column 'wieght'; did you mean weight?",
    ),
    "no such column to leave out": ("a,b\n1,2\n", "--exclude zebra", "no column 'zebra'; it has a, b"),
    "no such ids": ("a,b\n1,2\n", "--id-column A1", "has no column 'A1'"),
    "nothing left": ("a,b\n1,2\n", "--exclude a,b", "is left as data"),
    "kept and left out": ("a,b\n1,2\n", "--columns a --exclude b", "not both"),
    "ids among the data": ("a,b\n1,2\n", "--columns a,b --id-column a", "names the rows"),
    "kept twice": ("a,b\n1,2\n", "--columns a,a", "'a' is there more than once"),
    "names that are none": (
        "a,b\n1,2\n",
        "--columns a,,b",
        "--columns must be names of columns such as a,b,c",
    ),
    "an open quote": ('a,b\n"1,2\n3,4\n', "", "line"),
    "old line ends": ("a,b\r1,2\r3,4\r", "", "carriage return"),
    "UTF-16": ("a,b\n1,2\n".encode("utf-16"), "", "line 1 is not UTF-8"),
    "UTF-16 without a mark": ("a,b\n1,2\n".encode("utf-16-le"), "", "x.csv"),
    "Latin-1": ("größe,b\n1,2\n".encode("latin-1"), "", "line 1 is not UTF-8"),
    "bytes": (bytes(range(256)), "", "x.csv"),
    "an image": (b"\x89PNG\r\n\x1a\n" + bytes(range(200)), "", "x.csv"),
    "one row": ("a,b\n1,2\n", "", "points"),
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def write(place, content):
    (place / "x.csv").write_bytes(content if isinstance(content, bytes) else content.encode())


TEST = "--model model.py:any_dimension --test ksd --draws 19 --json --device cpu"


@pytest.mark.parametrize("case", GIVES)
def test_the_numbers_that_a_person_sees(case, place, run):
    content, options, rows = GIVES[case]
    write(place, content)
    np.save(place / "plain.npy", np.array(rows))
    code, out, error = run(f"test x.csv {TEST} {options}")
    assert code in (0, 1) and error == ""
    wanted, told = (json.loads(line) for line in (run(f"test plain.npy {TEST}")[1], out))
    assert (told["statistic"], told["pvalue"]) == (wanted["statistic"], wanted["pvalue"])
    assert told["dropped"] == ("--drop-nan" in options)


@pytest.mark.parametrize("case", SAYS)
def test_one_line_and_the_way_out(case, place, run):
    content, options, said = SAYS[case]
    write(place, content)
    code, out, error = run(f"test x.csv {TEST} {options}")
    assert code == 2 and len(error.splitlines()) == 1 and said in error
    assert json.loads(out)["error"]["message"] == error.removeprefix("steincritic: ").strip()
