"""How long a pool of several slices is incomplete: the burst of writes of a change, and of what follows a wipe, as a watcher sees them.

    make cluster-up; python -m bench.slices

200 devices with 13 attributes and 2 capacities each, in 4 slices, on an idle cluster; the publisher runs in this process, and so does the watcher.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence

from dra_driver.daemon.supervisor import Supervisor
from dra_driver.k8s.client import Client
from dra_driver.k8s.config import kubeconfig
from dra_driver.k8s.objects.resource import RESOURCE_SLICES, Device, DeviceAttribute, DeviceCapacity, ResourceSlice
from dra_driver.kubelet.publisher import Publisher
from e2e.cluster import Cluster

DRIVER = "window.example.com"
DEVICES, SLICES, ROUNDS = 200, 4, 30
SELECTOR = f"spec.driver={DRIVER}"


def devices(version: int) -> list[Device]:
    def device(number: int) -> Device:
        texts = {f"attribute{index}": DeviceAttribute(string=f"value {index} of device {number}") for index in range(12)}
        capacity = {"memory": DeviceCapacity("80Gi"), "cores": DeviceCapacity("132")}
        return Device(f"gpu-{number:03}", texts | {"version": DeviceAttribute(int_=version)}, capacity)

    return [device(number) for number in range(DEVICES)]


class Watcher:
    """What is there, and since when the newest pool has been complete or not."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._changed = threading.Condition()
        self._found: dict[str, ResourceSlice] = {}
        self.broken = self.whole = 0.0

    def run(self, stop: threading.Event) -> None:
        with self._client.watch(RESOURCE_SLICES, self._client.list(RESOURCE_SLICES).resource_version, field_selector=SELECTOR) as events:
            for event in events:
                with self._changed:
                    was_whole = self._is_whole()
                    if event.object is not None:
                        self._found[event.metadata.name] = event.object
                    if event.type == "DELETED":
                        self._found.pop(event.metadata.name, None)
                    now = time.perf_counter()
                    if was_whole and not self._is_whole():
                        self.broken = now
                    elif self._is_whole():
                        self.whole = now
                    self._changed.notify_all()
                if stop.is_set():
                    return

    def wait(self, condition: Callable[[list[ResourceSlice]], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._is_whole() and condition(list(self._found.values())), 30)

    def _is_whole(self) -> bool:
        newest = max((one.spec.pool.generation for one in self._found.values()), default=0)
        return sum(one.spec.pool.generation == newest for one in self._found.values()) == SLICES


def shown(seconds: Sequence[float]) -> str:
    ordered = sorted(1000 * one for one in seconds)
    return (
        f"median {statistics.median(ordered):.1f} ms, 90 % {ordered[int(len(ordered) * 0.9)]:.1f} ms, longest {ordered[-1]:.1f} ms of {len(ordered)}"
    )


def main() -> None:
    cluster = Cluster.load()
    connection = kubeconfig(str(cluster.kubeconfig))
    client, own, seeing = Client(connection, "bench"), Client(connection, "publisher"), Client(connection, "watcher")
    publisher = Publisher(own, driver=DRIVER, node=cluster.nodes[0].name)
    watcher = Watcher(seeing)
    supervisor = Supervisor()
    supervisor.start("see", watcher.run, wake=seeing.close)
    supervisor.start("watch", publisher.watch)
    supervisor.start("publish", publisher.publish, wake=own.close)
    changes, wipes, absences = [], [], []
    try:
        publisher.set_devices(devices(0))
        watcher.wait(lambda _: True)
        for number in range(1, ROUNDS + 1):
            publisher.set_devices(devices(number))
            watcher.wait(lambda found, number=number: all(one.spec.devices[0].attributes["version"].int_ == number for one in found))  # type: ignore[misc]
            changes.append(watcher.whole - watcher.broken)
        for _ in range(ROUNDS):
            before = {one.metadata.uid for one in client.list(RESOURCE_SLICES, field_selector=SELECTOR).items}
            publisher.set_devices(devices(ROUNDS))
            begun = time.perf_counter()
            client.delete_collection(RESOURCE_SLICES, field_selector=SELECTOR)
            gone = time.perf_counter()
            watcher.wait(lambda found, before=before: not before & {one.metadata.uid for one in found})  # type: ignore[misc]
            absences.append(watcher.whole - begun)
            wipes.append(watcher.whole - gone)
    finally:
        publisher.wake()
        supervisor.stop(5)
        client.delete_collection(RESOURCE_SLICES, field_selector=SELECTOR)
    print(f"{DEVICES} devices in {SLICES} slices, all changed: incomplete for {shown(changes)}")
    print(f"wiped: complete again {shown(wipes)} after the wipe's end; {shown(absences)} after its begin")


if __name__ == "__main__":
    main()
