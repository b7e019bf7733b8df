"""The status page in a real browser, while a controller works, fails, backs off, and a watch cannot work.

`tox run -e browser` runs this, and skips it by name where there is no browser. With SCREENSHOTS=FOLDER it leaves what
it saw there.
"""
from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kubectl_runtime import (
    Action,
    Api,
    Client,
    Context,
    Controller,
    Manager,
    RequestError,
    TerminalError,
)
from kubectl_runtime.controller import KeyBackoff
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.observe.debug import DebugPage
from kubectl_runtime.runtime.observe.listener import ListenAddress
from kubectl_runtime.testing import ApiServer
from tests.browser.chromium import LIMIT, Browser, found_chromium
from tests.browser.states import STATES, WIDGET, State, row

SECRET = "the password is tiger"


class Work:
    """Does what the name of an object says."""

    def __init__(self) -> None:
        self.turns = 0

    def reconcile(self, obj: ConfigMap, ctx: Context[None]) -> Action:
        if obj.name == "loop-1" and self.turns < 60:
            self.turns += 1
            return Action.requeue(0)
        return by_name(obj, ctx)


def by_name(obj: ConfigMap, ctx: Context[None]) -> Action:
    kind = obj.name.partition("-")[0]
    if kind == "broken":
        raise ValueError(f"{SECRET} {'and so on ' * 10}")
    if kind == "wrong":
        raise TerminalError(SECRET)
    if kind == "slow":
        ctx.stop.wait()
    return Action.requeue(300) if kind == "later" else Action.await_change()


class Scene:
    """An operator at work on an API server of its own."""

    def __init__(self, client: Client, debug: DebugPage) -> None:
        with ListenAddress("127.0.0.1", 0).listen() as free:
            port = free.getsockname()[1]
        self.maps = Api.namespaced(client, ConfigMap, "default")
        self.url = f"http://127.0.0.1:{port}/debug"
        self.manager = Manager(client, serve=f"127.0.0.1:{port}", debug=debug)
        self.manager.add(Controller(self.maps, name="shops", concurrency=2, backoff=KeyBackoff(initial=600)),
                         Work().reconcile)
        self.manager.add(Controller(Api.all(client, WIDGET), name="widgets"), lambda obj, ctx: Action.await_change())
        self.running = self.manager.start()

    def make(self, *names: str) -> None:
        for name in names:
            self.maps.create(ConfigMap(name=name))

    def runs(self) -> int:
        return sum(seen.assembly.runner.look(0).runs for seen in self._shops())

    def _shops(self) -> list:  # type: ignore[type-arg]
        return [member.running for member in self.manager._members.values() if member.name == "shops"]

    def fill(self, keys: int) -> None:
        """So many keys that wait for a worker."""
        (shops,) = self._shops()
        refs = (ObjectRef(ConfigMap.api_resource, f"key-{number}", "default") for number in range(keys))
        shops.assembly.runner.trigger_all([asked for ref in refs for asked in shops.assembly.inbox.external(ref)])


@contextlib.contextmanager
def scene(*, details: bool = False) -> Iterator[Scene]:
    with ApiServer() as server, server.client() as client:
        made = Scene(client, DebugPage(details=details))
        try:
            made.make("well-1", "later-1", "later-2", "broken-1", "broken-2", "wrong-1", "loop-1")
            give_up = time.monotonic() + LIMIT
            while made.runs() < 67:
                assert time.monotonic() < give_up
                threading.Event().wait(0.05)
            made.make("slow-1", "slow-2")
            while len(made._shops()[0].assembly.runner.running()) < 2:
                assert time.monotonic() < give_up
                threading.Event().wait(0.05)
            made.make("next-1", "next-2")
            yield made
        finally:
            with contextlib.suppress(RequestError):
                made.running.stop(5)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    found_chromium()
    with Browser(tmp_path) as made:
        yield made


def count(name: str) -> str:
    tile = f"document.querySelector(`[data-controller='shops'] [data-count='{name}'] b`)"
    return f"Number(({tile}?.textContent ?? '-1').replaceAll(',', ''))"


def test_a_person_finds_what_runs_waits_fails_and_cannot_be_watched(browser: Browser) -> None:
    with scene() as at_work:
        browser.show(at_work.url)
        browser.until(row("due", "default/next-2", "due"))
        browser.until(row("delayed", "default/later-1", "delayed"))
        browser.until(row("failing", "default/broken-1", "backing_off"))
        browser.until(row("failing", "default/wrong-1", "waits_for_change"))
        browser.until(row("running", "default/slow-1", "running"))
        browser.until(row("watches", "widgets.example.com", "waiting"))
        browser.until(row("watches", "configmaps in namespace default", "watching"))
        browser.until(row("recent", "default/loop-1", "success"))
        browser.until(row("loops", "default/loop-1", ""))

        failing = browser.ask(row("failing", "default/broken-1", "backing_off") + ".innerText")
        assert "backing off" in failing
        assert "ValueError" in failing
        page = browser.ask("document.body.innerText")
        assert SECRET not in page
        assert "the server does not serve widgets.example.com" in page
        assert browser.ask(count("running")) == 2
        assert browser.ask(count("backing_off")) == 2
        assert browser.ask(count("failing")) == 3
        assert browser.ask(count("delayed")) == 2
        assert browser.ask(count("due")) == 2
        browser.screenshot("light")
        browser.prefer("dark")
        browser.screenshot("dark")

        updated = browser.ask("document.querySelector('#updated').textContent")
        assert updated.startswith("updated ")
        assert [url for url in browser.requests.values() if not url.startswith((at_work.url, "data:,"))] == []
        assert browser.complaints == []


