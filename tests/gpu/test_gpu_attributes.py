"""The published device: NVIDIA's names and types exactly, within the API's limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dra_driver.gpu import attributes
from dra_driver.gpu.inventory import Gpu, discover
from dra_driver.gpu.simulator import simulate
from dra_driver.k8s.semver import Semver

GPU = Gpu(
    uuid="GPU-0",
    pci_bus_id="0000:17:00.0",
    minor=0,
    product_name="P",
    brand="Nvidia",
    architecture="Hopper",
    compute_capability=(9, 0),
    memory=1 << 30,
    driver_version="575.57.08",
    cuda_driver_version=(12, 9),
    pcie_root="pci0000:15",
    numa_node=0,
    addressing_mode="HMM",
)

# Of the node with the seed "node-a": claims and journals of a simulated node outlive its restart.
H100_UUIDS = [
    "GPU-1fe79b83-0f95-5b27-a14c-f17ff7285d2a",
    "GPU-11e0a049-799b-5648-ad4c-c43870243d6e",
    "GPU-334d1fb9-f7fe-5e23-956e-5eea80d7f56c",
    "GPU-2776a462-2226-5b1b-aa0b-523d8870c989",
    "GPU-fda391e0-0e19-545b-ba61-53f087e8f7c4",
    "GPU-1a6c875f-4a96-5d16-a400-cd98a72f8990",
    "GPU-892f975a-6c21-5f8b-9482-f266a2af11c4",
    "GPU-615a88da-d5b2-5c7e-af9a-0e187fa39927",
]
A100_UUIDS = [
    "GPU-6914266d-eaaf-5c48-9993-8e6ac80a7ef4",
    "GPU-84814684-6843-5817-a507-ad310821a089",
    "GPU-29072cb4-fa99-5f60-b8d6-0f8d32bd9aab",
    "GPU-1421a07c-10e8-5ca1-b97e-895e01ef41f9",
    "GPU-c1bf4d21-c391-504a-8b21-dc435f6745dd",
    "GPU-46d2932b-e2b9-5dd2-b0fe-8b9b59611c01",
    "GPU-06454a62-4f0f-5c67-873d-69cdb6d08472",
    "GPU-a6be724f-905c-5bf0-ae1b-cad1c961f022",
]


def published(gpu: Gpu) -> Any:
    return json.loads(msgspec.json.encode(attributes.device(gpu)))


def devices(tmp_path: Path, profile: str) -> list[Any]:
    nvml, paths = simulate(profile, tmp_path / "driver", seed="node-a")
    nvml.nvmlInit()
    return [published(gpu) for gpu in discover(nvml, paths).gpus]


def golden(common: dict[str, Any], memory: str, places: list[tuple[str, str, int]], uuids: list[str]) -> list[Any]:
    return [
        {
            "name": "gpu-" + bus_id.replace(":", "-").replace(".", "-"),
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": uuid},
                **common,
                "resource.kubernetes.io/pciBusID": {"string": bus_id},
                "resource.kubernetes.io/pcieRoot": {"string": root},
                "resource.kubernetes.io/numaNode": {"int": numa_node},
            },
            "capacity": {"memory": {"value": memory}},
        }
        for (bus_id, root, numa_node), uuid in zip(places, uuids, strict=True)
    ]


def test_the_h100_machine_is_published_exactly(tmp_path: Path) -> None:
    common = {
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Hopper"},
        "addressingMode": {"string": "HMM"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "driverVersion": {"version": "575.57.8"},
        "cudaDriverVersion": {"version": "12.9.0"},
    }
    places = [
        ("0000:1b:00.0", "pci0000:15", 0),
        ("0000:43:00.0", "pci0000:3d", 0),
        ("0000:52:00.0", "pci0000:4c", 0),
        ("0000:61:00.0", "pci0000:5b", 0),
        ("0000:9d:00.0", "pci0000:97", 1),
        ("0000:c3:00.0", "pci0000:bd", 1),
        ("0000:d1:00.0", "pci0000:cb", 1),
        ("0000:df:00.0", "pci0000:d9", 1),
    ]
    assert devices(tmp_path, "h100-sxm-80gb") == golden(common, "81559Mi", places, H100_UUIDS)


def test_the_a100_machine_is_published_exactly_without_what_its_driver_does_not_know(tmp_path: Path) -> None:
    common = {
        "productName": {"string": "NVIDIA A100-SXM4-40GB"},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Ampere"},
        "cudaComputeCapability": {"version": "8.0.0"},
        "driverVersion": {"version": "550.163.1"},
        "cudaDriverVersion": {"version": "12.4.0"},
    }
    places = [
        ("0000:07:00.0", "pci0000:00", 3),
        ("0000:0f:00.0", "pci0000:00", 3),
        ("0000:47:00.0", "pci0000:40", 1),
        ("0000:4e:00.0", "pci0000:40", 1),
        ("0000:87:00.0", "pci0000:80", 7),
        ("0000:90:00.0", "pci0000:80", 7),
        ("0000:b7:00.0", "pci0000:a0", 5),
        ("0000:bd:00.0", "pci0000:a0", 5),
    ]
    assert devices(tmp_path, "a100-sxm-40gb") == golden(common, "40Gi", places, A100_UUIDS)


@pytest.mark.parametrize(
    ("driver", "version"),
    [
        ("575.57.08", "575.57.8"),
        ("580.126.20", "580.126.20"),
        ("550.54", "550.54.0"),
        ("535", "535.0.0"),
        ("0570.00.00", "570.0.0"),
    ],
)
def test_driver_versions_become_semantic_versions(driver: str, version: str) -> None:
    gpu = replace(GPU, driver_version=driver)
    assert attributes.device(gpu).attributes["driverVersion"].version == version
    assert attributes.problems(gpu) == ()


@pytest.mark.parametrize("driver", ["", "unknown", "575.57.08.01", "575..08", "1.2.99999999999999999999", "1.2.3-" + "a" * 64])
def test_a_driver_version_that_is_none_is_left_out_and_told(driver: str) -> None:
    gpu = replace(GPU, driver_version=driver)
    assert "driverVersion" not in attributes.device(gpu).attributes
    assert [text.split(" is left out")[0] for text in attributes.problems(gpu)] == ["gpu-0000-17-00-0: driverVersion"]


@pytest.mark.parametrize(
    ("field", "attribute"),
    [
        ("product_name", "productName"),
        ("brand", "brand"),
        ("architecture", "architecture"),
        ("compute_capability", "cudaComputeCapability"),
        ("cuda_driver_version", "cudaDriverVersion"),
        ("addressing_mode", "addressingMode"),
        ("pcie_root", "resource.kubernetes.io/pcieRoot"),
        ("numa_node", "resource.kubernetes.io/numaNode"),
    ],
)
def test_a_missing_reading_is_a_missing_attribute(field: str, attribute: str) -> None:
    whole = published(GPU)
    del whole["attributes"][attribute]
    assert published(replace(GPU, **{field: None})) == whole


def test_a_gpu_without_memory_of_its_own_has_no_capacity() -> None:
    assert attributes.device(replace(GPU, memory=None)).capacity == {}


def test_a_pci_domain_beyond_the_standard_attribute_s_form_is_left_out_and_told() -> None:
    gpu = replace(GPU, pci_bus_id="10000:17:00.0")
    assert attributes.PCI_BUS_ID not in attributes.device(gpu).attributes
    assert attributes.problems(gpu) == (
        "gpu-10000-17-00-0: resource.kubernetes.io/pciBusID is left out: 10000:17:00.0 has a domain of more than four digits",
    )


def test_a_long_name_is_cut_to_64_bytes_at_a_character() -> None:
    assert attributes.device(replace(GPU, product_name="x" * 63 + "é")).attributes["productName"].string == "x" * 63


@given(
    name=st.text(max_size=100) | st.none(),
    driver=st.text(max_size=100) | st.from_regex(r"[0-9]{1,22}(\.[0-9]{1,22}){0,3}", fullmatch=True),
    memory=st.integers(1, 2**50) | st.none(),
)
def test_whatever_nvml_says_the_device_stays_within_the_api_s_limits(name: str | None, driver: str, memory: int | None) -> None:
    device = attributes.device(replace(GPU, product_name=name, driver_version=driver, memory=memory))
    assert len(device.attributes) + len(device.capacity) <= 32
    for attribute in device.attributes.values():
        value = attribute.string if attribute.string is not None else attribute.version
        assert value is None or 0 < len(value.encode()) <= 64
        if attribute.version is not None:
            assert str(Semver.parse(attribute.version)) == attribute.version
