"""A Chromium without a window, driven over its DevTools protocol."""
from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import threading
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import websocket

LIMIT = 40
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def found_chromium() -> str:
    """Where it is; a test that finds none is skipped, and says so."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed (apt-get install chromium)")
    return found


class Browser:
    """One page. What it logs as wrong is in `complaints`, what it asked for in `requests`. For one thread."""

    def __init__(self, folder: Path) -> None:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        self._process = subprocess.Popen(
            [found_chromium(), "--headless", *sandbox, "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
             "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.complaints: list[str] = []
        self.requests: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        """Of the last answer to each URL, as it came over the wire."""
        self._number = 0
        try:
            self._socket = websocket.create_connection(self._page(folder), timeout=LIMIT, suppress_origin=True)
        except BaseException:
            self._end()
            raise
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _page(self, folder: Path) -> str:
        port_file, give_up = folder / "DevToolsActivePort", time.monotonic() + LIMIT
        while not (port_file.exists() and "\n" in (text := port_file.read_text())):
            assert self._process.poll() is None, "the browser has ended"
            assert time.monotonic() < give_up, "the browser does not start"
            threading.Event().wait(0.05)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{text.splitlines()[0]}/json/list", timeout=LIMIT) as answer:
            return str(next(page for page in json.load(answer) if page["type"] == "page")["webSocketDebuggerUrl"])

    def call(self, method: str, **parameters: Any) -> Any:
        """One command; its result. What the browser tells meanwhile is kept."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == self._number:
                assert "error" not in message, (method, message)
                return message["result"]
            self._hear(message.get("method", ""), message.get("params", {}))

    def _hear(self, event: str, told: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"]))
        elif event == "Log.entryAdded" and told["entry"]["level"] in ("warning", "error"):
            self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        elif event == "Network.requestWillBeSent":
            self.requests[told["requestId"]] = told["request"]["url"]
        elif event == "Network.loadingFinished" and told["requestId"] in self.requests:
            self.sizes[self.requests[told["requestId"]]] = int(told["encodedDataLength"])

    def ask(self, expression: str) -> Any:
        """The value of JavaScript."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until JavaScript says yes."""
        give_up = time.monotonic() + LIMIT
        while not self.ask(f"Boolean({expression})"):
            assert time.monotonic() < give_up, (expression, self.complaints, self.ask("document.body.innerText"))
            threading.Event().wait(0.1)

    def show(self, url: str, *, width: int = 1400, height: int = 1000, dark: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.prefer("dark" if dark else "light")
        self.call("Page.navigate", url=url)

    def prefer(self, scheme: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, name: str) -> None:
        """Into the folder that the variable SCREENSHOTS names, if it does: for eyes."""
        folder = os.environ.get("SCREENSHOTS")
        if folder:
            self.call("Emulation.setScrollbarsHidden", hidden=True)  # else the picture is cut where the bar was
            taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._socket.close()
        self._end()

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
