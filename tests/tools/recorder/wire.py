"""The HTTP side of a replay: the server under test, and watches that are read in the background."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import requests

HEADERS = ("content-type", "warning", "retry-after", "allow")  # the response headers that are recorded and compared
QUIET = 0.4  # seconds a watch is listened to after its last expected event, to notice events that are too many
PATIENCE = 12  # seconds to wait for the expected number of watch events


class Stream(threading.Thread):
    """A watch: reads the events of one response in the background."""

    def __init__(self, send: Callable[..., requests.Response]) -> None:
        super().__init__(daemon=True)
        self.send, self.opened = send, threading.Event()
        self.lines: queue.Queue[dict[str, Any] | None] = queue.Queue()  # None: the stream has ended
        self.answer: dict[str, Any] | None = None
        self.response: requests.Response | None = None
        self.start()
        self.opened.wait(PATIENCE)

    def run(self) -> None:
        try:
            self.response = self.send(stream=True)
            self.answer = {"status": self.response.status_code, "headers": headers_of(self.response)}
            if self.response.status_code != 200:
                self.answer["body"] = body_of(self.response)
            self.opened.set()
            if self.response.status_code == 200:
                for line in self.response.iter_lines(chunk_size=None):
                    if line.strip():
                        self.lines.put(json.loads(line))
        except (requests.RequestException, ValueError, AttributeError) as error:
            self.answer = self.answer or {"status": 0, "headers": {}, "body": str(error)}
        self.opened.set()
        self.lines.put(None)

    def collect(self, count: int | None, bookmarks: bool, awaited: dict[str, Any]) -> dict[str, Any]:
        """The answer with at least `count` events, or with all of them until the server ends the stream (None).

        `awaited` is the right one, or empty: its end is waited for, and no more events than it has. A server may send
        bookmarks when it likes: plain ones are left out, or if asked for count as one in a row.
        """
        events: list[Any] = []
        if "events" in awaited:
            count = None if awaited["ended"] else len(awaited["events"])
        ended, deadline = False, time.monotonic() + (PATIENCE if count is not None else 60)
        while not ended:
            enough = count is not None and len(events) >= count
            try:
                event = self.lines.get(timeout=QUIET if enough else max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                break
            ended = event is None
            if is_plain_bookmark(event) and events and is_plain_bookmark(events[-1]):
                events.pop()
            if not ended and (bookmarks or not is_plain_bookmark(event)):
                events.append(event)
        if self.answer is None:
            return {"status": 0, "headers": {}, "body": "no response headers arrived"}
        if self.response is not None and not ended:
            threading.Thread(target=self.response.close, daemon=True).start()
        return self.answer if "body" in self.answer else {**self.answer, "events": events, "ended": ended}


def is_plain_bookmark(event: dict[str, Any] | None) -> bool:
    """Whether a watch event is a bookmark that does not mark the end of the initial events."""
    return event is not None and event.get("type") == "BOOKMARK" and not event["object"]["metadata"].get("annotations")


class Server:
    """The server under test and the tokens to use with it."""

    def __init__(self, url: str, token: str | None = None, user_token: str | None = None,
                 ca: str | None = None) -> None:
        self.url, self.verify = url.rstrip("/"), ca or True
        self.tokens: dict[str, str | None] = {
            "admin": token, "user": user_token, "anonymous": None, "invalid": "no-such-token"}

    def send(self, step: dict[str, Any], stream: bool = False) -> requests.Response:
        """Send the request of a step whose placeholders have been filled in."""
        body, headers = step.get("body"), {"User-Agent": "golden/1.0", "Accept": "application/json"}
        token = self.tokens[step.get("as", "admin")]
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
            if "changes" in step:
                body = merged(body, step["changes"])
        headers.update(step.get("headers", {}))
        headers = {key: value for key, value in headers.items() if value is not None}
        data = body if isinstance(body, str) else None if body is None else json.dumps(body)
        session = requests.Session()
        session.trust_env = False  # no proxies, CA bundles or passwords from the environment
        return session.request(
            step["method"], self.url + step["path"], params=step.get("query"), headers=headers, stream=stream,
            data=data.encode() if data else data, verify=self.verify, timeout=70)


def headers_of(response: requests.Response) -> dict[str, Any]:
    """The compared headers of a response; warnings as a list, since there can be several."""
    found: dict[str, Any] = {name: response.headers[name] for name in HEADERS if name in response.headers}
    if "warning" in found:
        found["warning"] = response.raw.headers.getlist("warning")
    return found


def body_of(response: requests.Response) -> Any:
    """The body as JSON, or as text if it is not JSON."""
    try:
        return response.json()
    except ValueError:
        return response.text


def merged(target: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        result.pop(key, None) if value is None else result.update({key: merged(result.get(key), value)})
    return result
