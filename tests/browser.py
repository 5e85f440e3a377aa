"""The system's Chromium, headless: what pages answer to a script in windows of some widths."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from html import escape, unescape
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PROGRAM = next((path for path in map(shutil.which, NAMES) if path), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--allow-file-access-from-files", "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr"),
)
needed = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here: apt-get install chromium")
# Every page is a frame of one page, as wide as a window would be.
FRAMES = """<body>{frames}<script>onload = () => {{
  const answers = [...document.querySelectorAll("iframe")].map((frame) => frame.contentWindow.eval({script}));
  document.body.textContent = JSON.stringify(answers);
}}</script>"""


def look(pages: Iterable[Path], script: str, folder: Path, widths: Sequence[int]) -> tuple[list, list[str]]:
    """What the script answers in each page at each width, and what the console says."""
    addresses = [escape(page.resolve().as_uri()) for page in pages]
    frames = (
        f'<iframe width="{width}" height="900" style="border: 0" src="{address}"></iframe>'
        for address in addresses
        for width in widths
    )
    path = folder / "frames.html"
    path.write_text(FRAMES.format(frames="".join(frames), script=json.dumps(script)), "utf-8")
    command = [PROGRAM, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    answers = re.search(r"<body>(.*)</body>", done.stdout, re.DOTALL)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(unescape(answers[1])), console
