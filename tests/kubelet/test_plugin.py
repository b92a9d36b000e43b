"""The whole plugin on real sockets, with the kubelet stand-in."""

from __future__ import annotations

import io
import json
import logging
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.daemon import logs
from dra_driver.errors import ClaimRetryError, HostError, InstanceConflictError, JournalError, SettingsError, StoppedError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import NODES, Node
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import RESOURCE_SLICES, Device, DeviceCapacity, ResourceSlice
from dra_driver.kubelet import server, service, slices
from dra_driver.kubelet.driver import Driver
from dra_driver.kubelet.journal import ClaimKey, Journal
from dra_driver.kubelet.plugin import KubeletPlugin, PluginPaths
from dra_driver.sandbox.apiserver import ApiServer
from dra_driver.sandbox.kubelet.plugin import ClaimReference, DraPlugin
from dra_driver.sandbox.kubelet.stand_in import StandInKubelet
from tests.kubelet import damage
from tests.kubelet.pod_resources_double import PodResourcesDouble, prepared
from tests.kubelet.test_presence import until
from tests.kubelet.toy import DRIVER, NODE, ToyDriver, allocated, result


@pytest.fixture
def kubelet(client: Client, short: Path) -> Iterator[StandInKubelet]:
    one = StandInKubelet(client, NODE, short)
    one.start()
    yield one
    one.stop()


def paths(short: Path) -> PluginPaths:
    return PluginPaths(short / "plugins" / DRIVER, short / "plugins_registry", short / "cdi", short / "pod-resources.sock")


@pytest.fixture
def start(client: Client, api: ApiServer, short: Path) -> Iterator[Callable[..., KubeletPlugin]]:
    started: list[KubeletPlugin] = []
    clients: list[Client] = []

    def begin(versions: tuple[str, ...] = service.VERSIONS, devices: int = 8, pause: Callable[[float], bool] = lambda seconds: True) -> KubeletPlugin:
        clients.append(Client(api.connection, "plugin"))
        plugin = KubeletPlugin(ToyDriver(), clients[-1], node=NODE, paths=paths(short), versions=versions)
        plugin.publisher.set_devices([Device(name=f"toy-{number}") for number in range(devices)])
        plugin.start(pause)
        started.append(plugin)
        return plugin

    yield begin
    for plugin in started:
        plugin.stop()
    for one in clients:
        one.close()


def wait_slices(client: Client, condition: Callable[[list[ResourceSlice]], bool]) -> list[ResourceSlice]:
    """Until the published slices are as wanted; looks again at every change."""
    while True:
        listing = client.list(RESOURCE_SLICES)
        if condition(listing.items):
            return listing.items
        with client.watch(RESOURCE_SLICES, listing.resource_version) as events:
            next(iter(events))


def complete(count: int) -> Callable[[list[ResourceSlice]], bool]:
    return lambda slices: sum(len(one.spec.devices) for one in slices) == count


def uids(slices: list[ResourceSlice]) -> set[str]:
    return {one.metadata.uid for one in slices}


Start = Callable[..., KubeletPlugin]


def test_it_registers_publishes_and_goes_away_cleanly(start: Start, kubelet: StandInKubelet, client: Client, short: Path) -> None:
    plugin = start()
    assert kubelet.wait_registered(DRIVER)
    assert plugin.registrar.registered.wait(10)
    wait_slices(client, complete(8))
    plugin.stop()
    left = {path.name for path in paths(short).plugin.iterdir()} | {path.name for path in paths(short).registry.iterdir()}
    assert not {name for name in left if name.endswith(".sock") or name.startswith(".")}
    assert complete(8)(client.list(RESOURCE_SLICES).items), "slices stay for the next instance"


