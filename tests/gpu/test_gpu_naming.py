"""Device names and PCI addresses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.errors import DeviceError
from dra_driver.gpu import pci
from dra_driver.gpu.naming import gpu_name

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

numbers = st.tuples(st.integers(0, 0xFFFFFFFF), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7))


def spelled(place: tuple[int, int, int, int]) -> str:
    return "{:08X}:{:02X}:{:02X}.{:X}".format(*place)


@given(st.sets(numbers, min_size=2, max_size=50))
def test_names_are_dns_labels_and_unique(places: set[tuple[int, int, int, int]]) -> None:
    names = [gpu_name(spelled(place)) for place in places]
    assert len(set(names)) == len(places)
    assert all(DNS_LABEL.fullmatch(name) for name in names)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("0000:17:00.0", "gpu-0000-17-00-0"),
        ("00000000:17:00.0", "gpu-0000-17-00-0"),
        ("0000:C3:1F.7", "gpu-0000-c3-1f-7"),
        ("00010000:01:00.0", "gpu-10000-01-00-0"),
    ],
)
def test_every_spelling_of_an_address_gives_the_same_name(spelling: str, name: str) -> None:
    assert gpu_name(spelling) == name


@pytest.mark.parametrize("address", ["", "17:00.0", "0000:17:00", "0000:17:20.0", "0000:17:00.8", "0000:17:00.0\n", "gggg:17:00.0"])
def test_what_is_no_pci_address_is_refused(address: str) -> None:
    with pytest.raises(DeviceError, match="must look like 0000:17:00"):
        gpu_name(address)


def device_at(sys: Path, place: str) -> None:
    target = sys / "devices" / place
    target.mkdir(parents=True)
    link = sys / "bus/pci/devices" / target.name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)


@pytest.mark.parametrize(
    ("place", "root"),
    [
        ("pci0000:15/0000:15:01.0/0000:1b:00.0", "pci0000:15"),
        ("platform/pcie/pci0008:00/0000:1b:00.0", "pci0008:00"),
        ("platform/0000:1b:00.0", None),
    ],
)
def test_the_pcie_root_is_read_from_the_device_tree(tmp_path: Path, place: str, root: str | None) -> None:
    device_at(tmp_path, place)
    assert pci.pcie_root(tmp_path, "0000:1b:00.0") == root


@pytest.mark.parametrize(("content", "node"), [("0\n", 0), ("3\n", 3), ("-1\n", None), ("", None)])
def test_a_numa_node_that_the_firmware_does_not_tell_is_absent(tmp_path: Path, content: str, node: int | None) -> None:
    device_at(tmp_path, "pci0000:15/0000:1b:00.0")
    (tmp_path / "bus/pci/devices/0000:1b:00.0/numa_node").write_text(content)
    assert pci.numa_node(tmp_path, "0000:1b:00.0") == node


def test_without_sysfs_there_is_neither_root_nor_numa_node(tmp_path: Path) -> None:
    assert pci.pcie_root(tmp_path, "0000:1b:00.0") is None
    assert pci.numa_node(tmp_path, "0000:1b:00.0") is None
