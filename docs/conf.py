"""How the documentation is built (`make docs`). Nothing is loaded from outside, now or by a reader."""

import os
import re
import sys
import warnings
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ.setdefault("MPLBACKEND", "agg")
warnings.filterwarnings("ignore", category=FutureWarning, module="arviz")  # about its next version, to PyMC

project = "steincritic"
author = "The steincritic developers"
project_copyright = author
release = metadata.version("steincritic")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "docstrings",
    "pages",
]
exclude_patterns = ["_build", "_ext", "generated/commands.md", "gallery/**/*.ipynb"]
nitpicky = True
suppress_warnings = ["config.cache"]  # the gallery's settings are no plain values

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4  # as GitHub makes them
napoleon_numpy_docstring = False
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
maximum_signature_line_length = 90
python_use_unqualified_type_names = True
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "furo"
html_title = "steincritic"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False


def missing(script: Path) -> list[str]:
    """What a script of the gallery needs and is not installed, by its line `# needs: zuko, sklearn`."""
    head = script.read_text("utf-8")[:2000]
    needs = re.findall(r"^# needs: (.*)$", head, re.MULTILINE)
    return [name for line in needs for name in line.split(",") if not find_spec(name.strip())]


SCRIPTS = HERE.parent / "examples" / "gallery"
SKIPPED = [script.name for script in sorted(SCRIPTS.glob("*.py")) if missing(script)]
EMPTY = HERE / "gallery" / "index.md"  # stands where the gallery would be
EMPTY.unlink(missing_ok=True)
if not any(SCRIPTS.glob("*.py")):
    extensions.remove("sphinx_gallery.gen_gallery")
    EMPTY.parent.mkdir(exist_ok=True)
    EMPTY.write_text("# Gallery\n\nThere are no scripts in `examples/gallery`.\n", "utf-8")
FIRST = ["mixture_on_csv", "flow_on_two_moons", "energy_network", "eight_schools", "three_models"]


def place(script: str) -> tuple[int, str]:
    """The plainest jobs first, the others by name."""
    stem = script.removesuffix(".py")
    return FIRST.index(stem) if stem in FIRST else len(FIRST), stem


for name in SKIPPED:
    print(f"gallery: {name} is shown without being run; it needs {', '.join(missing(SCRIPTS / name))}")
sphinx_gallery_conf = {
    "examples_dirs": str(SCRIPTS),
    "gallery_dirs": "gallery",
    "within_subsection_order": place,
    # a script that needs more than is installed is shown without being run
    "filename_pattern": r"/(?!(?:" + "|".join(map(re.escape, ["-", *SKIPPED])) + r")$)[^/]*\.py$",
    "download_all_examples": False,
    "plot_gallery": os.environ.get("GALLERY") != "0",  # GALLERY=0 make docs: no script is run
    "abort_on_example_error": False,
    "min_reported_time": 1,
    "show_memory": False,
    "write_computation_times": False,  # that page loads scripts from outside
}


def say_what_was_not_run(app: Sphinx, docname: str, source: list[str]) -> None:
    script = SCRIPTS / f"{docname.removeprefix('gallery/')}.py"
    if docname.startswith("gallery/") and script.name in SKIPPED:
        note = f"Not run when this page was made: it needs {', '.join(missing(script))}."
        source[0] = f".. note:: {note}\n\n{source[0]}"


def setup(app: Sphinx) -> None:
    app.connect("source-read", say_what_was_not_run)