@pytest.mark.parametrize("versions", [("v1.DRAPlugin", "v1beta1.DRAPlugin"), ("v1beta1.DRAPlugin", "v1.DRAPlugin"), ("v1beta1.DRAPlugin",)])
def test_the_kubelet_uses_the_version_that_is_advertised_first(
    start: Start, kubelet: StandInKubelet, client: Client, versions: tuple[str, ...]
) -> None:
    start(versions=versions)
    assert kubelet.wait_registered(DRIVER)
    plugin = kubelet.registry.plugin(DRIVER)
    assert plugin.service == versions[0]
    claim = allocated(client, "c", result("toy-0", share_id="s1"))
    (device,) = plugin.prepare([ClaimReference(claim.namespace, claim.name, claim.uid)])[claim.uid]
    assert (device.pool, device.device, device.request_names) == (NODE, "toy-0", ("gpu",))
    assert device.cdi_device_ids == (f"k8s.toy.example.com/claim={claim.uid}-toy-0-s1",)
    assert device.share_id == ("s1" if versions[0] == "v1.DRAPlugin" else None)
    plugin.unprepare([ClaimReference(claim.namespace, claim.name, claim.uid)])


def test_only_what_is_served_is_advertised(start: Start, kubelet: StandInKubelet, short: Path) -> None:
    start(versions=("v1.DRAPlugin",))
    assert kubelet.wait_registered(DRIVER)
    beta = DraPlugin(DRIVER, str(paths(short).plugin / "dra.sock"), "v1beta1.DRAPlugin", recorder=kubelet._recorder, timeout=5)
    with pytest.raises(ClaimRetryError, match="Unimplemented"):
        beta.prepare([])
    beta.close()


def test_an_empty_call_has_an_empty_answer(start: Start, kubelet: StandInKubelet) -> None:
    start()
    assert kubelet.wait_registered(DRIVER)
    assert kubelet.registry.plugin(DRIVER).prepare([]) == {}


