"""`kubectl-runtime run` of a Manager that serves webhooks: it answers, is ready, and ends at a signal."""
from __future__ import annotations

import json
import signal
import ssl
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")

from kubectl_runtime import Api
from kubectl_runtime.resources import ValidatingWebhookConfiguration
from kubectl_runtime.testing import ApiServer
from tests.examples.programs import LIMIT, Program
from tests.webhooks.reviews import pod, review

PROGRAM = '''
from kubectl_runtime import Manager
from kubectl_runtime.resources import Pod
from kubectl_runtime.webhooks.server import WebhookServer
from kubectl_runtime.webhooks.serving_certificates import SelfSigned
from kubectl_runtime.webhooks import Admission, Denied, application

class Nothing(Admission[Pod]):
    def validate(self, request):
        raise Denied("nothing passes")

def main(client):
    return Manager(client).add_server(WebhookServer(
        application({"/nothing": Nothing()}), certificates=SelfSigned("shop/hooks", hosts=("127.0.0.1",)),
        client=client, host="127.0.0.1", port=0, configuration="nothing"))
'''


@pytest.mark.parametrize(("arguments", "url", "warned"), [
    ([], "", True), (["--webhook-service", "shop/other=https://127.0.0.1:1"], "", True),
    (["--webhook-service", "shop/hooks=https://127.0.0.1:1"], "", False), ([], ", url='https://127.0.0.1:1'", False)])
def test_a_service_without_an_address_is_named_at_the_start(tmp_path: Path, arguments: list[str], url: str,
                                                            warned: bool) -> None:
    (tmp_path / "only_hooks.py").write_text(PROGRAM.replace('="nothing"))', f'="nothing"{url}))'))
    with Program("-m", "kubectl_runtime", "run", "only_hooks:main", "--dev", *arguments, cwd=tmp_path) as program:
        port = program.until("webhook server 127.0.0.1:0 listens at port").rpartition(" ")[2]
        program.until("shows what it does")
        program.send(signal.SIGINT)
        assert program.end() == 0, program.text
    warnings = [line for line in program.lines if line.startswith("warning: ")]
    assert warnings == (["warning: the API server cannot call the webhooks of the Service shop/hooks, whose address is "
                         f"unknown: add --webhook-service shop/hooks=https://127.0.0.1:{port}"] if warned else [])


def test_a_manager_with_webhooks_runs_until_a_signal(tmp_path: Path) -> None:
    (tmp_path / "only_hooks.py").write_text(PROGRAM)
    with ApiServer() as server, server.client() as client:
        kubeconfig = {"KUBECONFIG": server.write_kubeconfig(tmp_path / "kubeconfig")}
        with Program("-W", "error::ResourceWarning", "-m", "kubectl_runtime", "run", "only_hooks:main",
                     "--health-probe-bind-address", "127.0.0.1:0", env=kubeconfig, cwd=tmp_path) as program:
            port = program.until("webhook server 127.0.0.1:0 listens at port").rpartition(" ")[2]
            program.until("the configurations called nothing are applied")
            hook = Api.all(client, ValidatingWebhookConfiguration).get("nothing").webhooks[0]
            bundle = hook.client_config.ca_bundle
            assert bundle is not None
            asked = urllib.request.Request(f"https://127.0.0.1:{port}/nothing/validate", review(pod()),
                                           {"Content-Type": "application/json"})
            context = ssl.create_default_context(cadata=bundle.decode())
            with urllib.request.urlopen(asked, timeout=LIMIT, context=context) as answer:
                assert json.loads(answer.read())["response"]["status"]["message"] == "nothing passes"
            program.send(signal.SIGTERM)
            assert program.end() == 0, program.text
    assert "Traceback" not in program.text
