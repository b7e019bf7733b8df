"""Numbers, selectors, names and methods that are none get the answers recorded from kube-apiserver 1.36."""

from __future__ import annotations

import json

import pytest

from kubectl_runtime.apiserver.core import ApiCore
from kubectl_runtime.apiserver.output.negotiation import warning_headers
from kubectl_runtime.apiserver.wire import HttpRequest, parse_query

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
HUGE = "9" * 5000  # more digits than Python's int takes
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def core():
    return ApiCore(seed=1)


def ask(core, method, path, query=(), body=None, headers=JSON):
    data = json.dumps(body).encode() if body is not None else b""
    response = core.handle(HttpRequest(method, path, list(query), dict(headers), data))
    return response.status, json.loads(response.body) if response.body[:1] == b"{" else response.body


@pytest.mark.parametrize(("name", "text", "why"), [
    ("limit", "", 'strconv.ParseInt: parsing "": invalid syntax'),
    ("limit", "1_0", 'strconv.ParseInt: parsing "1_0": invalid syntax'),
    ("limit", " 1", 'strconv.ParseInt: parsing " 1": invalid syntax'),
    ("limit", "\u0661", 'strconv.ParseInt: parsing "\u0661": invalid syntax'),
    ("limit", str(1 << 63), f'strconv.ParseInt: parsing "{1 << 63}": value out of range'),
    ("limit", HUGE, f'strconv.ParseInt: parsing "{HUGE}": value out of range'),
    ("timeoutSeconds", HUGE, f'strconv.ParseInt: parsing "{HUGE}": value out of range'),
    ("resourceVersion", str(1 << 64), f'invalid resource version: resourceVersion: Invalid value: "{1 << 64}": '
                                      f'strconv.ParseUint: parsing "{1 << 64}": value out of range'),
    ("resourceVersion", "-1", 'invalid resource version: resourceVersion: Invalid value: "-1": '
                              'strconv.ParseUint: parsing "-1": invalid syntax'),
    ("labelSelector", "a in", "unable to parse requirement: found '' expected: '('"),
    ("labelSelector", "a notin", "unable to parse requirement: found '' expected: '('"),
    ("labelSelector", "a in b", "unable to parse requirement: found 'b' expected: '('"),
    ("labelSelector", f"a>{'9' * 20}", f'unable to parse requirement: values[0]: Invalid value: "{"9" * 20}": '
                                       "for 'Gt', 'Lt' operators, the value must be an integer"),
    ("fieldSelector", "metadata.name===x", "invalid field selector: unescaped character in value: 61"),
    ("fieldSelector", r"metadata.name=a\x", r"invalid field selector: invalid escape sequence: \x"),
    ("fieldSelector", "metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
])
def test_a_query_that_cannot_be_read_is_a_400(core, name, text, why):
    status, answer = ask(core, "GET", CONFIG_MAPS, [(name, text)])
    assert (status, answer["message"]) == (400, why)


def test_a_watch_from_a_version_that_is_none_is_the_real_servers_500(core):
    status, answer = ask(core, "GET", CONFIG_MAPS, [("watch", "1"), ("resourceVersion", HUGE)])
    assert (status, answer.get("reason")) == (500, None)
    assert answer["message"].endswith("value out of range")


def test_an_update_with_a_version_that_is_none_is_the_real_servers_500(core):
    ask(core, "POST", CONFIG_MAPS, body={"metadata": {"name": "updated"}})
    for version in (HUGE, "-1", "\u0663"):
        status, answer = ask(core, "PUT", f"{CONFIG_MAPS}/updated", body={
            "metadata": {"name": "updated", "resourceVersion": version}})
        why = "value out of range" if version == HUGE else "invalid syntax"
        assert (status, answer["message"]) == (500, f'strconv.ParseUint: parsing "{version}": {why}')
        assert ask(core, "POST", CONFIG_MAPS, body={"metadata": {
            "generateName": "a", "resourceVersion": version}})[0] == 201


def test_a_field_selector_may_escape_what_it_is_made_of(core):
    assert ask(core, "GET", CONFIG_MAPS, [("fieldSelector", r"metadata.name=a\,b\=c\\d")])[0] == 200


@pytest.mark.parametrize(("name", "why"), [
    ("..", "may not be '..'"), (".", "may not be '.'"), ("a%25b", "may not contain '%'")])
def test_a_name_that_fits_into_no_path_is_a_400(core, name, why):
    for method in ("GET", "DELETE"):
        status, answer = ask(core, method, f"{CONFIG_MAPS}/{name}")
        assert (status, answer["message"]) == (400, f'Name parameter invalid: "{name.replace("%25", "%")}": {why}')


@pytest.mark.parametrize(("method", "path", "status"), [
    *[("HEAD", path, 405) for path in ("/api", "/api/v1", "/apis/apps/v1", "/version", "/api/v1/namespaces",
                                       "/api/v1/namespaces/default", CONFIG_MAPS)],
    *[(method, path, 405) for method in ("POST", "BREW") for path in ("/api", "/api/v1", "/apis/apps/v1", "/version")],
    *[(method, path, 200) for method in ("HEAD", "POST", "BREW")
      for path in ("/", "/apis", "/apis/apps", "/healthz", "/livez", "/readyz", "/openapi/v3")],
    *[("GET", path, 404) for path in ("/healthz/", "//api/v1/namespaces", "/openapi/v2/", "/openapi/v3/", "/nope")],
    *[("GET", path, 200) for path in ("/api/", "/apis/", "/api/v1/", "/apis/apps/v1/", "/api/v1/namespaces/")],
    ("POST", "/apis/nope/v1", 404),
])
def test_methods_and_slashes_are_minded_where_the_real_server_minds_them(core, method, path, status):
    assert ask(core, method, path)[0] == status


def test_the_404_of_no_path_is_plain_text_that_no_browser_guesses_about(core):
    response = core.handle(HttpRequest("GET", "/nope"))
    assert (response.header("content-type"), response.header("x-content-type-options")) == (
        "text/plain; charset=utf-8", "nosniff")


@pytest.mark.parametrize(("text", "pairs"), [
    ("a=1&b;c=2&d=3", [("a", "1"), ("d", "3")]), ("a=%zz&b=%41", [("b", "A")]), ("a=%", []), ("&&a&=b&", [
        ("a", ""), ("", "b")]), ("a=b=c+d", [("a", "b=c d")]), ("", [])])
def test_a_query_is_read_as_go_reads_it(text, pairs):
    assert parse_query(text) == pairs


def warnings(texts):
    return [value for _, value in warning_headers(texts)]


def test_warnings_are_cut_if_they_are_many():
    assert warnings(["u" * 4096]) == ['299 - "' + "u" * 4096 + '"']
    assert warnings(["u" * 5000]) == ['299 - "' + "u" * 256 + '"']
    assert len(warnings([f"{number:0600}" for number in range(99)])) == 16
    assert len(warnings([f"{number:0217}" for number in range(99)])) == 19


def test_an_unknown_field_cannot_break_out_of_its_warning(core):
    body = {"metadata": {"name": "warned"}, 'a\r\nX-Evil: 1"\\\u202e': 1}
    response = core.handle(HttpRequest("POST", CONFIG_MAPS, [], JSON, json.dumps(body).encode()))
    assert response.header("warning") == r'299 - "unknown field \"a\\r\\nX-Evil: 1\\\"\\\\\\u202e\""'
