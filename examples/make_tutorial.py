"""Make tutorial.ipynb of a gallery script: text blocks become markdown, code stays code, nothing is run.

python examples/make_tutorial.py
"""

import ast
import json
import re
from pathlib import Path

HERE = Path(__file__).parent
SCRIPT = HERE / "gallery" / "mixture_on_csv.py"
NOTEBOOK = HERE / "tutorial.ipynb"


def cells(source: str) -> list[tuple[str, str]]:
    """Kind and text of each cell: the docstring, then the blocks between lines `# %%`."""
    title, _, question = ast.get_docstring(ast.parse(source)).partition("\n")  # type: ignore[union-attr]
    found = [("markdown", f"# {title}\n\n{question.lstrip('=').strip()}")]
    first, *blocks = source[source.index('"""', source.index('"""') + 3) + 3 :].split("\n# %%\n")
    found.append(("code", first.strip()))
    for block in blocks:
        lines = block.split("\n")
        end = next((k for k, line in enumerate(lines) if not line.startswith("#")), len(lines))
        text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[:end])
        found.append(("markdown", text.replace("``", "`")))
        found.append(("code", "\n".join(lines[end:]).strip()))
    return [(kind, text) for kind, text in found if text]


def notebook(source: str) -> str:
    """JSON of nbformat 4.5, without outputs."""
    made = []
    for number, (kind, text) in enumerate(cells(source)):
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.splitlines(True)}
        made.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    assert not re.search(r":\w+:`", SCRIPT.read_text("utf-8")), "a notebook has no roles of Sphinx"
    NOTEBOOK.write_text(notebook(SCRIPT.read_text("utf-8")), "utf-8")
