"""The limits of a ResourceSlice in the API server's own words, on the double and on a real server (see test_api_contract)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from dra_driver.errors import ApiConflictError, ApiInvalidError
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
)
from tests.k8s.contract import Server


def _driver_changes(slice_: ResourceSlice) -> None:
    slice_.spec.driver = "other.example.com"


def _node_changes(slice_: ResourceSlice) -> None:
    slice_.spec.node_name = "other"


def _pool_changes(slice_: ResourceSlice) -> None:
    slice_.spec.pool.name = "other"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_driver_changes, 'spec.driver: Invalid value: "other.example.com": field is immutable'),
        (_node_changes, 'spec.nodeName: Invalid value: "other": field is immutable'),
        (_pool_changes, 'spec.pool.name: Invalid value: "other": field is immutable'),
    ],
)
def test_driver_pool_and_node_of_a_slice_never_change(server: Server, change: Callable[[ResourceSlice], None], text: str) -> None:
    one = server.client.create(RESOURCE_SLICES, server.slice("one"))
    change(one)
    with pytest.raises(ApiInvalidError) as caught:
        server.client.replace(RESOURCE_SLICES, one)
    assert caught.value.message == f'ResourceSlice.resource.k8s.io "{one.metadata.name}" is invalid: {text}'
    assert caught.value.reason == "Invalid"


def _devices(count: int, **fields: object) -> list[Device]:
    return [Device(f"gpu-{index}", **fields) for index in range(count)]  # type: ignore[arg-type]


_COUNTER = {"memory": Counter("1Gi")}
_CONSUMES = [DeviceCounterConsumption("set", _COUNTER)]
_TAINT = DeviceTaint("example.com/broken", "NoSchedule")

_ONE_OF = "must specify one of: `int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`"

REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "too many devices": ({"devices": _devices(129)}, "spec.devices: Too many: 129: must have at most 128 items"),
    "too many tainted devices": ({"devices": _devices(65, taints=[_TAINT])}, "spec.devices: Too many: 65: must have at most 64 items"),
    "a counter halves the number of devices": (
        {"devices": _devices(65, consumes_counters=_CONSUMES)},
        "spec.devices: Too many: 65: must have at most 64 items",
    ),
    "devices and counters": (
        {"shared_counters": [CounterSet("set", _COUNTER)]},
        'spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed',
    ),
    "no node": (
        {"node_name": None},
        "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
    ),
    "two choices of nodes": (
        {"all_nodes": True},
        (
            'spec: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` '
            "is required, but multiple fields are set"
        ),
    ),
    "no slices": ({"pool": ResourcePool("pool", 0)}, "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero"),
    "no pool name": ({"pool": ResourcePool("", 1)}, "spec.pool.name: Required value"),
    "duplicate device": ({"devices": [Device("gpu-0"), Device("gpu-0")]}, 'spec.devices[1]: Duplicate value: "gpu-0"'),
    "device name": (
        {"devices": [Device("GPU_0")]},
        (
            "spec.devices[0].name: Invalid value: \"GPU_0\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
            "and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', "
            "regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        ),
    ),
    "too many attributes": (
        {"devices": [Device("gpu-0", attributes={f"a{index}": DeviceAttribute(int_=index) for index in range(33)})]},
        "spec.devices[0]: Invalid value: 33: the total number of attributes and capacities must not exceed 32",
    ),
    "attribute value too long": (
        {"devices": [Device("gpu-0", attributes={"model": DeviceAttribute(string=65 * "x")})]},
        "spec.devices[0].attributes[model].string: Too long: may not be more than 64 bytes",
    ),
    "attribute without a value": (
        {"devices": [Device("gpu-0", attributes={"model": DeviceAttribute()})]},
        f'spec.devices[0].attributes[model]: Invalid value: "": {_ONE_OF}',
    ),
    "list attribute without its gate": (
        {"devices": [Device("gpu-0", attributes={"numa": DeviceAttribute(ints=[0])})]},
        f'spec.devices[0].attributes[numa]: Invalid value: "": {_ONE_OF}',
    ),
    "attribute name": (
        {"devices": [Device("gpu-0", attributes={"9a": DeviceAttribute(int_=1)})]},
        (
            "spec.devices[0].attributes: Invalid value: \"9a\": a valid C identifier must start with alphabetic character or '_', followed "
            "by a string of alphanumeric characters or '_' "
            "(e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
        ),
    ),
    "version": (
        {"devices": [Device("gpu-0", attributes={"driver": DeviceAttribute(version="570.1")})]},
        'spec.devices[0].attributes[driver].version: Invalid value: "570.1": must be a string compatible with semver.org spec 2.0.0',
    ),
    "too many taints": ({"devices": _devices(1, taints=17 * [_TAINT])}, "spec.devices[0].taints: Too many: 17: must have at most 16 items"),
    "unknown taint effect": (
        {"devices": [Device("gpu-0", taints=[DeviceTaint("a", "Nope")])]},
        'spec.devices[0].taints[0].effect: Unsupported value: "Nope": supported values: "NoExecute", "NoSchedule", "None"',
    ),
    "too many consumptions": (
        {"devices": _devices(1, consumes_counters=[DeviceCounterConsumption(f"set-{index}", _COUNTER) for index in range(3)])},
        "spec.devices[0].consumesCounters: Too many: 3: must have at most 2 items",
    ),
    "too many counter sets": (
        {"devices": [], "shared_counters": [CounterSet(f"set-{index}", _COUNTER) for index in range(9)]},
        "spec.sharedCounters: Too many: 9: must have at most 8 items",
    ),
    "too many counters": (
        {"devices": [], "shared_counters": [CounterSet("set", {f"c{index}": Counter("1") for index in range(33)})]},
        "spec.sharedCounters[0].counters: Too many: 33: must have at most 32 items",
    ),
    "node of a device": (
        {"devices": [Device("gpu-0", node_name="x")]},
        (
            "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to "
            "true in the ResourceSlice spec"
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_slice_beyond_the_limits_is_refused_in_these_words(server: Server, case: str) -> None:
    fields, text = REFUSED[case]
    wanted = server.slice("one")
    for field, value in fields.items():
        setattr(wanted.spec, field, value)
    with pytest.raises(ApiInvalidError) as caught:
        server.client.create(RESOURCE_SLICES, wanted)
    assert caught.value.message == f'ResourceSlice.resource.k8s.io "{wanted.metadata.name}" is invalid: {text}'


def test_a_dry_run_answers_as_the_write_would_and_stores_nothing(server: Server) -> None:
    wanted = server.slice("one")
    wanted.spec.devices = [Device("gpu-0", capacity={"memory": DeviceCapacity("81920Mi")}, taints=[_TAINT])]
    answer = server.client.create(RESOURCE_SLICES, wanted, dry_run=True)
    assert answer.spec.devices[0].capacity["memory"].value == "80Gi"
    assert answer.spec.devices[0].taints[0].time_added
    assert server.client.list(RESOURCE_SLICES, field_selector=server.mine).items == []
    stored = server.client.create(RESOURCE_SLICES, wanted)
    changed = msgspec.structs.replace(stored, spec=server.slice("one", devices=2).spec)
    answer = server.client.replace(RESOURCE_SLICES, changed, dry_run=True)
    assert [device.name for device in answer.spec.devices] == ["gpu-0", "gpu-1"]
    (still,) = server.client.list(RESOURCE_SLICES, field_selector=server.mine).items
    assert still == stored
    stored.spec.devices[0].name = "GPU"
    with pytest.raises(ApiInvalidError):
        server.client.replace(RESOURCE_SLICES, stored, dry_run=True)
    stored.metadata.resource_version = "1"
    with pytest.raises(ApiConflictError):
        server.client.replace(RESOURCE_SLICES, stored, dry_run=True)


def test_fields_of_gates_that_are_off_by_default_vanish_silently_but_a_list_leaves_an_attribute_without_a_value(server: Server) -> None:
    wanted = server.slice("one")
    wanted.spec.skip_node_operations, wanted.spec.partition_type_attribute = ["*"], f"{server.driver}/kind"
    consumption = DeviceCounterConsumption("set", _COUNTER, ["a"])
    wanted.spec.devices = [Device("gpu-0", {"kind": DeviceAttribute(string="x")}, consumes_counters=[consumption])]
    stored = server.client.create(RESOURCE_SLICES, wanted)
    assert (stored.spec.skip_node_operations, stored.spec.partition_type_attribute) == ([], None)
    assert stored.spec.devices[0].consumes_counters == [DeviceCounterConsumption("set", _COUNTER)]


def test_the_time_of_a_taint_is_kept_in_whole_seconds(server: Server) -> None:
    wanted = server.slice("one")
    wanted.spec.devices = [Device("gpu-0", taints=[msgspec.structs.replace(_TAINT, time_added="2026-01-02T03:04:05.9Z")])]
    stored = server.client.create(RESOURCE_SLICES, wanted)
    assert stored.spec.devices[0].taints[0].time_added == "2026-01-02T03:04:05Z"
