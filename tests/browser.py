"""Headless Chromium, driven through its debugging pipe as a person would drive it; standard library only."""

import base64
import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
_PATIENCE = 60.0  # seconds for an answer, on a busy machine
# Chromium reads commands from descriptor 3 and answers on 4; high numbers first, lest one is overwritten.
_LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for number, end in zip((3, 4), ends):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""


def installed() -> str | None:
    """The path of a Chromium, if there is one."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


@dataclass
class Seen:
    """What a page did that nobody on the outside asked for."""

    errors: list[str] = field(default_factory=list)  # exceptions, console errors, refused requests
    requests: list[str] = field(default_factory=list)


class Browser:
    """One page at a time in one process; use it in a `with` block."""

    def __init__(self, program: str, profile: Path) -> None:
        commands, self._commands = os.pipe()
        answers, given = os.pipe()
        flags = (*_FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank")
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(commands), str(given), program, *flags],
            pass_fds=(commands, given),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(given)
        self._messages: Queue[dict] = Queue()
        self._reader = threading.Thread(target=self._listen, args=(answers,), daemon=True)
        self._reader.start()
        self._number, self._session = 0, None
        self.seen = Seen()
        try:
            target = self._call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self._call(f"{domain}.enable")
        except (AssertionError, OSError):
            self.close()
            raise

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._session = None
        try:
            self._call("Browser.close")
            self._process.wait(_PATIENCE)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._commands)
        self._reader.join(_PATIENCE)

    def open(
        self, path: Path, *, width: int = 1100, height: int = 900, dark: bool = False, media: str = "screen"
    ) -> Seen:
        """Load a file in a window of this size; what the page does is noted in the answer."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", media=media, features=scheme)
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.seen = Seen()
        self._call("Page.navigate", url=path.resolve().as_uri())
        self._wait("Page.loadEventFired")
        return self.seen

    def run(self, script: str) -> object:
        """The value of a JavaScript expression, as JSON has it."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def place(self, element: str) -> tuple[float, float]:
        """The middle of the element that the expression gives, scrolled into view."""
        x, y = self.run(
            f"(() => {{ const e = {element}; e.scrollIntoView({{block: 'center'}});"
            " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        return x, y

    def hover(self, element: str) -> None:
        x, y = self.place(element)
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, element: str) -> None:
        x, y = self.place(element)
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Enter or Tab, on whatever has the focus."""
        code, text = {"Enter": (13, "\r"), "Tab": (9, "")}[key]
        for kind in ("keyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                text=text if kind == "keyDown" else "",
            )

    def screenshot(self, path: Path) -> None:
        """The whole page, however long."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, **parameters: object) -> dict:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        answer = self._next(lambda m: m.get("id") == self._number, method)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _wait(self, event: str) -> None:
        self._next(lambda m: m.get("method") == event, event)

    def _next(self, fits, what: str) -> dict:
        while True:
            try:
                message = self._messages.get(timeout=_PATIENCE)
            except Empty:
                raise AssertionError(f"Chromium did not answer {what}") from None
            self._note(message)
            assert message, f"Chromium went away at {what}"
            if fits(message):
                return message

    def _note(self, message: dict) -> None:
        method, about = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.seen.errors.append(json.dumps(about["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.seen.errors.append(json.dumps(about["args"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.seen.errors.append(about["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not about["request"]["url"].startswith("data:"):
            self.seen.requests.append(about["request"]["url"])

    def _listen(self, answers: int) -> None:
        with os.fdopen(answers, "rb") as stream:
            rest = b""
            while data := stream.read1(1 << 20):
                *whole, rest = (rest + data).split(b"\0")
                for message in whole:
                    self._messages.put(json.loads(message))
        self._messages.put({})  # the end
