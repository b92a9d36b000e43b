"""The kubelet stand-in prepares and unprepares the claims of pods as a kubelet does, with its texts."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dra_driver.errors import ClaimRetryError, HostError
from dra_driver.k8s.objects.core import Container, ContainerResourceClaim, Pod, PodResourceClaim, PodResourceClaimStatus, ResourceRequirements
from dra_driver.k8s.objects.resource import RESOURCE_CLAIMS, ResourceClaim
from dra_driver.kubelet.pod_resources import claims_of_pods
from dra_driver.sandbox.kubelet.timing import Timing
from tests.sandbox.fake_dra_plugin import FakePlugin
from tests.sandbox.kubelet_bed import QUICK, Bed, running_bed
from tests.sandbox.memory_api import DRIVER, make_claim, make_pod, reserve

PREPARE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
UNPREPARE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources"


@pytest.fixture
def bed() -> Iterator[Bed]:
    with running_bed() as running:
        yield running


@pytest.fixture
def plugin(bed: Bed) -> Iterator[FakePlugin]:
    with FakePlugin(bed.root, DRIVER) as running:
        assert bed.kubelet.wait_registered(DRIVER)
        bed.kubelet.calls.clear()
        yield running


def reference(claim: ResourceClaim) -> dict[str, str]:
    return {"namespace": "default", "uid": claim.metadata.uid, "name": claim.metadata.name}


def fail_prepare(bed: Bed, pod: Pod) -> str:
    with pytest.raises(ClaimRetryError) as caught:
        bed.kubelet.prepare_pod(pod)
    prefix, _, text = str(caught.value).partition("prepare dynamic resources: ")
    assert prefix == ""
    return text


def fail_unprepare(bed: Bed, pod: Pod) -> str:
    with pytest.raises(ClaimRetryError) as caught:
        bed.kubelet.unprepare_pod(pod)
    prefix, _, text = str(caught.value).partition("unprepare dynamic resources: ")
    assert prefix == ""
    return text


def cdi(claim: ResourceClaim) -> str:
    return f"example.com/gpu={claim.metadata.uid}"


def test_all_claims_of_a_pod_go_into_one_call_and_come_back_as_cdi_names(bed: Bed, plugin: FakePlugin) -> None:
    claims = [make_claim(bed.api, "one"), make_claim(bed.api, "two")]
    pod = make_pod("pod", *claims)
    bed.kubelet.prepare_pod(pod)
    assert bed.kubelet.cdi_device_ids(pod, pod.spec.containers[0]) == [cdi(claim) for claim in claims]
    bed.kubelet.prepare_pod(pod)
    bed.kubelet.unprepare_pod(pod)
    bed.kubelet.unprepare_pod(pod)
    references = {"claims": [reference(claim) for claim in claims]}
    assert [(call.method, call.request, call.timeout) for call in bed.kubelet.calls] == [(PREPARE, references, 45.0), (UNPREPARE, references, 45.0)]
    assert bed.kubelet.prepared_devices("default", "one") == {}


def test_the_claims_of_running_pods_are_told_to_who_asks(bed: Bed, plugin: FakePlugin) -> None:
    claim, other = make_claim(bed.api, "one"), make_claim(bed.api, "two")

    def answer(messages: Any, method: str, request: Any) -> Any:
        response = plugin.succeed(messages, method, request)
        if method == "NodePrepareResources" and claim.metadata.uid in response.claims:
            response.claims[claim.metadata.uid].devices.append(plugin.device(messages, "second", share_id="s1"))
        return response

    plugin.answer = answer
    pod = make_pod("pod", claim, other)
    pod.spec.containers.append(Container("idle"))
    bed.kubelet.prepare_pod(pod)
    bed.kubelet.restart()
    assert bed.kubelet.wait_registered(DRIVER)
    told = claims_of_pods(bed.kubelet.pod_resources_socket, DRIVER)
    assert [(one.namespace, one.name, [(result.pool, result.device, result.share_id) for result in one.results]) for one in told] == [
        ("default", "one", [("node-a", f"{DRIVER}-dev", None), ("node-a", f"{DRIVER}-dev", "s1")]),
        ("default", "two", [("node-a", f"{DRIVER}-dev", None)]),
    ]
    assert told[0].device_ids == {cdi(claim), "example.com/gpu=second"}
    assert claims_of_pods(bed.kubelet.pod_resources_socket, "other.example.com") == []
    bed.kubelet.unprepare_pod(pod)
    assert claims_of_pods(bed.kubelet.pod_resources_socket, DRIVER) == []


def test_each_driver_is_called_with_its_claims_only(bed: Bed, plugin: FakePlugin) -> None:
    ours, theirs = make_claim(bed.api, "ours", DRIVER), make_claim(bed.api, "theirs", DRIVER, "nic.example.com")
    with FakePlugin(bed.root, "nic.example.com"):
        assert bed.kubelet.wait_registered("nic.example.com")
        bed.kubelet.calls.clear()
        bed.kubelet.prepare_pod(make_pod("pod", ours, theirs))
    requests = [call.request for call in bed.kubelet.calls]
    assert requests == [{"claims": [reference(ours), reference(theirs)]}, {"claims": [reference(theirs)]}]


def test_v1beta1_is_spoken_to_a_plugin_that_wants_it(bed: Bed) -> None:
    claim = make_claim(bed.api, "one")
    pod = make_pod("pod", claim)
    with FakePlugin(bed.root, versions=("v1beta1.DRAPlugin",)):
        assert bed.kubelet.wait_registered(DRIVER)
        bed.kubelet.prepare_pod(pod)
        assert bed.kubelet.cdi_device_ids(pod, pod.spec.containers[0]) == [cdi(claim)]
        bed.kubelet.unprepare_pod(pod)
    assert [call.method for call in bed.kubelet.calls[2:]] == [method.replace(".v1.", ".v1beta1.") for method in (PREPARE, UNPREPARE)]


def test_a_container_gets_the_devices_of_its_requests(bed: Bed, plugin: FakePlugin) -> None:
    claim = make_claim(bed.api, "one")
    pod = make_pod("pod", claim)

    def answer(messages: Any, method: str, request: Any) -> Any:
        response = plugin.succeed(messages, method, request)
        devices = response.claims[claim.metadata.uid].devices
        del devices[:]
        for request_names in (["big"], ["small", "big"], []):
            devices.append(plugin.device(messages, "_".join(request_names) or "all", request_names=request_names, share_id=f"share-{len(devices)}"))
        return response

    plugin.answer = answer
    bed.kubelet.prepare_pod(pod)

    def ids(*requests: str) -> list[str]:
        uses = [ContainerResourceClaim("use-one", request) for request in requests]
        found = bed.kubelet.cdi_device_ids(pod, Container("c", resources=ResourceRequirements(claims=uses)))
        return [cdi_id.removeprefix("example.com/gpu=") for cdi_id in found]

    assert ids() == []
    assert ids("") == ["big", "small_big", "all"]
    assert ids("big") == ["big", "small_big", "all"]
    assert ids("small") == ["small_big", "all"]
    assert ids("other") == ["all"]
    assert ids("small", "other") == ["small_big", "all", "all"]
    assert [device.share_id for device in bed.kubelet.prepared_devices("default", "one")[DRIVER]] == ["share-0", "share-1", "share-2"]


def test_a_generated_claim_is_found_by_the_pods_status_and_must_belong_to_the_pod(bed: Bed, plugin: FakePlugin) -> None:
    pod = make_pod("pod")
    pod.spec.resource_claims = [PodResourceClaim("gpu", resource_claim_template_name="template")]
    assert fail_prepare(bed, pod) == 'pod "default/pod": ResourceClaim not created yet'
    pod.status.resource_claim_statuses = [PodResourceClaimStatus("gpu", None)]
    bed.kubelet.prepare_pod(pod)
    foreign = make_claim(bed.api, "pod-gpu-x", owner=make_pod("other"))
    reserve(foreign, pod)
    pod.status.resource_claim_statuses = [PodResourceClaimStatus("gpu", "pod-gpu-x")]
    assert fail_prepare(bed, pod) == "ResourceClaim default/pod-gpu-x was not created for Pod default/pod (Pod is not owner)"
    assert bed.kubelet.calls == []
    own = make_claim(bed.api, "pod-gpu-y", owner=pod)
    reserve(own, pod)
    pod.status.resource_claim_statuses = [PodResourceClaimStatus("gpu", "pod-gpu-y")]
    bed.kubelet.prepare_pod(pod)
    assert bed.kubelet.calls[0].request == {"claims": [reference(own)]}


def test_a_pod_that_is_not_allowed_to_use_the_claim(bed: Bed, plugin: FakePlugin) -> None:
    claim = make_claim(bed.api, "one")
    pod = make_pod("pod", claim)
    claim.status.reserved_for.clear()
    expected = f"pod pod ({pod.metadata.uid}) is not allowed to use ResourceClaim one ({claim.metadata.uid})"
    assert fail_prepare(bed, pod) == expected
    assert bed.kubelet.calls == []


def test_a_claim_that_is_gone_or_not_allocated(bed: Bed, plugin: FakePlugin) -> None:
    claim = make_claim(bed.api, "one")
    pod = make_pod("pod", claim)
    claim.status.allocation = None
    assert fail_prepare(bed, pod) == "ResourceClaim one: not allocated"
    bed.api.remove(RESOURCE_CLAIMS, claim)
    assert fail_prepare(bed, pod) == 'fetch ResourceClaim one: resourceclaims "one" not found'
    pod.spec.resource_claims[0] = PodResourceClaim("odd")
    assert fail_prepare(bed, pod) == 'pod "default/pod", spec.resourceClaim "odd": none of the supported fields are set'


def test_a_driver_that_is_not_registered_fails_even_a_prepared_pod(bed: Bed) -> None:
    pod = make_pod("pod", make_claim(bed.api, "one"))
    assert fail_prepare(bed, pod) == "DRA driver gpu.example.com is not registered"
    with FakePlugin(bed.root):
        assert bed.kubelet.wait_registered(DRIVER)
        bed.kubelet.prepare_pod(pod)
    assert bed.kubelet.registry.wait_for(lambda: not bed.kubelet.registry.plugins(), 10)
    assert fail_prepare(bed, pod) == "DRA driver gpu.example.com is not registered"
    assert fail_unprepare(bed, pod) == "DRA driver gpu.example.com is not registered"


Answer = Callable[[Any, str, Any], Any]


def with_error(plugin: FakePlugin) -> Answer:
    def answer(messages: Any, method: str, request: Any) -> Any:
        response = plugin.succeed(messages, method, request)
        response.claims[request.claims[0].uid].error = "no such GPU"
        return response

    return answer


def with_unknown_claim(plugin: FakePlugin) -> Answer:
    def answer(messages: Any, method: str, request: Any) -> Any:
        response = getattr(messages, f"{method}Response")()
        response.claims["stranger"].SetInParent()
        return response

    return answer


def with_nothing(plugin: FakePlugin) -> Answer:
    return lambda messages, method, _: getattr(messages, f"{method}Response")()


def with_exception(plugin: FakePlugin) -> Answer:
    def answer(messages: Any, method: str, request: Any) -> Any:
        raise RuntimeError("out of order")

    return answer


FAULTS = [
    (with_error, "{method} failed for ResourceClaim one: no such GPU"),
    (with_unknown_claim, "{method} returned result for unknown claim UID stranger"),
    (with_nothing, "{method} skipped 1 ResourceClaims"),
    (with_exception, "{method}: rpc error: code = Internal desc = out of order"),
]


@pytest.mark.parametrize(("fault", "text"), FAULTS)
def test_a_failed_prepare_is_told_and_repeated(bed: Bed, plugin: FakePlugin, fault: Callable[[FakePlugin], Answer], text: str) -> None:
    pod = make_pod("pod", make_claim(bed.api, "one"))
    plugin.answer = fault(plugin)
    assert fail_prepare(bed, pod) == text.format(method="NodePrepareResources")
    plugin.answer = plugin.succeed
    bed.kubelet.prepare_pod(pod)
    bed.kubelet.prepare_pod(pod)
    assert bed.methods() == ["NodePrepareResources"] * 2


@pytest.mark.parametrize(("fault", "text"), FAULTS)
def test_a_failed_unprepare_is_told_and_repeated(bed: Bed, plugin: FakePlugin, fault: Callable[[FakePlugin], Answer], text: str) -> None:
    pod = make_pod("pod", make_claim(bed.api, "one"))
    bed.kubelet.prepare_pod(pod)
    plugin.answer = fault(plugin)
    assert fail_unprepare(bed, pod) == text.format(method="NodeUnprepareResources")
    assert fail_prepare(bed, pod) == "ResourceClaim one is being unprepared"
    plugin.answer = plugin.succeed
    bed.kubelet.unprepare_pod(pod)
    assert bed.methods() == ["NodePrepareResources", "NodeUnprepareResources", "NodeUnprepareResources"]


def test_a_call_that_takes_too_long_ends_with_the_deadline() -> None:
    with running_bed(Timing(scan=0.01, call=0.2)) as bed, FakePlugin(bed.root) as plugin:
        assert bed.kubelet.wait_registered(DRIVER)
        plugin.hold_info.clear()

        def wait(messages: Any, method: str, request: Any) -> Any:
            plugin.hold_info.wait()
            return plugin.succeed(messages, method, request)

        plugin.answer = wait
        text = fail_prepare(bed, make_pod("pod", make_claim(bed.api, "one")))
        assert text.startswith("NodePrepareResources: rpc error: code = DeadlineExceeded desc = ")
        assert bed.kubelet.calls[-1].response is None
        assert bed.kubelet.calls[-1].error.startswith("DEADLINE_EXCEEDED: ")


def test_a_failed_pod_can_be_given_up(bed: Bed, plugin: FakePlugin) -> None:
    pod = make_pod("pod", make_claim(bed.api, "one"))
    plugin.answer = with_error(plugin)
    fail_prepare(bed, pod)
    plugin.answer = plugin.succeed
    bed.kubelet.unprepare_pod(pod)
    assert bed.methods() == ["NodePrepareResources", "NodeUnprepareResources"]


def test_until_all_drivers_succeed_each_retry_calls_all_of_them(bed: Bed, plugin: FakePlugin) -> None:
    with FakePlugin(bed.root, "nic.example.com") as nic:
        assert bed.kubelet.wait_registered("nic.example.com")
        bed.kubelet.calls.clear()
        claim = make_claim(bed.api, "one", DRIVER, "nic.example.com")
        pod = make_pod("pod", claim)
        nic.answer = with_error(nic)
        for _ in range(2):
            fail_prepare(bed, pod)
        nic.answer = nic.succeed
        bed.kubelet.prepare_pod(pod)
        assert bed.methods() == ["NodePrepareResources"] * 6
        assert bed.kubelet.cdi_device_ids(pod, pod.spec.containers[0]) == [cdi(claim)] * 2


def test_a_shared_claim_is_prepared_once_and_unprepared_with_its_last_pod(bed: Bed, plugin: FakePlugin) -> None:
    claim = make_claim(bed.api, "one")
    first, second = make_pod("first", claim), make_pod("second", claim)
    bed.kubelet.prepare_pod(first)
    bed.kubelet.prepare_pod(second)
    bed.kubelet.unprepare_pod(first)
    assert bed.methods() == ["NodePrepareResources"]
    assert bed.kubelet.cdi_device_ids(second, second.spec.containers[0]) == [cdi(claim)]
    bed.kubelet.unprepare_pod(second)
    assert bed.methods() == ["NodePrepareResources", "NodeUnprepareResources"]


def test_a_claim_replaced_under_its_name_is_refused_until_the_old_one_is_unprepared(bed: Bed, plugin: FakePlugin) -> None:
    old = make_claim(bed.api, "one")
    old_pod = make_pod("old", old)
    bed.kubelet.prepare_pod(old_pod)
    new_pod = make_pod("new", make_claim(bed.api, "one"))
    expected = f"old ResourceClaim with same name one and different UID {old.metadata.uid} still exists (previous pod force-deleted?!)"
    assert fail_prepare(bed, new_pod) == expected
    bed.kubelet.unprepare_inactive({new_pod.metadata.uid})
    bed.kubelet.prepare_pod(new_pod)


def test_unprepare_needs_no_claim_in_the_api(bed: Bed, plugin: FakePlugin) -> None:
    claim = make_claim(bed.api, "one")
    pod = make_pod("pod", claim)
    bed.kubelet.prepare_pod(pod)
    bed.api.remove(RESOURCE_CLAIMS, claim)
    bed.kubelet.unprepare_pod(pod)
    assert bed.kubelet.calls[-1].request == {"claims": [reference(claim)]}


def test_after_a_restart_pods_keep_their_devices_and_a_new_pod_asks_again(bed: Bed, plugin: FakePlugin) -> None:
    claim = make_claim(bed.api, "one")
    first, second = make_pod("first", claim), make_pod("second", claim)
    bed.kubelet.prepare_pod(first)
    before = bed.kubelet.prepared_devices("default", "one")
    bed.kubelet.restart()
    assert bed.kubelet.wait_registered(DRIVER)
    assert bed.kubelet.prepared_devices("default", "one") == before
    assert bed.kubelet.cdi_device_ids(first, first.spec.containers[0]) == [cdi(claim)]
    bed.kubelet.calls.clear()
    bed.kubelet.prepare_pod(second)
    assert bed.kubelet.cdi_device_ids(second, second.spec.containers[0]) == [cdi(claim)]
    bed.kubelet.unprepare_pod(first)
    bed.kubelet.unprepare_pod(second)
    assert bed.methods() == ["NodePrepareResources", "NodeUnprepareResources"]


def test_the_checkpoint_is_of_the_kubelets_form(bed: Bed, plugin: FakePlugin) -> None:
    claim = make_claim(bed.api, "one")
    pod = make_pod("pod", claim)
    bed.kubelet.prepare_pod(pod)
    checkpoint = json.loads((bed.root / "dra_manager_state").read_text())
    assert json.loads(checkpoint["Data"]) == {
        "kind": "DRACheckpoint",
        "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
        "ClaimInfoStateList": [
            {
                "ClaimUID": claim.metadata.uid,
                "ClaimName": "one",
                "Namespace": "default",
                "PodUIDs": {pod.metadata.uid: {}},
                "DriverState": {
                    DRIVER: {
                        "Devices": [
                            {
                                "PoolName": "node-a",
                                "DeviceName": "gpu.example.com-dev",
                                "ShareID": None,
                                "RequestNames": [],
                                "CDIDeviceIDs": [cdi(claim)],
                            }
                        ]
                    }
                },
            }
        ],
    }


@pytest.mark.parametrize("content", ["", "{}", '{"Data": "{}", "Checksum": 1}', '{"Data": "x", "Checksum": 2363233923}'])
def test_a_damaged_checkpoint_stops_the_kubelet(bed: Bed, content: str) -> None:
    bed.kubelet.stop()
    (bed.root / "dra_manager_state").write_text(content)
    with pytest.raises(HostError, match=r"dra_manager_state: .*remove the file"):
        bed.kubelet.start()


def test_a_pod_that_the_kubelet_does_not_know_has_no_devices(bed: Bed, plugin: FakePlugin) -> None:
    pod = make_pod(str(uuid.uuid4()), make_claim(bed.api, "one"))
    with pytest.raises(ClaimRetryError, match="unable to get claim info for ResourceClaim one in namespace default"):
        bed.kubelet.cdi_device_ids(pod, pod.spec.containers[0])
    assert QUICK.call == 45.0
