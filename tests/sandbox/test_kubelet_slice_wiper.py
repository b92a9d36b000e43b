"""The kubelet stand-in wipes ResourceSlices when it starts and when a driver is long gone."""

from __future__ import annotations

from dra_driver.errors import ApiNotFoundError, ApiUnavailableError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import NODES, Node
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import RESOURCE_SLICES, ResourcePool, ResourceSlice, ResourceSliceSpec
from dra_driver.sandbox.apiserver import ApiServer
from dra_driver.sandbox.kubelet.stand_in import StandInKubelet
from dra_driver.sandbox.kubelet.timing import Timing
from tests.sandbox.fake_dra_plugin import FakePlugin
from tests.sandbox.kubelet_bed import QUICK, running_bed, short_directory
from tests.sandbox.memory_api import DRIVER, NODE

ALL = f"spec.nodeName={NODE}"
OURS = f"spec.nodeName={NODE},spec.driver={DRIVER}"


def test_the_wipe_takes_the_slices_of_this_node_only() -> None:
    def make_slice(name: str, node: str) -> ResourceSlice:
        spec = ResourceSliceSpec(driver=DRIVER, pool=ResourcePool(node, resource_slice_count=1, generation=1), node_name=node)
        return ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)

    with ApiServer() as api, short_directory() as root:
        client = Client(api.connection, "kubelet")
        client.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
        for node in (NODE, "node-b"):
            client.create(RESOURCE_SLICES, make_slice(f"slice-of-{node}", node))
        before = client.list(RESOURCE_SLICES).resource_version
        with StandInKubelet(client, NODE, root, timing=QUICK), client.watch(RESOURCE_SLICES, before) as watch:
            assert next(iter(watch)).type == "DELETED"
        assert [found.metadata.name for found in client.list(RESOURCE_SLICES).items] == ["slice-of-node-b"]
        client.close()


def test_all_slices_of_the_node_are_wiped_at_every_start() -> None:
    with running_bed() as bed:
        assert bed.api.wait_wiped(1) == [ALL]
        bed.kubelet.restart()
        assert bed.api.wait_wiped(2) == [ALL, ALL]


def test_a_wipe_is_repeated_until_it_succeeds() -> None:
    with running_bed() as bed:
        bed.api.wait_wiped(1)
        bed.api.wipe_errors += [ApiUnavailableError("down"), ApiUnavailableError("down")]
        bed.kubelet.restart()
        assert bed.api.wait_wiped(4) == [ALL] * 4
        bed.api.wipe_errors.append(ApiNotFoundError("nothing there"))
        bed.kubelet.restart()
        bed.kubelet.stop()
        assert bed.api.wiped == [ALL] * 5


def test_nothing_is_wiped_before_the_node_exists() -> None:
    with running_bed() as bed:
        bed.api.wait_wiped(1)
        node = Node(metadata=ObjectMeta(name=NODE))
        bed.api.remove(NODES, node)
        bed.kubelet.restart()
        bed.kubelet.stop()
        assert len(bed.api.wiped) == 1
        bed.kubelet.start()
        bed.api.put(NODES, node)
        bed.api.wait_wiped(2)


def test_slices_of_a_driver_are_wiped_once_after_its_last_instance_is_gone_for_the_delay() -> None:
    with running_bed() as bed:
        bed.api.wait_wiped(1)
        with FakePlugin(bed.root, instance="-1"):
            assert bed.kubelet.wait_registered(DRIVER)
            with FakePlugin(bed.root, instance="-2"):
                assert bed.kubelet.registry.wait_for(lambda: len(bed.kubelet.registry.plugins()) == 2, 10)
        assert bed.api.wait_wiped(2) == [ALL, OURS]


def test_a_lost_connection_counts_like_a_lost_registration() -> None:
    with running_bed() as bed:
        bed.api.wait_wiped(1)
        with FakePlugin(bed.root) as plugin:
            assert bed.kubelet.wait_registered(DRIVER)
            plugin.stop_service()
            assert bed.api.wait_wiped(2) == [ALL, OURS]
            assert len(bed.kubelet.registry.plugins()) == 1


def test_a_driver_that_comes_back_in_time_keeps_its_slices() -> None:
    with running_bed(Timing(scan=0.01)) as bed:
        assert QUICK.wiping_delay < Timing().wiping_delay == 30.0
        bed.api.wait_wiped(1)
        for _ in range(2):
            with FakePlugin(bed.root):
                assert bed.kubelet.wait_registered(DRIVER)
            assert bed.kubelet.registry.wait_for(lambda: not bed.kubelet.registry.plugins(), 10)
        assert bed.api.wiped == [ALL]
