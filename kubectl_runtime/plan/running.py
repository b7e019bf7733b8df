"""`plan`: runs a program in a simulated copy of a cluster until nothing changes.

1. The copy contains the snapshot's objects exactly as they were read. The copy's clock starts at the time of the
   reading.
2. The cluster's own controllers run first, until they have no more work. Their changes so far are not part of the plan.
3. The program's CustomResourceDefinitions are applied, as in an upgrade, and then the given manifests (client_side.py).
4. The program's controllers run together with the cluster's own controllers, in one thread and on simulated time.
5. The plan ends when nothing has changed for `QUIET` simulated seconds, or when the time is over.

The program's client is connected to the simulated server. Any other outside access is refused, unless `outside`
replaces it. Every change of the copy is recorded with its author: a controller's run, or the cluster.
"""
from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import requests
from requests.adapters import BaseAdapter

from kubectl_runtime.apiserver.access.authn import ADMIN
from kubectl_runtime.apiserver.controllers.claims import VolumeBinder
from kubectl_runtime.apiserver.controllers.controller_catalog import CONTROLLERS
from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.apiserver.output.negotiation import shown_objects
from kubectl_runtime.apiserver.storage import Bucket, Change, Version
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.base.errors import ApiError, KubeError, RequestError
from kubectl_runtime.core.base.guard import ProcessEnded
from kubectl_runtime.core.base.threads import Duration, seconds
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef, Scope
from kubectl_runtime.crd.compare import losses
from kubectl_runtime.manifests.documents import Manifests, read_objects
from kubectl_runtime.plan.analysis import Observed, Run, Step, may_be_computed_from_digests, moved, plan_of
from kubectl_runtime.plan.client_side import kubectl_apply
from kubectl_runtime.plan.program import (
    OutsideRefused,
    Program,
    addresses,
    allow_all,
    error_line,
    named,
    refused_outside,
    with_other_versions,
)
from kubectl_runtime.plan.report import Plan, Problem, secret_values
from kubectl_runtime.plan.stored import (
    DEFINITIONS,
    STORAGE,
    Build,
    Object,
    ReadKind,
    StoredSnapshot,
    gaps,
    missing_storage,
    served_objects,
    undamaged,
)
from kubectl_runtime.runtime.logs import said
from kubectl_runtime.runtime.queue.runs import GONE, SKIPPED, Execute, Outcome
from kubectl_runtime.runtime.queue.runs import Run as KeyRun
from kubectl_runtime.testing.asking import muted_logs
from kubectl_runtime.testing.lab.recordings import PASSING, Asked, Identity, identity_of, resource_of
from kubectl_runtime.testing.simulation import SimulatedController, Simulation
from kubectl_runtime.webhooks.answering import Application
from kubectl_runtime.webhooks.configurations import apply_webhooks

URL = "http://plan.invalid"
QUIET = 600.0
"""The plan ends after this many simulated seconds without a change."""
LONGEST = 3600.0
"""By default the plan ends after this many simulated seconds, even if objects still change."""
ALONE = 600.0
"""The maximum number of simulated seconds for which the cluster's own controllers run before the program begins."""
PIECE = 60.0
JUMP = 120.0
MOST_WRITES = 300
"""If the program writes one object more often than this, the plan ends and reports a loop."""
MOST_CREATED = 2000
"""If the program creates more objects of one kind than this number plus ten for each object of the snapshot, the plan
ends and reports a loop."""
MOST_RUNS = 20_000
"""A plan without `until` ends after this many runs, plus twenty for each object of the snapshot."""
MANAGER = "kubectl-runtime-plan"
_LOOKS_AT_USER = re.compile(r"request\.userInfo|\bauthorizer\b")
_LOOP = 6
"""If the program has changed an object at least this often and is still changing it at the end, this is reported as a
loop."""


class RanEnough(ProcessEnded):
    """The program has made the maximum number of runs that a plan allows."""


