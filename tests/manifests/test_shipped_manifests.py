"""The manifests that we ship: they decode, belong together, and their selectors answer on every shape of device."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import yaml

from dra_driver.allocation.allocator import allocate
from dra_driver.cel import Device, Environment
from dra_driver.errors import NoFitError
from dra_driver.k8s.objects.core import Pod
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import DeviceClass, DeviceSelector, ResourceClaim, ResourceClaimTemplate, ResourceSlice

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
DRIVER = "gpu.nvidia.com"
T = TypeVar("T")


def shipped(name: str, kind: type[T]) -> T:
    loaded = yaml.safe_load((MANIFESTS / name).read_text(encoding="utf-8"))
    assert (loaded["apiVersion"], loaded["kind"]) == ("v1" if kind is Pod else "resource.k8s.io/v1", kind.__name__)
    return msgspec.convert(loaded, kind)


CLASS = shipped("deviceclass.yaml", DeviceClass)
TEMPLATE = shipped("resourceclaimtemplate.yaml", ResourceClaimTemplate)
POD = shipped("pod.yaml", Pod)


def device(name: str, memory: str | None = "80Gi", attributes: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "attributes": attributes if attributes is not None else {"type": {"string": "gpu"}},
        "capacity": {"memory": {"value": memory}} if memory else {},
    }


# (driver, device, chosen by the class, chosen by the template)
SHAPES = {
    "right": (DRIVER, device("right"), True, True),
    "exactly enough": (DRIVER, device("enough", "40Gi"), True, True),
    "too small": (DRIVER, device("small", "40959Mi"), True, False),
    "other driver": ("nic.example.com", device("nic", "80Gi", {"type": {"string": "gpu"}}), False, False),
    "other driver, nothing published": ("nic.example.com", device("nic", None, {}), False, False),
    "no capacity": (DRIVER, device("unified", None), True, False),
    "attribute named memory": (DRIVER, device("odd", None, {"type": {"string": "gpu"}, "memory": {"string": "80Gi"}}), True, False),
    "MIG device": (DRIVER, device("mig", "40Gi", {"type": {"string": "mig"}}), False, True),
}


def chosen(selectors: list[DeviceSelector], driver: str, published: dict[str, Any]) -> bool:
    assert selectors
    return all(Environment().compile(selector.cel.expression).matches(Device.from_api(driver, published)) for selector in selectors if selector.cel)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_selectors_choose_the_right_devices_and_fail_on_none(shape: str) -> None:
    driver, published, by_class, by_template = SHAPES[shape]
    assert chosen(CLASS.spec.selectors, driver, published) is by_class
    (request,) = TEMPLATE.spec.spec.devices.requests
    assert request.exactly is not None
    assert chosen(request.exactly.selectors, driver, published) is by_template


@pytest.mark.parametrize("shape", SHAPES)
def test_class_and_template_together_allocate_only_a_large_gpu(shape: str) -> None:
    driver, published, by_class, by_template = SHAPES[shape]
    slices = [
        msgspec.convert(
            {
                "metadata": {"name": "s"},
                "spec": {
                    "driver": driver,
                    "nodeName": "n",
                    "pool": {"name": "n", "resourceSliceCount": 1, "generation": 1},
                    "devices": [published],
                },
            },
            ResourceSlice,
        )
    ]
    claim = ResourceClaim(metadata=ObjectMeta(name="c", namespace="default"), spec=TEMPLATE.spec.spec)
    if by_class and by_template:
        allocation = allocate(claim, slices, {CLASS.metadata.name: CLASS}, node="n")
        assert [result.device for result in allocation.devices.results] == [published["name"]]
    else:
        with pytest.raises(NoFitError, match="is false"):
            allocate(claim, slices, {CLASS.metadata.name: CLASS}, node="n")


def test_the_pieces_name_each_other() -> None:
    (request,) = TEMPLATE.spec.spec.devices.requests
    assert request.exactly is not None
    assert request.exactly.device_class_name == CLASS.metadata.name
    (claim,) = POD.spec.resource_claims
    assert claim.resource_claim_template_name == TEMPLATE.metadata.name
    (container,) = POD.spec.containers
    assert [use.name for use in container.resources.claims] == [claim.name]


def test_the_class_serves_the_extended_resource() -> None:
    assert CLASS.spec.extended_resource_name == "nvidia.com/gpu"
