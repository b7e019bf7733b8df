"""A user's program, right but for the lines that end in a comment `mistake`: type checkers have to find these alone."""
from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import BaseModel

from kubectl_runtime import (
    Action,
    Api,
    Client,
    Condition,
    Config,
    Context,
    Controller,
    CustomResource,
    ListParams,
    ObjectMeta,
    ObjectRef,
    Patch,
    Reconciler,
    predicates,
)
from kubectl_runtime import Contoller  # mistake: no such name
from kubectl_runtime import Phase  # mistake: it is in kubectl_runtime.watch
from kubectl_runtime.errors import ApiEror  # mistake: no such error
from kubectl_runtime.kinds import Scope
from kubectl_runtime.params import DeleteParams
from kubectl_runtime.resources import ClusterRole, ConfigMap, Deployment, Pod, Secret, Service
from kubectl_runtime.resources import Deploymnt  # mistake: no such kind
from kubectl_runtime.resources.apps_v1 import DeploymentSpec
from kubectl_runtime.resources.batch_v1 import JobSpec, JobTemplateSpec
from kubectl_runtime.resources.core_v1 import Container, ContainerPort, EnvVar, PodSpec, PodTemplateSpec, ServicePort
from kubectl_runtime.resources.core_v1 import HTTPGetAction, Probe, ResourceRequirements, Volume
from kubectl_runtime.resources.core_v1 import Contaner  # mistake: no such part
from kubectl_runtime.resources.rbac_v1 import PolicyRule


@dataclass
class ShopSpec:
    replicas: int = 1
    image: str = "shop:1"
    hosts: list[str] = field(default_factory=list)


@dataclass
class ShopStatus:
    ready: int = 0


class Shop(CustomResource, group="example.com", version="v1", kind="Shop", short_names=("sh",)):
    spec: ShopSpec
    status: ShopStatus | None = None


class Plural(CustomResource, group="example.com", version="v1", kind="Plural", plurals="plurals"):  # mistake: keyword
    spec: ShopSpec


class Wide(CustomResource, group="example.com", version="v1", kind="Wide", scope="Cluster"):  # mistake: no Scope
    spec: ShopSpec


class Right(CustomResource, group="example.com", version="v1", kind="Right", scope=Scope.CLUSTER):
    spec: ShopSpec


@dataclass
class Shared:
    registry: str


class Shops(Reconciler[Shop]):
    def reconcile(self, obj: Shop, ctx: Context[Shared]) -> Action:
        image = f"{ctx.data.registry}/{obj.spec.image}"
        wanted = ctx.data.registri  # mistake: no such attribute of the context's data
        container = Container(name="shop", image=image, ports=[ContainerPort(container_port=80)])
        container.imagePullPolicy = "Always"  # mistake: the wire's name
        deployment = Deployment(
            name=obj.name, namespace=obj.namespace,
            spec=DeploymentSpec(replicas=obj.spec.replicas,
                                template=PodTemplateSpec(spec=PodSpec(containers=[container]))))
        made = ctx.ensure(obj, deployment, {"kind": "Secret"}, "text", prune=True)
        print(made.ready + made.waiting_for())  # mistake: a bool and a text
        print([each.spec for each in ctx.store(Deployment)], [each.name for each in ctx.metadata_store(Deployment)])
        print([each.spec for each in ctx.metadata_store(Deployment)])  # mistake: metadata alone
        ctx.ensure(obj, 5)  # mistake: no object
        deployment.set_owner(obj)
        deployments = Api.namespaced(ctx.client, Deployment, obj.namespace)
        deployments.apply(deployment, field_manager="shops")
        deployments.apply(deployment, field_manager="shops", forced=True)  # mistake: no such keyword
        deployments.create(Service(name="a"))  # mistake: the wrong kind
        deployments.get(5)  # mistake: no name
        obj.status.ready = 1  # mistake: there may be none
        obj.spec.replicas = "3"  # mistake: text
        obj.name = "other"  # mistake: read-only
        obj.spec.hosts.append(80)  # mistake: a number among texts
        return Action.requeue(30)

    def error_policy(self, obj: Shop, error: BaseException, ctx: Context[Shared]) -> Action:
        return Action.requeue("30s")  # mistake: neither seconds nor a timedelta


class Unfinished(Reconciler[Shop]):
    def reconcile(self, obj: Shop, ctx: Context[None]) -> Action:  # mistake: returns nothing
        Api.namespaced(ctx.client, Secret, obj.namespace).get("a")


