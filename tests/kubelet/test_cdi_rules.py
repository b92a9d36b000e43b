"""Which CDI specs are right, and the version that they need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.kubelet import cdi_rules
from dra_driver.kubelet.cdi import CdiDevice, ContainerEdits, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec

# Verdicts of the runtimes' library, container-device-interface v1.1.1 (`cdi.ReadSpec`, `specs.MinimumRequiredVersion`), on generated specs. It looks
# for `hostPath` and the `type` of a mount in the last device only (a loop variable of Go 1.19); specs to which that matters are not among these.
VERDICTS = [json.loads(line) for line in (Path(__file__).parent / "cdi_specs.jsonl").read_text().splitlines()]

NODE = DeviceNode("/dev/a")


def spec(*edits: ContainerEdits, kind: str = "vendor.com/gpu", name: str = "a", **more: Any) -> Spec:
    devices = tuple(CdiDevice(f"{name}{number or ''}", one) for number, one in enumerate(edits))
    return Spec(cdi_version="1.1.0", kind=kind, devices=devices, **more)


@pytest.mark.parametrize("verdict", VERDICTS, ids=range(len(VERDICTS)))
def test_verdict_and_version_are_those_of_the_runtimes_library(verdict: dict[str, Any]) -> None:
    given = msgspec.convert(verdict["spec"], Spec)
    assert (not list(cdi_rules.refusals(given))) == verdict["accepted"]
    assert cdi_rules.minimal_version(given) == verdict["minimum"]


EDITS_BY_VERSION = [
    (
        "0.3.0",
        ContainerEdits(env=("A=1",), device_nodes=(DeviceNode("/dev/a", file_mode=0o660, uid=1, gid=2),), hooks=(Hook("prestart", "/h", timeout=5),)),
    ),
    ("0.4.0", ContainerEdits(mounts=(Mount("tmpfs", "/t", type="tmpfs"),))),
    ("0.5.0", ContainerEdits(device_nodes=(DeviceNode("/dev/a", host_path="/host/dev/a"),))),
    ("0.7.0", ContainerEdits(additional_gids=(7,))),
    ("0.7.0", ContainerEdits(intel_rdt=IntelRdt("group", "L3:0=f", "MB:0=10"))),
    ("1.1.0", ContainerEdits(intel_rdt=IntelRdt(schemata=("L3:0=f",)))),
    ("1.1.0", ContainerEdits(intel_rdt=IntelRdt(enable_monitoring=True))),
    ("1.1.0", ContainerEdits(net_devices=(NetDevice("eth1", "net0"),))),
]


@pytest.mark.parametrize(("version", "edits"), EDITS_BY_VERSION)
def test_a_field_asks_for_the_version_that_brought_it_wherever_it_stands(version: str, edits: ContainerEdits) -> None:
    plain = ContainerEdits(device_nodes=(NODE,))
    for one in (spec(edits), spec(edits, plain), spec(plain, edits), spec(plain, container_edits=edits)):
        assert cdi_rules.minimal_version(one) == version
        assert not list(cdi_rules.faults(one))


@pytest.mark.parametrize(
    ("version", "one"),
    [
        ("0.5.0", spec(ContainerEdits(device_nodes=(NODE,)), name="0")),
        ("0.6.0", spec(ContainerEdits(device_nodes=(NODE,)), kind="vendor.com/a.b")),
        ("0.6.0", spec(ContainerEdits(device_nodes=(NODE,)), annotations={"k": "v"})),
        ("0.6.0", Spec("1.1.0", "vendor.com/gpu", (CdiDevice("a", ContainerEdits(device_nodes=(NODE,)), {"k": "v"}),))),
    ],
)
def test_names_and_annotations_ask_for_a_version_too(version: str, one: Spec) -> None:
    assert cdi_rules.minimal_version(one) == version


EDITS = st.builds(
    ContainerEdits,
    env=st.sampled_from([(), ("A=1",)]),
    device_nodes=st.sampled_from([(), (NODE,), (DeviceNode("/dev/a", host_path="/h"),)]),
    mounts=st.sampled_from([(), (Mount("/a", "/b", ("bind",)),), (Mount("x", "/b", type="tmpfs"),)]),
    net_devices=st.sampled_from([(), (NetDevice("a", "b"),)]),
    intel_rdt=st.sampled_from([None, IntelRdt("a"), IntelRdt(enable_monitoring=True)]),
    additional_gids=st.sampled_from([(), (1,)]),
)


@given(st.lists(EDITS, min_size=1, max_size=3), EDITS)
def test_the_minimal_version_is_enough_and_the_one_before_it_is_not(edits: list[ContainerEdits], common: ContainerEdits) -> None:
    one = spec(*edits, container_edits=common)
    least = cdi_rules.minimal_version(one)

    def too_old(version: str) -> bool:
        return any(fault.startswith("cdiVersion") for fault in cdi_rules.refusals(msgspec.structs.replace(one, cdi_version=version)))

    at = cdi_rules.VERSIONS.index(least)
    assert [too_old(version) for version in cdi_rules.VERSIONS] == [True] * at + [False] * (len(cdi_rules.VERSIONS) - at)


@given(st.lists(EDITS, min_size=1, max_size=3), EDITS)
def test_what_is_written_reads_back_equal(edits: list[ContainerEdits], common: ContainerEdits) -> None:
    one = spec(*edits, container_edits=common, annotations={"k": "v"})
    assert msgspec.json.decode(msgspec.json.encode(one), type=Spec) == one


def test_fields_have_the_names_of_the_specification() -> None:
    edits = ContainerEdits(
        device_nodes=(DeviceNode("/dev/a", "/h", "c", 1, 0, 0o660, "rw", 0, 1),),
        net_devices=(NetDevice("eth1", "net0"),),
        hooks=(Hook("poststop", "/h", ("a",), ("A=1",), 5),),
        mounts=(Mount("/h", "/c", ("ro",), "bind"),),
        intel_rdt=IntelRdt("g", "L3:0=f", "MB:0=10", ("MB:0=10",), enable_monitoring=True),
        additional_gids=(0, 7),
    )
    assert json.loads(msgspec.json.encode(edits)) == {
        "deviceNodes": [
            {"path": "/dev/a", "hostPath": "/h", "type": "c", "major": 1, "minor": 0, "fileMode": 0o660, "permissions": "rw", "uid": 0, "gid": 1}
        ],
        "netDevices": [{"hostInterfaceName": "eth1", "name": "net0"}],
        "hooks": [{"hookName": "poststop", "path": "/h", "args": ["a"], "env": ["A=1"], "timeout": 5}],
        "mounts": [{"hostPath": "/h", "containerPath": "/c", "options": ["ro"], "type": "bind"}],
        "intelRdt": {"closID": "g", "l3CacheSchema": "L3:0=f", "memBwSchema": "MB:0=10", "schemata": ["MB:0=10"], "enableMonitoring": True},
        "additionalGids": [0, 7],
    }


FORBIDDEN = [
    (ContainerEdits(env=("A=\0",)), r"device 'a': env: found 'A=\x00', must be without NUL"),
    (ContainerEdits(device_nodes=(DeviceNode("nvidia0"),)), "device 'a': device node nvidia0: path: found 'nvidia0', must be absolute"),
    (
        ContainerEdits(device_nodes=(DeviceNode("/dev/a", host_path="dev/a"),)),
        "device 'a': device node /dev/a: hostPath: found 'dev/a', must be absolute",
    ),
    (
        ContainerEdits(device_nodes=(DeviceNode("/dev/a", file_mode=0o20660),)),
        "device 'a': device node /dev/a: fileMode: found 8624, allowed 0 to 4095",
    ),
    (ContainerEdits(device_nodes=(DeviceNode("/dev/a", uid=-1),)), "device 'a': device node /dev/a: uid: found -1, allowed 0 to 4294967295"),
    (
        ContainerEdits(device_nodes=(DeviceNode("/dev/a", gid=2**32),)),
        "device 'a': device node /dev/a: gid: found 4294967296, allowed 0 to 4294967295",
    ),
    (ContainerEdits(device_nodes=(DeviceNode("/dev/a", major=-1),)), "device 'a': device node /dev/a: major: found -1, must not be negative"),
    (ContainerEdits(mounts=(Mount("/a", "b"),)), "device 'a': mount b: containerPath: found 'b', must be absolute"),
    (ContainerEdits(mounts=(Mount("a", "/b", ("rbind",)),)), "device 'a': mount /b: hostPath: found 'a', must be absolute"),
    (ContainerEdits(hooks=(Hook("prestart", "h"),)), "device 'a': hook h: path: found 'h', must be absolute"),
    (ContainerEdits(hooks=(Hook("prestart", "/h", timeout=0),)), "device 'a': hook /h: timeout: found 0, must be more than 0 seconds"),
    (
        ContainerEdits(net_devices=(NetDevice("eth0", "sixteen-letters."),)),
        "device 'a': netDevices: found 'sixteen-letters.', must be the name of an interface, at most 15 bytes without / and blanks",
    ),
    (ContainerEdits(additional_gids=(-1,)), "device 'a': additionalGids: found -1, must be a number of 32 bits"),
]


@pytest.mark.parametrize(("edits", "text"), FORBIDDEN)
def test_what_only_fails_when_a_container_starts_is_a_fault(edits: ContainerEdits, text: str) -> None:
    assert not list(cdi_rules.refusals(spec(edits)))
    assert list(cdi_rules.faults(spec(edits))) == [text]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"kind": "vendor..com/gpu"}, "kind: vendor: found 'vendor..com': a lowercase RFC 1123 subdomain"),
        ({"kind": "a/" + 64 * "x"}, "kind: class: found 64 characters, 63 are allowed"),
        ({"annotations": {"a b": ""}}, "annotations: key 'a b': name part must consist of alphanumeric"),
        ({"annotations": {"a": (256 * 1024) * "x"}}, "annotations: found 262145 bytes, 262144 are allowed"),
    ],
)
def test_kind_and_annotations_keep_the_specification(more: dict[str, Any], text: str) -> None:
    one = spec(ContainerEdits(device_nodes=(NODE,)), **more)
    assert not list(cdi_rules.refusals(one))
    assert [fault.startswith(text) for fault in cdi_rules.faults(one)] == [True]