def test_all_lines_of_a_call_have_its_operation_id(start: Start, kubelet: StandInKubelet, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dra_driver")
    start()
    assert kubelet.wait_registered(DRIVER)
    claims = [allocated(client, f"c{number}", result(f"toy-{number}")) for number in range(2)]
    plugin = kubelet.registry.plugin(DRIVER)
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    logging.getLogger("dra_driver").addHandler(handler)
    try:
        plugin.prepare([ClaimReference(one.namespace, one.name, one.uid) for one in claims])
        plugin.unprepare([ClaimReference(one.namespace, one.name, one.uid) for one in claims])
    finally:
        logging.getLogger("dra_driver").removeHandler(handler)
    lines = [line for line in map(json.loads, stream.getvalue().splitlines()) if line["msg"] == "claim done"]
    ids = {operation: {line["operation_id"] for line in lines if line["operation"] == operation} for operation in ("prepare", "unprepare")}
    assert [len(found) for found in ids.values()] == [1, 1], "one for both claims of a call"
    assert ids["prepare"] != ids["unprepare"]


def test_slices_come_back_when_they_are_deleted(start: Start, client: Client, api: ApiServer, kubelet: StandInKubelet) -> None:
    start(devices=100)
    before = wait_slices(client, complete(100))
    client.delete_collection(RESOURCE_SLICES)
    wait_slices(client, lambda now: complete(100)(now) and not uids(now) & uids(before))
    one = client.list(RESOURCE_SLICES).items[0]
    client.delete(RESOURCE_SLICES, one.metadata.name)
    now = wait_slices(client, lambda now: complete(100)(now) and one.metadata.uid not in uids(now))
    assert len({item.spec.pool.generation for item in now}) == 1


def test_slices_come_back_after_the_kubelets_restart(start: Start, client: Client, kubelet: StandInKubelet) -> None:
    start()
    before = wait_slices(client, complete(8))
    kubelet.restart()
    wait_slices(client, lambda now: complete(8)(now) and not uids(now) & uids(before))
    assert kubelet.wait_registered(DRIVER)


def test_slices_come_back_with_a_new_node_object_and_belong_to_it(start: Start, client: Client, kubelet: StandInKubelet) -> None:
    start()
    before = wait_slices(client, complete(8))
    client.delete(NODES, NODE)
    wait_slices(client, lambda now: not now)  # garbage collection, by owner
    node = client.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
    (one,) = wait_slices(client, lambda now: complete(8)(now) and not uids(now) & uids(before))
    assert [owner.uid for owner in one.metadata.owner_references] == [node.metadata.uid]


def test_a_restart_writes_nothing(start: Start, client: Client, api: ApiServer, kubelet: StandInKubelet) -> None:
    first = start(devices=100)
    wait_slices(client, complete(100))
    first.stop()
    versions = {one.metadata.name: one.metadata.resource_version for one in client.list(RESOURCE_SLICES).items}
    assert start(devices=100).publisher.published.wait(10)
    assert {one.metadata.name: one.metadata.resource_version for one in client.list(RESOURCE_SLICES).items} == versions


def test_changed_devices_are_published(start: Start, client: Client, kubelet: StandInKubelet) -> None:
    plugin = start()
    wait_slices(client, complete(8))
    plugin.publisher.set_devices([Device(name="toy-0")])
    wait_slices(client, complete(1))
    plugin.publisher.set_devices([])
    (one,) = wait_slices(client, complete(0))
    assert one.spec.devices == []


def test_a_failing_api_server_is_tried_again_and_reported_once(
    start: Start, client: Client, api: ApiServer, kubelet: StandInKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    fault = api.fail("POST", "resourceslices", status=403, reason="Forbidden", message="no rights", times=3)
    plugin = start()
    wait_slices(client, complete(8))
    assert fault.hits == 3
    told = [record for record in caplog.records if record.message.startswith("slices cannot be published")]
    assert len(told) == 1
    assert "no rights" in vars(told[0])["error"]
    assert plugin.publisher.published.wait(10)
    assert plugin.publisher.problem == ""


def test_what_the_api_server_stores_otherwise_is_written_once(client: Client, api: ApiServer, kubelet: StandInKubelet, short: Path) -> None:
    plugin = KubeletPlugin(ToyDriver(), Client(api.connection, "plugin"), node=NODE, paths=paths(short))
    plugin.publisher.set_devices([Device(name="toy-0", capacity={"memory": DeviceCapacity("81920Mi")})])  # stored as 80Gi
    plugin.start()
    (stored,) = wait_slices(client, complete(1))
    assert stored.spec.devices[0].capacity["memory"].value == "80Gi"
    plugin.publisher.published.clear()
    plugin.publisher.wake()
    assert plugin.publisher.published.wait(10)
    (again,) = client.list(RESOURCE_SLICES).items
    assert again.metadata.resource_version == stored.metadata.resource_version
    again.spec.devices[0].capacity["memory"].value = "1Gi"
    client.replace(RESOURCE_SLICES, again)
    wait_slices(client, lambda now: now[0].spec.devices[0].capacity["memory"].value == "80Gi")
    plugin.stop()


def test_an_unexpected_failure_of_a_pass_delays_and_never_ends_it(
    start: Start, client: Client, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([ZeroDivisionError("a bug")])
    sort_out = slices.sort_out

    def sometimes(*arguments: Any) -> slices.Sorted:
        for failure in failures:
            raise failure
        return sort_out(*arguments)

    monkeypatch.setattr(slices, "sort_out", sometimes)
    start()
    wait_slices(client, complete(8))


def test_an_unprepare_finds_a_worker_while_prepares_hang(start: Start, client: Client, api: ApiServer, kubelet: StandInKubelet) -> None:
    start()
    assert kubelet.wait_registered(DRIVER)
    plugin = kubelet.registry.plugin(DRIVER)
    held = allocated(client, "held", result("toy-0"))
    plugin.prepare([ClaimReference(held.namespace, held.name, held.uid)])
    slow = api.hang("GET", "resourceclaims", times=None)
    refused: queue.Queue[str] = queue.Queue()

    def prepare(number: int) -> None:
        try:
            plugin.prepare([ClaimReference("default", f"c{number}", f"uid-{number}")])
        except ClaimRetryError as error:
            refused.put(str(error))

    threads = [threading.Thread(target=prepare, args=(number,)) for number in range(service.WORKERS)]
    for thread in threads:
        thread.start()
    assert api.wait_for(lambda: slow.hits == service.MOST_PREPARES)
    plugin.unprepare([ClaimReference(held.namespace, held.name, held.uid)])
    for _ in range(service.WORKERS - service.MOST_PREPARES):
        assert "other calls are being prepared" in refused.get(timeout=10)
    slow.release()
    for thread in threads:
        thread.join()


def test_a_journal_that_fails_is_an_error_for_every_claim_of_the_call(
    start: Start, client: Client, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    start()
    assert kubelet.wait_registered(DRIVER)
    plugin = kubelet.registry.plugin(DRIVER)

    def broken(self: Journal, what: object) -> None:
        raise JournalError("disk I/O error")

    monkeypatch.setattr(Journal, "reserve", broken)
    monkeypatch.setattr(Journal, "release", broken)
    claim = allocated(client, "c", result("toy-0"))
    for call in (plugin.prepare, plugin.unprepare):
        with pytest.raises(ClaimRetryError, match="disk I/O error"):
            call([ClaimReference(claim.namespace, claim.name, claim.uid)])


def test_a_start_repairs_cdi_specs_before_it_registers(start: Start, client: Client, kubelet: StandInKubelet, short: Path) -> None:
    first = start()
    assert kubelet.wait_registered(DRIVER)
    claim = allocated(client, "c", result("toy-0"))
    kubelet.registry.plugin(DRIVER).prepare([ClaimReference(claim.namespace, claim.name, claim.uid)])
    first.stop()
    (spec,) = paths(short).cdi.iterdir()
    spec.unlink()
    start()
    assert spec.exists()


@pytest.fixture
def lost(start: Start, kubelet: StandInKubelet, client: Client, short: Path, pod_resources: PodResourcesDouble) -> list[ClaimKey]:
    """Two claims were prepared; then the journal was damaged, and the CDI spec of the second one was lost as well."""
    plugin = start()
    assert kubelet.wait_registered(DRIVER)
    claims = [allocated(client, f"c{number}", result(f"toy-{number}")) for number in range(2)]
    kubelet.registry.plugin(DRIVER).prepare([ClaimReference(one.namespace, one.name, one.uid) for one in claims])
    plugin.stop()
    damage.header(paths(short).plugin / "state.db")
    (paths(short).cdi / f"k8s.toy.example.com-claim_{claims[1].uid}.json").unlink()
    pod_resources.add_pod("pod", [prepared("c1", "toy-1")])
    return claims


@pytest.fixture
def pod_resources(short: Path) -> Iterator[PodResourcesDouble]:
    one = PodResourcesDouble(short / "pod-resources.sock")
    yield one
    one.stop()


def test_a_journal_that_was_lost_is_rebuilt_before_the_driver_serves(
    start: Start, lost: list[ClaimKey], kubelet: StandInKubelet, client: Client
) -> None:
    start()
    assert kubelet.wait_registered(DRIVER)
    plugin = kubelet.registry.plugin(DRIVER)
    for number, claim in enumerate(lost):
        (device,) = plugin.prepare([ClaimReference(claim.namespace, claim.name, claim.uid)])[claim.uid]
        assert device.device == f"toy-{number}"
    plugin.unprepare([ClaimReference(claim.namespace, claim.name, claim.uid) for claim in lost])
    other = allocated(client, "other", result("toy-1"))
    assert plugin.prepare([ClaimReference(other.namespace, other.name, other.uid)])[other.uid]


def test_a_start_serves_and_registers_nothing_while_the_journal_cannot_be_rebuilt(
    start: Start, lost: list[ClaimKey], api: ApiServer, kubelet: StandInKubelet, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dra_driver.kubelet.rebuild.CALL_DEADLINE", 0.0)
    fault = api.fail("GET", "resourceclaims", status=403, reason="Forbidden", times=3)
    sockets: list[Path] = []

    def pause(seconds: float) -> bool:
        sockets.extend(path for directory in (paths(short).plugin, paths(short).registry) for path in directory.glob("*.sock"))
        return fault.hits == 2

    with pytest.raises(StoppedError, match="the API server does not tell of a claim"):
        start(pause=pause)
    assert fault.hits == 2
    start(pause=pause)
    assert sockets == []
    assert kubelet.wait_registered(DRIVER)


def test_a_journal_that_turns_out_damaged_asks_for_a_restart_and_that_makes_it_good(
    start: Start, kubelet: StandInKubelet, client: Client, short: Path
) -> None:
    plugin = start()
    assert kubelet.wait_registered(DRIVER)
    claim = allocated(client, "c", result("toy-0"))
    kubelet.registry.plugin(DRIVER).prepare([ClaimReference(claim.namespace, claim.name, claim.uid)])
    assert plugin.probes.health().good
    damage.row(paths(short).plugin / "state.db")
    spec = paths(short).cdi / f"k8s.toy.example.com-claim_{claim.uid}.json"
    spec.rename(spec.with_suffix(".hidden"))  # so that the journal is read
    until(lambda: not plugin.probes.health().good)
    assert "journal: journal" in plugin.probes.health().text
    spec.with_suffix(".hidden").rename(spec)
    plugin.stop()
    plugin = start()
    assert plugin.probes.health().good
    assert kubelet.wait_registered(DRIVER)
    kubelet.registry.plugin(DRIVER).unprepare([ClaimReference(claim.namespace, claim.name, claim.uid)])
    assert not spec.exists()


@pytest.mark.parametrize("how", [damage.row, damage.orphaned_row, damage.loss])
def test_an_instance_that_starts_beside_another_one_leaves_a_journal_alone_that_is_damaged_or_missing(
    client: Client, api: ApiServer, kubelet: StandInKubelet, short: Path, how: Callable[[Path], None]
) -> None:
    clients = [Client(api.connection, "plugin") for _ in range(2)]
    old, new = (
        KubeletPlugin(ToyDriver(), one, node=NODE, paths=paths(short), instance=f"{number}" * 8) for number, one in enumerate(clients, start=1)
    )
    old.start()
    journal = paths(short).plugin / "state.db"
    how(journal)
    before = journal.read_bytes() if journal.exists() else None
    with pytest.raises(JournalError, match=r"another instance .*; stop all instances"):
        new.start(lambda seconds: True)
    assert (journal.read_bytes() if journal.exists() else None) == before
    assert not list(paths(short).plugin.glob("*damaged*"))
    old.stop()
    new.start(lambda seconds: True)
    assert len(list(paths(short).plugin.glob("state.db.damaged-*Z"))) == (0 if how is damage.loss else 1)
    new.stop()
    for one in clients:
        one.close()


def test_the_registrar_appears_last_and_goes_first(start: Start, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    for name in ("start", "unlink"):
        real = getattr(server.SocketServer, name)

        def told(self: server.SocketServer, real: Callable[[server.SocketServer], None] = real, name: str = name) -> None:
            order.append(f"{name} {self.path.name}")
            real(self)

        monkeypatch.setattr(server.SocketServer, name, told)
    start().stop()
    registrar = f"{DRIVER}-reg.sock"
    assert list(dict.fromkeys(order)) == ["start dra.sock", f"start {registrar}", f"unlink {registrar}", "unlink dra.sock"]


def test_a_stop_is_quick_and_quiet_while_the_api_server_is_away(
    start: Start, api: ApiServer, kubelet: StandInKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = start()
    assert plugin.publisher.published.wait(10)
    api.fail("GET", "resourceslices", status=503, times=None)
    api.cut_watches()
    plugin.publisher.wake()
    told = ("list or watch failed", "slices cannot be published")
    assert api.wait_for(lambda: all(any(message.startswith(text) for message in caplog.messages) for text in told))
    caplog.clear()
    plugin.stop()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_second_instance_is_refused_and_the_first_goes_on(start: Start, kubelet: StandInKubelet) -> None:
    start()
    with pytest.raises(InstanceConflictError, match="used by another live instance"):
        start()
    assert kubelet.wait_registered(DRIVER)
    assert kubelet.registry.plugin(DRIVER).prepare([]) == {}


def test_leftovers_of_a_killed_instance_are_replaced(start: Start, kubelet: StandInKubelet, short: Path) -> None:
    for path in (paths(short).plugin / "dra.sock", paths(short).registry / f"{DRIVER}-reg.sock"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as leftover:
            leftover.bind(str(path))
    start()
    assert kubelet.wait_registered(DRIVER)


def test_twenty_restarts_in_a_row_register_every_time(start: Start, kubelet: StandInKubelet) -> None:
    for _ in range(20):
        plugin = start()
        assert plugin.registrar.registered.wait(10)
        assert kubelet.wait_registered(DRIVER)
        plugin.stop()


@pytest.mark.parametrize(
    ("driver", "node", "told"),
    [
        (None, NODE, "driver name None (Unnamed.name): must be non-empty"),
        ("toy/example", NODE, "driver name 'toy/example' (Unnamed.name): a lowercase RFC 1123 subdomain"),
        ("a" * 64, NODE, "may not be more than 63 bytes"),
        (DRIVER, "", "node '': must be the name of this node's Node object"),
        (DRIVER, "Node_A", "node 'Node_A'"),
    ],
)
def test_a_name_that_is_none_is_told_before_anything_is_done(client: Client, short: Path, driver: Any, node: str, told: str) -> None:
    unnamed = type("Unnamed", (Driver,), {"name": driver, "plan": ToyDriver.plan} if driver else {"plan": ToyDriver.plan})
    with pytest.raises(SettingsError) as raised:
        KubeletPlugin(unnamed(), client, node=node, paths=paths(short))
    assert told in str(raised.value)


def test_a_start_that_fails_leaves_nothing_behind(client: Client, api: ApiServer, short: Path) -> None:
    plugin = KubeletPlugin(ToyDriver(), client, node=NODE, paths=paths(short))  # no registry directory: the kubelet is elsewhere
    with pytest.raises(HostError, match="plugins_registry: need a directory that is writable for the driver, found nothing"):
        plugin.start()
    assert not server.is_served(paths(short).plugin / "dra.sock")
    paths(short).registry.mkdir()
    again = KubeletPlugin(ToyDriver(), Client(api.connection, "again"), node=NODE, paths=paths(short))
    again.start()
    again.stop()


def test_a_socket_path_that_is_too_long_is_refused_at_once(client: Client, short: Path) -> None:
    with pytest.raises(HostError, match="107 bytes at most"):
        KubeletPlugin(ToyDriver(), client, node=NODE, paths=PluginPaths(short / ("x" * 100), short, short))


def test_the_kubelets_refusal_is_kept_and_shown(client: Client, short: Path, kubelet: StandInKubelet) -> None:
    class Nameless(ToyDriver):
        name = "second.example.com"

    plugin = KubeletPlugin(Nameless(), client, node=NODE, paths=PluginPaths(short / "plugins" / "second", kubelet.registry_directory, short / "cdi"))
    plugin.registrar._info.supported_versions[:] = ["v9.DRAPlugin"]
    plugin.start()
    assert kubelet.registry.wait_for(lambda: bool(plugin.registrar.failure), 10)
    assert "none of services supported by the plugin" in plugin.registrar.failure
    plugin.stop()
