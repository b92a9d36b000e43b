"""Which configurations of an allocation apply to a request, and in which order."""

from __future__ import annotations

import pytest

from dra_driver.k8s.objects.resource import DeviceAllocationConfiguration, OpaqueDeviceConfiguration
from dra_driver.kubelet import requests

DRIVER = "gpu.example.com"


def entry(name: str, *wanted: str, source: str = "FromClaim", driver: str | None = DRIVER) -> DeviceAllocationConfiguration:
    opaque = None if driver is None else OpaqueDeviceConfiguration(driver=driver, parameters={"name": name})
    return DeviceAllocationConfiguration(source=source, requests=list(wanted), opaque=opaque)


def applied(request: str, *entries: DeviceAllocationConfiguration) -> list[str]:
    return [one.opaque.parameters["name"] for one in requests.configurations(DRIVER, request, entries) if one.opaque]


@pytest.mark.parametrize(
    ("listed", "request_", "is_meant"),
    [
        ([], "gpu", True),
        ([], "gpu/small", True),
        (["gpu"], "gpu", True),
        (["gpu"], "gpu/small", True),
        (["gpu/small"], "gpu/small", True),
        (["gpu/small"], "gpu/big", False),
        (["gpu/small"], "gpu", False),
        (["gpu/big", "gpu/small"], "gpu/small", True),
        (["gp"], "gpu", False),
        (["small"], "gpu/small", False),
        (["nic", "gpu"], "gpu", True),
        (["nic"], "gpu", False),
    ],
)
def test_a_configuration_of_a_request_means_its_subrequests_too(listed: list[str], request_: str, is_meant: bool) -> None:
    assert requests.is_meant(listed, request_) is is_meant
    assert applied(request_, entry("x", *listed)) == (["x"] if is_meant else [])


def test_later_overrides_earlier_and_the_claim_overrides_the_class() -> None:
    entries = [
        entry("claim-all"),
        entry("class-1", "gpu", source="FromClass"),
        entry("claim-other", "nic"),
        entry("class-2", source="FromClass"),
        entry("claim-small", "gpu/small"),
    ]
    assert applied("gpu/small", *entries) == ["class-1", "class-2", "claim-all", "claim-small"]
    assert applied("gpu", *entries) == ["class-1", "class-2", "claim-all"]


def test_what_is_for_other_drivers_is_passed_over() -> None:
    assert applied("gpu", entry("theirs", driver="nic.example.com"), entry("unknown kind", driver=None), entry("ours")) == ["ours"]


def test_pods_and_the_kubelet_know_requests_without_subrequests() -> None:
    assert [requests.base(one) for one in ("gpu", "gpu/small")] == ["gpu", "gpu"]
