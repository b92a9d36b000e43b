"""The publisher against the real API server, with an imaginary driver of its own and no kubelet plugin around it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.daemon.supervisor import Supervisor
from dra_driver.k8s.client import Client
from dra_driver.k8s.config import kubeconfig as connection
from dra_driver.k8s.objects.core import NODES
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import (
    RESOURCE_SLICES,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dra_driver.kubelet.publisher import Publisher
from dra_driver.kubelet.slice_features import Pool
from e2e.kube import Kube

NODE = "node-a"
LIMIT = 20.0

pytestmark = pytest.mark.once


class Bed:
    """Publishers of one driver, one after the other."""

    def __init__(self, kubeconfig: Path, kube: Kube) -> None:
        self.driver = f"p{uuid.uuid4().hex[:8]}.example.com"
        self.client = Client(connection(str(kubeconfig)), "e2e")
        self._kubeconfig = kubeconfig
        self._kube = kube
        self._running: list[Supervisor] = []

    def start(self, pools: dict[str, Pool]) -> Publisher:
        own = Client(connection(str(self._kubeconfig)), "publisher")
        one = Publisher(own, driver=self.driver, node=NODE)
        one.set_pools(pools)
        supervisor = Supervisor()

        def interrupt() -> None:
            one.wake()
            own.close()

        supervisor.start("watch", one.watch)
        supervisor.start("publish", one.publish, wake=interrupt)
        self._running.append(supervisor)
        return one

    def stop(self) -> None:
        while self._running:
            self._running.pop().stop(5)

    def close(self) -> None:
        self.stop()
        self.client.delete_collection(RESOURCE_SLICES, field_selector=f"spec.driver={self.driver}")
        self.client.close()

    def slices(self) -> list[ResourceSlice]:
        return self.client.list(RESOURCE_SLICES, field_selector=f"spec.driver={self.driver}").items

    def devices(self, pool: str = NODE) -> list[str]:
        """Names of `offered`."""
        return [device.name for device in self.offered(pool)]

    def offered(self, pool: str = NODE) -> list[Device]:
        """In the order of the allocator; none while the pool is incomplete."""
        found = [one for one in self.slices() if one.spec.pool.name == pool]
        complete = all(one.spec.pool == found[0].spec.pool and one.spec.pool.resource_slice_count == len(found) for one in found)
        return [device for one in found for device in one.spec.devices] if complete else []

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        self._kube.wait(what, condition, limit=LIMIT)


@pytest.fixture
def bed(kubeconfig: Path, kube: Kube) -> Iterator[Bed]:
    one = Bed(kubeconfig, kube)
    yield one
    one.close()


def plain(count: int, version: int = 0) -> Pool:
    return Pool(tuple(Device(f"gpu-{number:03}", {"version": DeviceAttribute(int_=version)}) for number in range(count)))


PARTS = Pool(
    (
        Device("gpu-0", consumes_counters=[DeviceCounterConsumption("set-0", {"memory": Counter("80Gi")})]),
        Device("mig-0", consumes_counters=[DeviceCounterConsumption("set-0", {"memory": Counter("10240Mi")}, ["group"])]),
        Device("listed", {"numa": DeviceAttribute(ints=[0, 1]), "model": DeviceAttribute(string="H200")}, {"memory": DeviceCapacity("81920Mi")}),
        Device("broken", taints=[DeviceTaint("example.com/broken", "NoSchedule")]),
    ),
    (CounterSet("set-0", {"memory": Counter("81920Mi")}),),
    skip_node_operations=("*",),
)


def test_the_simpler_form_is_found_without_a_wrong_offer_and_a_restart_writes_nothing(bed: Bed) -> None:
    one = bed.start({NODE: PARTS})
    assert one.published.wait(LIMIT), one.problem
    assert one.lacking == {"DRAListTypeAttributes", "DRADeviceCompatibilityGroups", "DRAOptionalNodeOperations"}
    assert bed.devices() == ["gpu-0", "listed", "broken"], "what excludes others by groups alone is left out"
    assert dict(one.counts.writes) == {"create": 2}
    listed = next(device for found in bed.slices() for device in found.spec.devices if device.name == "listed")
    assert listed.attributes == {"model": DeviceAttribute(string="H200")}
    before = {found.metadata.name: found.metadata.resource_version for found in bed.slices()}
    bed.stop()
    second = bed.start({NODE: PARTS})
    assert second.published.wait(LIMIT), second.problem
    assert {found.metadata.name: found.metadata.resource_version for found in bed.slices()} == before
    assert dict(second.counts.writes) == {}


def test_pools_grow_shrink_change_and_go(bed: Bed) -> None:
    one = bed.start({NODE: plain(8)})
    for pool in (plain(200), plain(200, 1), plain(130, 1), plain(65, 2), plain(1, 2)):
        one.set_pools({NODE: pool, "other": plain(2)})
        bed.wait("the pool says what is offered", lambda pool=pool: bed.offered() == list(pool.devices))  # type: ignore[misc]
    assert bed.devices("other") == ["gpu-000", "gpu-001"]
    owner = bed.client.get(NODES, NODE).metadata.uid
    assert {tuple(ref.uid for ref in found.metadata.owner_references) for found in bed.slices()} == {(owner,)}
    one.set_pools({})
    bed.wait("nothing is left", lambda: not bed.slices())
    assert one.problem == ""


def test_nothing_is_written_beside_another_drivers_slices(bed: Bed) -> None:
    spec = ResourceSliceSpec(bed.driver, ResourcePool(NODE, 1, 1), node_name=NODE, devices=[Device("gpu-minor-0")])
    metadata = ObjectMeta(generate_name=f"00000-{bed.driver}-{NODE}-")
    foreign = bed.client.create(RESOURCE_SLICES, ResourceSlice(metadata=metadata, spec=spec))
    one = bed.start({NODE: plain(2)})
    bed.wait("it is told", lambda: one.foreign == (foreign.metadata.name,))
    assert [found.metadata.name for found in bed.slices()] == [foreign.metadata.name]
    bed.client.delete(RESOURCE_SLICES, foreign.metadata.name)
    bed.wait("ours are there", lambda: bed.devices() == ["gpu-000", "gpu-001"])
    assert one.problem == ""


def test_slices_that_are_deleted_all_the_time_are_back_in_the_end(bed: Bed) -> None:
    one = bed.start({NODE: plain(200)})
    assert one.published.wait(LIMIT), one.problem
    enough = threading.Event()

    def delete() -> None:
        for _ in range(20):
            bed.client.delete_collection(RESOURCE_SLICES, field_selector=f"spec.driver={bed.driver}")
        enough.set()

    threading.Thread(target=delete).start()
    assert enough.wait(LIMIT)
    bed.wait("all devices are back", lambda: len(bed.devices()) == 200)
    assert one.problem == ""
