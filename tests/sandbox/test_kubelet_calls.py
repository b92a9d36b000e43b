"""Recordings of two kubelets can be compared."""

from __future__ import annotations

from typing import Any

from dra_driver.sandbox.kubelet.calls import comparable
from tests.sandbox.fake_dra_plugin import FakePlugin
from tests.sandbox.kubelet_bed import Bed, running_bed
from tests.sandbox.memory_api import DRIVER, make_claim, make_pod

REGISTRATION = "/pluginregistration.Registration"
DRA = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"


def lines_of_a_run(bed: Bed, claim_name: str) -> list[dict[str, Any]]:
    claim = make_claim(bed.api, claim_name)
    pod = make_pod("pod", claim, make_claim(bed.api, f"{claim_name}-2"))
    with FakePlugin(bed.root):
        assert bed.kubelet.wait_registered(DRIVER)
        bed.kubelet.prepare_pod(pod)
        bed.kubelet.unprepare_pod(pod)
    return [call.as_line() for call in bed.kubelet.calls]


def test_two_runs_are_equal_but_for_names_uids_and_directories() -> None:
    with running_bed() as one, running_bed() as other:
        first, second = lines_of_a_run(one, "x7k2p"), lines_of_a_run(other, "q9w4r")
    assert first != second
    assert comparable(first) == comparable(second)
    assert comparable(first)[2] == {
        "method": f"{DRA}/NodePrepareResources",
        "request": {
            "claims": [
                {"namespace": "<namespace 1>", "uid": "<uid 1>", "name": "<name 1>"},
                {"namespace": "<namespace 1>", "uid": "<uid 2>", "name": "<name 2>"},
            ]
        },
        "timeout": 45,
    }


def test_another_order_deadline_or_text_is_a_difference() -> None:
    def line(method: str, request: dict[str, Any], timeout: int) -> dict[str, Any]:
        return {"method": method, "request": request, "timeout": timeout}

    def claims(*uids: str) -> dict[str, Any]:
        return {"claims": [{"uid": uid} for uid in uids]}

    prepare, unprepare = f"{DRA}/NodePrepareResources", f"{DRA}/NodeUnprepareResources"
    base = comparable([line(prepare, claims("a", "b"), 45), line(unprepare, claims("b"), 45)])
    assert base == comparable([line(prepare, claims("x", "y"), 45), line(unprepare, claims("y"), 45)])
    assert base != comparable([line(prepare, claims("x", "y"), 45), line(unprepare, claims("x"), 45)])
    assert base != comparable([line(unprepare, claims("y"), 45), line(prepare, claims("x", "y"), 45)])
    assert base != comparable([line(prepare, claims("x", "y"), 5), line(unprepare, claims("y"), 45)])


def test_other_services_are_left_out_and_socket_directories_replaced() -> None:
    notify = {"method": f"{REGISTRATION}/NotifyRegistrationStatus", "request": {"error": "at socket /tmp/dra-1/reg/a-reg.sock, err: x"}}
    health = {"method": "/v1.DRAResourceHealth/NodeWatchResources", "request": {}}
    (only,) = comparable([notify, health])
    assert only["request"] == {"error": "at socket <directory>/a-reg.sock, err: x"}
