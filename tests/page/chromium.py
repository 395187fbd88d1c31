"""A headless Chromium, told what to do through a pipe in its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_S = 60.0


class Chromium:
    """One tab. What it asked for, and errors of the page, are kept."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        assert PROGRAM
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_it, self._write = os.pipe()
        self._read, from_it = os.pipe()

        def as_three_and_four() -> None:
            # In this order neither is closed before it was copied.
            first, second = os.dup(to_it), os.dup(from_it)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self._process = subprocess.Popen(
            [PROGRAM, "--headless=new", "--remote-debugging-pipe", "--no-sandbox"]
            + ["--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
            + ["--disable-background-networking", "--disable-component-update"]
            + [f"--user-data-dir={self._folder.name}", "about:blank"],
            preexec_fn=as_three_and_four,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_it)
        os.close(from_it)
        self._heard = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call(
            "Target.attachToTarget", targetId=target, flatten=True
        )["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.size(width, height)

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._folder.cleanup()

    def size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE_S
        while True:
            answer = self._next(end)
            if answer.get("id") != self._number:
                self._note(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                return answer["result"]

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._heard:
            ready, _, _ = select.select([self._read], [], [], end - time.monotonic())
            if not ready:
                raise TimeoutError("Chromium does not answer")
            piece = os.read(self._read, 1 << 16)
            if not piece:
                raise RuntimeError("Chromium has ended")
            self._heard += piece
        text, _, self._heard = self._heard.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, values = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(values["exceptionDetails"])[:500])
        elif method == "Log.entryAdded" and values["entry"]["level"] == "error":
            entry = values["entry"]
            self.errors.append(f"{entry['text']} {entry.get('url', '')}")

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def value(self, script: str) -> Any:
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"])[:500])
        return found["result"].get("value")

    def wait(self, script: str, seconds: float = PATIENCE_S) -> float:
        """Until it is true; how long that took."""
        begun = time.monotonic()
        while not self.value(f"Boolean({script})"):
            if time.monotonic() - begun > seconds:
                raise TimeoutError(f"{script}\n{self.value('document.body.innerText')}")
            time.sleep(0.02)
        return time.monotonic() - begun

    def picture(self, path: Path) -> None:
        whole = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(whole["data"]))