def make(client: Client) -> None:
    shop = Shop(name="a", namespace="shops", spec=ShopSpec(image="shop:2"))
    Shop(name="a", namespace="shops")  # mistake: no spec
    Shop(name="a", spec=ShopSpec(replica=2))  # mistake: a field that there is not
    Shop(name="a", spec={"replicas": 2})  # mistake: a dict for a dataclass
    Shop(nam="a", spec=ShopSpec())  # mistake: an argument that there is not
    Deployment(name="a", specs=DeploymentSpec())  # mistake: an argument that there is not
    Deployment(name="a", spec=DeploymentSpec(replica=2))  # mistake: a field that there is not
    ConfigMap(name="a", data={"port": 80})  # mistake: a number among texts
    Secret(name="a", data={"password": "text"})  # mistake: text where bytes are
    Container(name="c", env=[EnvVar(name="A", value=1)])  # mistake: a number
    ServicePort(port="80")  # mistake: text
    ClusterRole(name="r", rules=[PolicyRule(verbs="get")])  # mistake: text for a list
    Pod(name=ObjectMeta(name="a"))  # mistake: metadata for a name
    Condition(type="Ready", status=True)  # mistake: a condition's status is text
    shops = Api.namespaced(client, Shop, "shops")
    Api(client, Shop)  # mistake: Api.namespaced and its like make one
    shops.create(shop)
    shops.list(ListParams(labels="app=a"))  # mistake: label_selector
    shops.delete("a", DeleteParams(propagation="Foreground"))  # mistake: propagation_policy
    shops.patch("a", {"spec": {}})  # mistake: a dict is no Patch
    shops.patch("a", Patch.merge({"spec": {"replicas": 2}}))
    found: Deployment = shops.get("a")  # mistake: it is a Shop
    ObjectRef.of("Shop", "a")  # mistake: no kind
    print(found, shops.get("a").spec.replicas + 1)


def run() -> None:
    config = Config(url="https://example.com")  # mistake: cluster_url
    client = Client(config)
    make(client)
    controller = Controller(Api.all(client, Shop), concurrency=4, predicate=predicates.generation)
    controller.owns(Api.all(client, Deployment))
    controller.watches(Api.all(client, ConfigMap), lambda obj: [ObjectRef.of(Shop, obj.metadata.nmae)])  # mistake: typo
    controller.run(Shops())  # mistake: the context is forgotten
    controller.run(Shops(), context="registry")  # mistake: the context is another type
    controller.run(Shops(), context=Shared("registry.example.com"))


def fits(pod: Pod) -> bool:
    waiting = [status for status in pod.status.container_statuses if status.state.waiting is not None]
    return pod.status.phase == "Running" and not waiting and pod.spec.node_name is not None


class RunnerSpec(BaseModel):
    schedule: str
    keep: int = 3


@dataclass
class RunnerStatus:
    template: PodTemplateSpec
    job: JobTemplateSpec | None = None


class Runner(CustomResource, group="example.com", version="v1", kind="Runner"):
    spec: RunnerSpec
    status: RunnerStatus | None = None


def embedded(runner: Runner, pod: Pod, web: Deployment) -> None:
    Runner(name="a", spec=RunnerSpec(schedule="* * * * *"))
    Runner(name="a", spec=RunnerSpec())  # mistake: the schedule is missing
    Runner(name="a", spec=RunnerSpec(schedule="x", keep="three"))  # mistake: text for a number
    Runner(name="a", spec=ShopSpec())  # mistake: another spec
    print(runner.spec.schedul)  # mistake: typo
    print(runner.spec.keep.upper())  # mistake: a number
    runner.spec.keep = "3"  # mistake: text for a number
    print(runner.status.template)  # mistake: it may be None
    if runner.status is not None:
        print(runner.status.template.spec.containers[0].image, runner.status.template.metadata.labels["a"])
        print(runner.status.template.spec.container)  # mistake: typo
        print(runner.status.template.metadata.label)  # mistake: typo
        print(runner.status.job.spec)  # mistake: it may be None
        runner.status.job = JobSpec()  # mistake: not the template
        runner.status.template.metadata.labels["a"] = 5  # mistake: labels are text
    pod.labels["app"] = "web"
    pod.annotations.update(note="x")
    pod.metadata.finalizers.append("example.com/a")
    pod.labels["app"] = 1  # mistake: labels are text
    pod.metadata.finalizers.append(5)  # mistake: text
    pod.metadata.annotations = []  # mistake: a map
    pod.kind = "Secret"  # mistake: read-only
    print(pod.kind.lower(), pod.api_version.partition("/"), web.spec.selector.match_labels)
    print(pod.api_verson)  # mistake: typo
    ResourceRequirements(limits={"cpu": "1"}, requests={"cpu": 1})  # mistake: quantities are text
    Probe(http_get=HTTPGetAction(port="web"), timeout_seconds="5")  # mistake: text for a number
    HTTPGetAction(port=None)  # mistake: it is required
    PodSpec(volumes=[Volume("a")])  # mistake: by keyword
    web.spec.selector = None  # mistake: it is required
    JobTemplateSpec(spec=PodSpec())  # mistake: a JobSpec
