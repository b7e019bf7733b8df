"""`kubectl-runtime webhooks`: the configurations of an application, as the API server takes them."""
from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubectl_runtime import Api
from kubectl_runtime.cli.main import main
from kubectl_runtime.resources import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from kubectl_runtime.testing import ApiServer

PROGRAM = '''
from typing import Any
from kubectl_runtime import Conversion, CustomResource, DynamicObject
from kubectl_runtime.resources import Pod
from kubectl_runtime.webhooks import Admission, application

class Quota(Admission[Pod], failure_policy="Ignore", timeout=5):
    def validate(self, request):
        pass
    def mutate(self, request):
        return None

class Nameless(Admission[DynamicObject]):
    def validate(self, request):
        pass

class A(CustomResource, group="example.com", version="v1", kind="Widget"):
    spec: dict[str, Any]

class B(CustomResource, group="example.com", version="v2", kind="Widget"):
    spec: dict[str, Any]

app = application({"/quota": Quota(), "/convert": Conversion({(A, B): lambda a: B(spec=a.spec)})})
texts = application({"/quota": Quota(), "/convert": Conversion({("v1", "v2"): dict})})
nameless = application({"/all": Nameless()})
handlers = {"/quota": Quota()}
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_hooks.py").write_text(PROGRAM)
    monkeypatch.delitem(sys.modules, "my_hooks", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["webhooks", *arguments]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def test_an_api_server_takes_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    validating, mutating, definition = printed(capsys, "my_hooks:app", "--service", "shop/hooks:8443")
    assert [one["metadata"]["name"] for one in (validating, mutating, definition)] == ["hooks", "hooks",
                                                                                      "widgets.example.com"]
    assert validating["webhooks"][0]["clientConfig"] == {"service": {
        "namespace": "shop", "name": "hooks", "path": "/quota/validate", "port": 8443}}
    assert list(definition["spec"]) == ["conversion"]
    with ApiServer() as server, server.client() as client:
        for kind, manifest in ((ValidatingWebhookConfiguration, validating), (MutatingWebhookConfiguration, mutating)):
            api: Api[Any] = Api.all(client, kind)
            applied = api.apply(manifest, field_manager="kubectl", field_validation="Strict").to_dict()["webhooks"][0]
            assert {key: applied[key] for key in manifest["webhooks"][0] if key not in ("clientConfig", "rules")} == {
                key: value for key, value in manifest["webhooks"][0].items() if key not in ("clientConfig", "rules")}


def test_names_trust_and_annotations_are_said_on_the_command_line(capsys: pytest.CaptureFixture[str],
                                                                 folder: Path) -> None:
    pem = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    (folder / "ca.crt").write_bytes(pem)
    validating, *_ = printed(capsys, "my_hooks:app", "--url", "https://hooks.example.com:9443", "--ca-file", "ca.crt",
                             "--annotation", "cert-manager.io/inject-ca-from=shop/hooks", "--name", "shop")
    assert validating["metadata"] == {"name": "shop", "annotations": {
        "cert-manager.io/inject-ca-from": "shop/hooks"}}
    assert validating["webhooks"][0]["clientConfig"] == {
        "url": "https://hooks.example.com:9443/quota/validate", "caBundle": base64.b64encode(pem).decode()}
    named, *_ = printed(capsys, "my_hooks:app", "--url", "https://hooks.example.com:9443")
    assert named["metadata"] == {"name": "my-hooks"}


@pytest.mark.parametrize(("where", "named"), [
    (["--service", "shop/hooks"], "are called hooks, as the Service is"),
    (["--url", "https://a:1"], "are called my-hooks, as the module is")])
def test_a_name_that_was_chosen_is_told(where: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["webhooks", "my_hooks:app", *where]) == 0
    assert f"note: the configurations {named}. Where the program applies its own" in capsys.readouterr().err
    assert main(["webhooks", "my_hooks:app", *where, "--name", "shop"]) == 0
    assert "are called" not in capsys.readouterr().err


def test_a_conversion_that_nobody_knows_the_definition_of_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["webhooks", "my_hooks:texts", "--service", "shop/hooks"]) == 0
    shown = capsys.readouterr()
    assert "note: /convert is left out" in shown.err
    assert "CustomResourceDefinition" not in shown.out


@pytest.mark.parametrize(("arguments", "status", "said"), [
    (["my_hooks:ap"], 2, "did you mean app?"), (["my_hooks:handlers"], 2, "put webhooks.application(...) around it"),
    (["my_hooks:Quota"], 2, "must be a webhook application"),
    (["my_hooks:nameless", "--name", "x"], 1, "would never be called"),
    (["my_hooks:app", "--ca-file", "none.pem"], 1, "No such file"),
    (["my_hooks:app", "--ca-file", "my_hooks.py"], 1, "holds no PEM certificate"),
    (["other_hooks:app"], 2, "there is no module"), (["my_hooks:app", "--annotation", "x"], 2, "KEY=VALUE")])
def test_what_cannot_be_done_is_said(arguments: list[str], status: int, said: str,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    try:
        found = main(["webhooks", *arguments, "--service", "shop/hooks"])
    except SystemExit as ended:
        found = int(ended.code or 0)
    assert found == status
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("where", "said"), [
    ([], "required"), (["--service", "hooks"], "is not a Service"), (["--url", "http://x"], "is not the URL"),
    (["--service", "a/b", "--url", "https://x"], "not allowed with"),
    (["--service", "a\nb: c/d"], "is not a Service"), (["--service", "a/B"], "is not a Service"),
    (["--url", "https://x\ny:443"], "is not the URL"), (["--url", "https://x/\x1b[2J"], "is not the URL"),
    (["--service", "a/b", "--name", "c: d\ne"], "argument --name: the name is")])
def test_where_it_is_served_has_to_be_said(where: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["webhooks", "my_hooks:app", *where])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