class Restless(ProcessEnded):
    """The program writes or creates objects endlessly, so the plan was ended."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def plan(build: Build, snapshot: StoredSnapshot, *, change: Iterable[Manifests] = (), until: Duration | None = None,
         outside: Callable[[], Any] | None = None, seed: int = 0) -> Plan:
    """Return what the program would do to the cluster of `snapshot`.

    `build(client)` makes the program, as for `kubectl-runtime run`. Its client reaches a simulated copy of the cluster
    and nothing else. `change`: manifests (paths, texts, dicts, resources) that are applied before the program starts.
    `until`: how many simulated seconds (or a timedelta) the program runs; None: until nothing has changed for ten
    minutes, at most an hour. `outside`: a function without arguments that replaces whatever else the program connects
    to, for example with mocks. If `outside` returns a context manager, the context stays open during the plan. `seed`
    decides the order of all simulated events.

    If a changed value may be computed from redacted values, such as a hash of a Secret, the program runs a second time
    with other digests. Values that differ between the two runs are reported as unknown.

    The call blocks, because the program runs in this thread; simulated waits take no real time. Only one plan may run
    in a process at a time. The library's logs are muted. Raises what `build` and `outside` raise, TypeError or
    ValueError for an invalid result of `build`, ManifestError or OSError for the manifests of `change`, and
    SnapshotError for a snapshot with objects that no server would have stored.

    >>> def main(client):
    ...     settings = Api.namespaced(client, ConfigMap, "default")
    ...     def paint(found, ctx):
    ...         settings.patch(found.name, Patch.merge({"data": {"color": "green"}}))
    ...         return Action.await_change()
    ...     return Controller(settings).bind(paint)
    >>> print(plan(main, Snapshot.read(client, main)).changed[0].fields[0])
    data.color: "blue" -> "green"   (owned by load)
    """
    sources: list[Any] = [change] if isinstance(change, str | bytes | dict) else [*change]
    def observed(on: StoredSnapshot) -> Observed:
        return Rehearsal(build, on, sources, None if until is None else seconds(until), outside, seed).run()

    with muted_logs():
        first = observed(snapshot)
        found = plan_of(first, snapshot)
        if may_be_computed_from_digests(found, snapshot):
            found = plan_of(first, snapshot, observed(snapshot.with_other_digests()))
    return found


def kinds_asked_for(build: Build, snapshot: StoredSnapshot) -> set[tuple[str, str, str, str]]:
    """The kinds that the program requests when it starts with this snapshot, and the claims that the cluster then
    makes: group, version, plural and namespace. The namespace is "" for all namespaces and for cluster-scoped kinds."""
    with muted_logs():
        observed = Rehearsal(build, snapshot, [], 0.0, None, 0).run()
    return observed.asked | {("", "v1", name, namespace) for name, namespace, _ in observed.after
                             if name == STORAGE[0].full_name}


class Rehearsal:
    """Runs a program in a simulated copy of a cluster. Can be used once."""

    def __init__(self, build: Build, snapshot: StoredSnapshot, change: list[Manifests], until: float | None,
                 outside: Callable[[], Any] | None, seed: int) -> None:
        self._build, self._snapshot = build, snapshot
        self._changes = [named(obj, place) for source in change for obj, place in read_objects(source)]
        self._until, self._outside, self._seed = until, outside, seed
        self.sim = Simulation(seed, jump=JUMP, record=False, start=snapshot.read_at)
        left_out = {"root-ca-certificate-publisher", VolumeBinder.name if missing_storage(snapshot) else ""}
        self.server = self.sim.serve(controllers=[name for name in CONTROLLERS if name not in left_out], record=False)
        cluster = self.server.core.cluster
        loopback = cluster.loopback

        def by_the_cluster(request: HttpRequest, component: str) -> HttpResponse:
            with self._as(None):
                try:
                    return loopback(request, component)
                except StatusError as error:
                    self._note_refusal(request, error)
                    raise

        cluster.loopback = by_the_cluster  # the cluster's controllers may use it while the server answers the program
        self.observed = Observed()
        self._by: Run | str | None = None
        """The author of the requests that are being made now."""
        self._current: Run | None = None
        self._watching = False
        self._moved_at = 0.0
        self._writes: Counter[Identity] = Counter()
        self._created: Counter[str] = Counter()
        self._last: dict[Run, BaseException | None] = {}
        self._lines: dict[Run, str] = {}
        self._refused: dict[tuple[Run | None, str], str] = {}
        self._running: dict[str, SimulatedController[Any]] = {}
        self._turned_away_before: dict[str, tuple[str, str]] = {}

    def run(self) -> Observed:
        """Run the program to the end of the plan."""
        observed = self.observed
        session = requests.Session()
        session.mount("http://", _Transport(self, self.server.transport()))
        with ExitStack() as stack:
            guard = stack.enter_context(refused_outside(self._note_refused))
            client = stack.enter_context(Client(Config(cluster_url=URL), session=session, clock=self.sim.clock))
            with undamaged():
                self._implant()
            if self._outside is not None and hasattr(entered := self._outside(), "__enter__"):
                stack.enter_context(entered)
            program = Program.built(self._build, client)
            self._mount(program)
            with undamaged():
                self._rest()
            self._begin_watching()
            self._apply_definitions(client, program)
            self._apply_changes(client)
            self._apply_webhooks(client, program)
            observed.asked.clear()
            guard.building = False
            self._start(program)
            self._work()
            observed.after = self._state()
            self._convert_states()
            if alive := sorted(one.name for one in guard.started if one.is_alive()):
                observed.not_simulated.append(f"what the program's threads do after its runs ({', '.join(alive)})")
        observed.took = self.sim.clock.monotonic()
        self._conclude(program)
        return observed

    # --- the copy --------------------------------------------------------------------------------------------------

    def _implant(self) -> None:
        objects, unserved = served_objects(self._snapshot, self.server.core.cluster.registry)
        self.server.kubelet.left_alone = frozenset(  # the simulated kubelet does not start or stop these Pods
            obj["metadata"]["uid"] for obj in objects if obj["kind"] == "Pod" and "uid" in obj["metadata"])
        self.server.implant(objects)
        there = {(obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]) for obj in objects}
        self._drop(lambda kind, version: (kind.kind, version.namespace, version.name) not in there)
        self.observed.unknown += [Problem(f"{count} objects of {kind}", "the simulated server does not serve this kind")
                                  for kind, count in unserved.items()]

    def _drop(self, is_foreign: Callable[[ReadKind, Version], bool]) -> None:
        """Remove objects that the simulated server made by itself, such as its first Node, if their kind was read from
        the cluster."""
        cluster = self.server.core.cluster
        with cluster.locked():
            rv, buckets = cluster.storage.dump()
            for key, bucket in buckets.items():
                for version in list(bucket.values()):
                    kind = self._snapshot.by_name.get(identity_of(key, version)[0])
                    if kind is not None and kind.served and not kind.refused and is_foreign(kind, version):
                        del bucket[version.key]
            cluster.storage.load((rv, buckets))

    def _mount(self, program: Program) -> None:
        """Mount the program's webhooks in process. Third-party webhooks allow everything, and are named in the plan."""
        configurations = [obj for obj in self._snapshot.objects if obj["kind"].endswith("WebhookConfiguration")]
        definitions = [obj for obj in self._snapshot.objects if obj["kind"] == DEFINITIONS.kind]
        prefixes = program.prefixes([*configurations, *definitions])
        for prefix, server in prefixes.items():
            self.server.mount_webhook(prefix, server.app)
        for configuration in configurations:
            others = [prefix for prefix in addresses(configuration) if not prefix.startswith(tuple(prefixes))]
            for prefix in others:
                self.server.mount_webhook(prefix, allow_all)
            if others:
                self.observed.not_simulated.append(
                    f"the webhooks of {configuration['kind']} {configuration['metadata']['name']}")

    def _rest(self) -> None:
        """Let the cluster's own controllers run until they change nothing more."""
        self.server.core.cluster.storage.observers.append(self._see)
        self._moved_at = self.sim.clock.monotonic()
        while self.sim.clock.monotonic() < ALONE:
            self.sim.settle(PIECE)
            if self.sim.clock.monotonic() - self._moved_at >= PIECE:
                break
        # The cluster's own controllers may have made objects in other namespaces, such as a new ServiceAccount.
        self._drop(lambda kind, version: not kind.covers(version.namespace))

    def _begin_watching(self) -> None:
        self._watching = True
        self.observed.before = self._state()
        self._began = self._moved_at = self.sim.clock.monotonic()

    def _state(self) -> dict[Identity, Version]:
        _, buckets = self.server.core.dump()
        return {identity: version for key, bucket in buckets.items() for version in bucket.values()
                if (identity := identity_of(key, version))[0] not in PASSING}

    # --- steps before the program ------------------------------------------------------------------------------

    def _apply_definitions(self, client: Client, program: Program) -> None:
        """Apply the given CRDs and those of the program's classes; fields that a class does not set stay."""
        given = {obj["metadata"]["name"]: obj for obj, _ in self._changes if obj.get("kind") == DEFINITIONS.kind}
        own = {obj["metadata"]["name"]: obj for obj in program.definitions() if obj["metadata"]["name"] not in given}
        with self._as("definitions"):
            for definition in [*given.values(), *own.values()]:
                self._apply_definition(client, definition, whole=definition["metadata"]["name"] in given)
            self._let_cluster_work()

    def _apply_definition(self, client: Client, definition: Object, *, whole: bool) -> None:
        name = definition["metadata"]["name"]
        api: Any = Api.all(client, DEFINITIONS)
        cluster = self.server.core.cluster
        served = cluster.registry.by_kind(DEFINITIONS.group, DEFINITIONS.version, DEFINITIONS.kind)
        there = api.get_opt(name)
        if there is not None:
            live = there.to_dict()
            if not whole:
                definition, kept = with_other_versions(definition, live)
                if kept:
                    self.observed.not_simulated.append(
                        f"a definition of {name} without {', '.join(kept)}, for which the program has no class "
                        "(give the definition by --change)")
            with undamaged():
                self.observed.definitions += [Problem(f"{DEFINITIONS.kind} {name}", f"takes away: {loss}")
                                              for loss in losses(live, definition)]
        try:
            if whole and served is not None:
                kubectl_apply(api, cluster, served, definition)
            else:
                api.apply(definition, field_manager=MANAGER, force=True)
        except (ApiError, RequestError) as error:
            self.observed.definitions.append(Problem(f"{DEFINITIONS.kind} {name}", f"is refused: {_message(error)}"))

    def _apply_changes(self, client: Client) -> None:
        with self._as("change"):
            for obj, place in self._changes:
                if obj.get("kind") != DEFINITIONS.kind:
                    self._apply_change(client, obj, place)

    def _let_cluster_work(self) -> None:
        """Run the work of the cluster's own controllers that is due."""
        with self._as(None):
            while (due := self.server.core.next_wakeup()) is not None and due <= self.sim.clock.monotonic():
                if not self.server.core.tick():
                    return

    def _apply_change(self, client: Client, obj: Object, place: str) -> None:
        group, _, version = str(obj.get("apiVersion")).rpartition("/")
        kind = self.server.core.cluster.registry.by_kind(group, version, str(obj.get("kind")))
        name = obj["metadata"]["name"]
        if kind is None:
            self.observed.failed.append(Problem(f"{obj.get('kind')} {name}", f"the change ({place}) is of a kind that "
                                                f"is not served: {obj.get('apiVersion')}"))
            return
        resource = ApiResource(group, version, kind.kind, kind.plural,
                               Scope.NAMESPACED if kind.namespaced else Scope.CLUSTER)
        namespace = (obj["metadata"].get("namespace") or "default") if kind.namespaced else None
        api: Any = Api.namespaced(client, resource, namespace) if namespace else Api.all(client, resource)
        try:
            kubectl_apply(api, self.server.core.cluster, kind, obj)
        except (ApiError, RequestError) as error:
            self.observed.failed.append(Problem(f"{kind.kind} {name}", f"the change ({place}) is refused: "
                                                f"{_message(error)}"))
        self._let_cluster_work()

    def _apply_webhooks(self, client: Client, program: Program) -> None:
        with self._as("definitions"):
            for server in program.webhooks:
                if server.configuration is None or not isinstance(server.app, Application):
                    continue
                try:
                    apply_webhooks(client, server.app, server.configuration, force=True, url=server.url,
                                   service=server.service if server.url is None else None,
                                   field_manager=server.configuration,
                                   ca_bundle=self._authorities(server.configuration))
                except KubeError as error:
                    self.observed.failed.append(Problem(server.name, f"its configurations are refused: {error}"))

    def _authorities(self, name: str) -> bytes:
        """The CA bundle in the cluster's webhook configuration of this name; empty if there is none."""
        for obj in self._snapshot.objects:
            if obj["kind"].endswith("WebhookConfiguration") and obj["metadata"]["name"] == name:
                for hook in obj.get("webhooks") or ():
                    if bundle := (hook.get("clientConfig") or {}).get("caBundle"):
                        return base64.b64decode(bundle)
        return b""

    # --- the program -------------------------------------------------------------------------------------------------

    def _start(self, program: Program) -> None:
        for one in program.controllers:
            name = one.controller.plan().name
            self._running[name] = self.sim.start(one.controller, one.reconciler, error_policy=one.error_policy,
                                                 context=one.context)
            runner = self._running[name].assembly.runner
            runner.execute = self._followed(name, runner.execute)

    def _followed(self, controller: str, execute: Execute) -> Execute:
        """Wrap `execute`, so that each run is recorded as a whole: with decoding, `on_success`, `on_gone` and the check
        of its result."""
        def followed(of: KeyRun) -> Outcome:
            run = Run(controller, of.request.ref)
            before, self._current = self._current, run
            try:
                outcome = execute(of)
            finally:
                self._current = before
            if outcome is not SKIPPED:
                self._last[run] = error = outcome.error
                self._lines[run] = "" if error is None else error_line(error)
                self.observed.runs += outcome is not GONE
                if self._until is None and self.observed.runs > MOST_RUNS + 20 * len(self.observed.before):
                    raise RanEnough
            return outcome
        return followed

    def _work(self) -> None:
        end = self._began + (LONGEST if self._until is None else self._until)
        try:
            while True:
                now = self.sim.clock.monotonic()
                self.sim.settle(max(0.0, min(PIECE, end - now)))
                now = self.sim.clock.monotonic()
                if now >= end or (self._until is None and now - self._moved_at >= QUIET):
                    return
        except Restless as restless:
            self.observed.loops.append(restless.problem)
        except RanEnough:
            self.observed.not_simulated.append(
                f"what happens after {self.sim.clock.monotonic() - self._began:.0f} simulated seconds, in which the "
                f"program ran {self.observed.runs} times (--until simulates longer)")
        except AssertionError as error:  # the simulation's error for an endless loop of runs
            self.observed.loops.append(Problem("the program", str(error).partition(". Runs cause")[0]))

    def _convert_states(self) -> None:
        """Convert the first states of objects that are now stored in another version, so that renamed fields do not
        count as changes."""
        registry, stored = self.server.core.cluster.registry, self.observed
        for identity, after in stored.after.items():
            before = stored.before.get(identity)
            if before is None or before.stored_as == after.stored_as:
                continue
            plural, _, group = identity[0].partition(".")
            kind = registry.get(group, after.stored_as, plural)
            if kind is not None:
                with suppress(StatusError):  # without the conversion the plan shows both versions' fields as changes
                    stored.converted[identity] = shown_objects(kind, [before])[0]

    def _conclude(self, program: Program) -> None:
        observed = self.observed
        kinds = self.server.core.cluster.registry
        for kind in kinds:
            name = resource_of(kind.group, kind.plural)
            observed.kinds.setdefault(name, ApiResource(kind.group, kind.version, kind.kind, kind.plural,
                                                        Scope.NAMESPACED if kind.namespaced else Scope.CLUSTER))
            if kind.is_custom:
                observed.custom.add(name)
        observed.run = {plan.resource.full_name for plan in program.plans()}
        self._note_secrets()
        self._find_slow_loops()
        self._find_idle(program)
        refused_runs = {run for run, _ in self._refused}
        with_end = {plan.name for plan in program.plans() if plan.on_gone is not None}
        for (run, address), line in self._refused.items():
            observed.unknown.append(Problem(said(run.ref) if run is not None and run.ref else "the program",
                                            f"wants to reach {address}", line, "" if run is None else run.controller))
        for run, error in self._last.items():
            if error is None or run.ref is None or run in refused_runs or isinstance(error, OutsideRefused):
                continue
            if run.controller not in with_end and not self._exists(run.ref):
                continue
            observed.failed.append(Problem(said(run.ref), f"{type(error).__name__}: {_message(error)}",
                                           self._lines.get(run, ""), run.controller))
        for uid in self._turned_away_before:  # refused before the program ran
            observed.turned_away.pop(uid, None)
        not_simulated, unknown = gaps(self._snapshot, kinds, observed.asked, {name for name, _, _ in observed.after})
        observed.not_simulated += not_simulated
        observed.unknown += unknown
        observed.not_simulated += [
            f"the operator's account in {obj['kind']} {obj['metadata']['name']}, which looks at the user of a request "
            f"(here {ADMIN.name})" for obj in self._snapshot.objects if obj["kind"].endswith("AdmissionPolicy")
            and _LOOKS_AT_USER.search(msgspec.json.encode(obj.get("spec")).decode())]
        observed.not_simulated += program.not_run()

    def _find_idle(self, program: Program) -> None:
        """Report controllers that never began, because their watched kinds are not served."""
        served = {(kind.group, kind.version, kind.plural) for kind in self.server.core.cluster.registry}
        for one in program.controllers:
            plan = one.controller.plan()
            if self._running[plan.name].is_ready:
                continue
            watched = {f"{kind.full_name} in {kind.api_version}": None for kind in program.watched_by(plan)
                       if (kind.group, kind.version, kind.plural) not in served}
            why = f": the cluster does not serve {', '.join(watched)}" if watched else ""
            self.observed.failed.append(Problem(f"controller {plan.name}", f"does not begin{why}"))

    def _find_slow_loops(self) -> None:
        """Report objects that the program was still changing at the end, if the plan was long enough to decide this."""
        lasted = self.sim.clock.monotonic() - self._began
        if lasted < QUIET or self.observed.loops:
            return
        writes: dict[Identity, list[Step]] = {}
        for step in self.observed.steps:
            if isinstance(step.by, Run):
                writes.setdefault(step.identity, []).append(step)
        for identity, steps in writes.items():
            count = sum(moved(step.before, step.after) for step in steps) if len(steps) >= _LOOP else 0
            if count >= _LOOP and lasted - steps[-1].at < QUIET / 2:
                self.observed.loops.append(Problem(self._words(identity), f"was changed {count} times and has not come "
                                                   "to rest", by=self._authors(identity)))

    # --- observation ------------------------------------------------------------------------------------------------

    def carry(self, request: requests.PreparedRequest, answer: Callable[[], requests.Response]) -> requests.Response:
        """Answer a request of the program, and record the requested kind."""
        asked = Asked.of(request)
        info = asked.info
        if info.is_resource and resource_of(info.group, info.resource) not in PASSING:
            namespace = "" if info.resource == "namespaces" else info.namespace or ""
            self.observed.asked.add((info.group, info.version, info.resource, namespace))
        by = self._by or self._current or Run("the program", None)
        self._let_cluster_work()
        if asked.is_write and isinstance(by, Run):
            self._check_created(resource_of(info.group, info.resource), by)
            self.observed.managers |= {value for key, value in parse_qsl(urlsplit(request.url or "").query)
                                       if key == "fieldManager"}
            identity = resource_of(info.group, info.resource), info.namespace or "", info.name or ""
            self._writes[identity] += 1
            if self._writes[identity] > MOST_WRITES and info.name:
                raise Restless(Problem(self._words(identity), f"is written again and again, {MOST_WRITES} times: the "
                                       "plan ends here", by=self._authors(identity)))
        with self._as(by):
            return answer()

    def _check_created(self, name: str, by: Run) -> None:
        """End the plan of a program that creates more and more objects."""
        most = MOST_CREATED + 10 * len(self.observed.before)
        if self._created[name] > most:
            raise Restless(Problem(f"{self._words((name, '', '')).strip()} objects", "are created again and again, "
                                   f"{most} of them: the plan ends here", by=str(by)))

    @contextmanager
    def _as(self, by: Run | str | None) -> Iterator[None]:
        before, self._by = self._by, by
        try:
            yield
        finally:
            self._by = before

    def _see(self, bucket: Bucket, change: Change) -> None:
        """Observe a change of the server's storage."""
        identity = identity_of(bucket.key, change.new)
        if identity[0] in PASSING:
            return
        after = None if change.deleted else change.new
        if moved(change.old, after):
            self._moved_at = self.sim.clock.monotonic()
        if self._watching:
            at = self.sim.clock.monotonic() - self._began
            self.observed.steps.append(Step(identity, self._by, change.old, after, at))
            if change.old is None and isinstance(self._by, Run):
                self._created[identity[0]] += 1

    def _exists(self, ref: ObjectRef) -> bool:
        """Whether an object exists at the end. A failed run of a deleted object is not reported."""
        return (ref.resource.full_name, ref.namespace or "", ref.name) in self.observed.after

    def _note_refusal(self, request: HttpRequest, error: StatusError) -> None:
        """Record why the server refused an object, such as a Pod, that a controller of the cluster creates for an
        owner."""
        if request.method != "POST" or error.code not in (403, 422):
            return
        obj = msgspec.json.decode(request.body)
        for owner in obj["metadata"].get("ownerReferences") or ():
            kept = self.observed.turned_away if self._watching else self._turned_away_before
            kept.setdefault(owner["uid"], (obj["kind"], error.message))

    def _note_refused(self, address: str, line: str) -> None:
        self._refused.setdefault((self._current, address), line)

    def _words(self, identity: Identity) -> str:
        name, namespace, own = identity
        kind = next((kind.kind for kind in self.server.core.cluster.registry
                     if resource_of(kind.group, kind.plural) == name), name)
        return f"{kind} {namespace}/{own}" if namespace else f"{kind} {own}"

    def _authors(self, identity: Identity) -> str:
        found = {str(step.by): None for step in self.observed.steps if step.identity == identity and step.by}
        return " and ".join(found)

    def _note_secrets(self) -> None:
        """Collect the values of all current and former Secrets, since texts may quote them."""
        versions = {id(version): version for state in (self.observed.before, self.observed.after)
                    for identity, version in state.items() if identity[0] == "secrets"}
        for step in self.observed.steps:
            for version in (step.before, step.after):
                if version is not None and step.identity[0] == "secrets":
                    versions[id(version)] = version
        for version in versions.values():
            self.observed.secrets |= secret_values(version.decode())


def _message(error: BaseException) -> str:
    return str(error) or type(error).__name__


class _Transport(BaseAdapter):
    """Carries the program's requests to the simulated server; a transport adapter for requests."""

    def __init__(self, rehearsal: Rehearsal, server: BaseAdapter) -> None:
        super().__init__()
        self._rehearsal, self._server = rehearsal, server

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """Raises Restless for a program that writes endlessly, and what the server's transport raises."""
        return self._rehearsal.carry(request, lambda: self._server.send(request, *args, **options))

    def close(self) -> None:
        """Do nothing: no connection is open."""