def test_texts_of_errors_and_loops_are_shown_where_that_is_switched_on(browser: Browser) -> None:
    with scene(details=True) as at_work:
        browser.show(at_work.url, width=900, dark=True)
        browser.until(row("failing", "default/broken-1", "backing_off"))
        assert SECRET in browser.ask(row("failing", "default/broken-1", "backing_off") + ".innerText")
        browser.screenshot("details-dark-narrow")
        browser.show(at_work.url, width=420)
        browser.until(row("failing", "default/broken-1", "backing_off"))
        assert browser.ask("document.documentElement.scrollWidth") <= 420
        browser.screenshot("phone")
        assert browser.complaints == []


def test_20_000_keys_are_less_than_200_kilobytes_and_the_page_stays_quick(browser: Browser) -> None:
    with scene() as at_work:
        at_work.fill(20_000)
        browser.show(at_work.url)
        browser.until(f"{count('due')} >= 20000")
        browser.until("document.querySelector(`[data-panel='due'] .rest`)")
        assert "more" in browser.ask("document.querySelector(`[data-panel='due'] .rest`).textContent")
        page, state = browser.sizes[at_work.url], browser.sizes[f"{at_work.url}/state.json"]
        assert 10_000 < page + state < 200_000, (page, state)
        assert browser.ask("document.querySelectorAll('tr').length") < 400


def test_a_process_that_is_gone_is_said_and_what_was_seen_stays(browser: Browser) -> None:
    with scene() as at_work:
        browser.show(at_work.url)
        browser.until(row("failing", "default/broken-1", "backing_off"))
        at_work.running.stop(5)
        browser.until("document.querySelector('#banner').textContent.includes('does not answer')")
        assert browser.ask("document.body.classList.contains('old')")
        assert browser.ask(f"Boolean({row('failing', 'default/broken-1', 'backing_off')})") or \
            "manager" in browser.ask("document.body.innerText")
        browser.screenshot("gone")


CONTRAST = """(() => {
  const part = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = color => {
    const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map(v => part(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = node => {
    for (; node; node = node.parentElement) {
      const color = getComputedStyle(node).backgroundColor;
      if (!/, 0\\)$|transparent/.test(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  return [...document.querySelectorAll("td, th, b, h1, h2, h3, p, span, button")]
    .filter(node => node.innerText && node.innerText.trim())
    .map(node => {
      const [a, b] = [light(getComputedStyle(node).color), light(behind(node))].sort((x, y) => y - x);
      return [(a + 0.05) / (b + 0.05), node.innerText.slice(0, 40)];
    }).filter(([ratio]) => ratio < 4.5);
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(browser: Browser, scheme: str) -> None:
    """By the ratio that WCAG asks for."""
    with scene() as at_work:
        browser.show(at_work.url, dark=scheme == "dark")
        browser.until(row("failing", "default/broken-1", "backing_off"))
        dark = browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(18, 23, 29)"
        assert dark == (scheme == "dark")
        assert browser.ask(CONTRAST) == []


WIDTHS = (360, 420, 620, 768, 1024, 1280, 1440, 1680, 1920)
CLIPPED = """
[...document.querySelectorAll("body, main, .card, .scroll, .tiles, header")].filter(box =>
    box.scrollWidth > box.clientWidth + 1).map(box => (box.dataset.panel || box.className || box.tagName) + " "
    + box.scrollWidth + " > " + box.clientWidth).concat(
[...document.querySelectorAll("td, th")].filter(cell => cell.offsetParent && (
    cell.scrollWidth > cell.clientWidth + 1 || cell.getBoundingClientRect().right > innerWidth + 1)).map(cell =>
    "cell " + cell.textContent.slice(0, 40))).join("; ")
"""
LONG = "-".join(["a-name-that-is-long"] * 5)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_column_is_clipped_at_any_width(browser: Browser, dark: bool) -> None:
    with scene(details=True) as at_work:
        at_work.make(f"broken-{LONG}", f"later-{LONG}")
        for width in WIDTHS:
            browser.show(at_work.url, width=width, dark=dark)
            browser.until(row("watches", "widgets.example.com", "waiting"))
            browser.until("document.querySelector(`[data-panel='failing'] td code`)")  # the id of a failed run
            browser.until("document.querySelector(`[data-panel='calls'] b`)")
            assert browser.ask(CLIPPED) == "", (width, dark)
            browser.screenshot(f"status-{width}-{'dark' if dark else 'light'}")


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_each_state_is_shown_whole(browser: Browser, state: Callable[[], AbstractContextManager[State]]) -> None:
    """With SCREENSHOTS=FOLDER, for eyes; here that nothing is cut off and the page complains of nothing."""
    with state() as (url, shown):
        for width, dark in ((360, False), (768, True), (1280, False), (1920, True)):
            browser.show(url, width=width, dark=dark)
            browser.until(shown)
            assert browser.ask(CLIPPED) == "", (width, dark)
            browser.screenshot(f"{state.__name__}-{width}-{'dark' if dark else 'light'}")
        assert browser.complaints == []
