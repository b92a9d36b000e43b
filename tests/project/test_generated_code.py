"""What is generated and checked in is what the generator makes today."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECKED_IN = ROOT / "src" / "dra_driver" / "kubelet" / "_proto"


def test_generated_grpc_code_equals_a_new_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    spec = importlib.util.spec_from_file_location("proto_generate", ROOT / "proto" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.generate(tmp_path)
    new = {path.name: path.read_text() for path in (tmp_path / module.PACKAGE).iterdir()}
    old = {path.name: path.read_text() for path in CHECKED_IN.iterdir() if path.is_file() and path.name != "__init__.py"}
    assert new.keys() == old.keys(), "run `make proto`"
    assert [name for name in new if new[name] != old[name]] == [], "run `make proto`"


@pytest.mark.parametrize(
    ("module", "package", "service", "methods"),
    [
        ("dra_v1_pb2", "k8s.io.kubelet.pkg.apis.dra.v1", "DRAPlugin", ["NodePrepareResources", "NodeUnprepareResources"]),
        ("dra_v1beta1_pb2", "k8s.io.kubelet.pkg.apis.dra.v1beta1", "DRAPlugin", ["NodePrepareResources", "NodeUnprepareResources"]),
        ("dra_health_v1_pb2", "v1", "DRAResourceHealth", ["NodeWatchResources"]),
        ("dra_health_v1alpha1_pb2", "v1alpha1", "DRAResourceHealth", ["NodeWatchResources"]),
        ("pod_resources_v1_pb2", "v1", "PodResourcesLister", ["List"]),
        ("plugin_registration_pb2", "pluginregistration", "Registration", ["GetInfo", "NotifyRegistrationStatus"]),
    ],
)
def test_packages_and_methods_are_the_kubelets(module: str, package: str, service: str, methods: list[str]) -> None:
    descriptor = importlib.import_module(f"dra_driver.kubelet._proto.{module}").DESCRIPTOR
    assert descriptor.package == package
    assert descriptor.name == f"dra_driver/kubelet/_proto/{module.removesuffix('_pb2')}.proto", "a file name that no other package uses"
    assert [method.name for method in descriptor.services_by_name[service].methods] == methods


FIELDS = {
    "Device": {"request_names": 1, "pool_name": 2, "device_name": 3, "cdi_device_ids": 4, "share_id": 5},
    "Claim": {"namespace": 1, "uid": 2, "name": 3},
    "NodePrepareResourcesRequest": {"claims": 1},
    "NodePrepareResourcesResponse": {"claims": 1},
    "NodePrepareResourceResponse": {"devices": 1, "error": 2},
    "NodeUnprepareResourcesRequest": {"claims": 1},
    "NodeUnprepareResourcesResponse": {"claims": 1},
    "NodeUnprepareResourceResponse": {"error": 1},
}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("message", FIELDS)
def test_field_numbers_of_draplugin_are_the_kubelets(version: str, message: str) -> None:
    descriptor = importlib.import_module(f"dra_driver.kubelet._proto.dra_{version}_pb2").DESCRIPTOR
    expected = {name: number for name, number in FIELDS[message].items() if (version, name) != ("v1beta1", "share_id")}
    assert {field.name: field.number for field in descriptor.message_types_by_name[message].fields} == expected


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
def test_field_numbers_of_health_are_the_kubelets(version: str) -> None:
    descriptor = importlib.import_module(f"dra_driver.kubelet._proto.dra_health_{version}_pb2").DESCRIPTOR
    assert {field.name: field.number for field in descriptor.message_types_by_name["DeviceHealth"].fields} == {
        "device": 1,
        "health": 2,
        "last_updated_time": 3,
        "health_check_timeout_seconds": 4,
        "message": 5,
    }
    assert {value.name: value.number for value in descriptor.enum_types_by_name["HealthStatus"].values} == {
        "UNKNOWN": 0,
        "HEALTHY": 1,
        "UNHEALTHY": 2,
    }


def test_field_numbers_of_registration_are_the_kubelets() -> None:
    descriptor = importlib.import_module("dra_driver.kubelet._proto.plugin_registration_pb2").DESCRIPTOR
    assert {field.name: field.number for field in descriptor.message_types_by_name["PluginInfo"].fields} == {
        "type": 1,
        "name": 2,
        "endpoint": 3,
        "supported_versions": 4,
    }
    assert {field.name: field.number for field in descriptor.message_types_by_name["RegistrationStatus"].fields} == {
        "plugin_registered": 1,
        "error": 2,
    }


POD_RESOURCES_FIELDS = {
    "ListPodResourcesResponse": {"pod_resources": 1},
    "PodResources": {"name": 1, "namespace": 2, "containers": 3},
    "ContainerResources": {"name": 1, "dynamic_resources": 5},
    "DynamicResource": {"claim_name": 2, "claim_namespace": 3, "claim_resources": 4},
    "ClaimResource": {"cdi_devices": 1, "driver_name": 2, "pool_name": 3, "device_name": 4, "share_id": 5},
    "CDIDevice": {"name": 1},
}


@pytest.mark.parametrize("message", POD_RESOURCES_FIELDS)
def test_field_numbers_of_pod_resources_are_the_kubelets(message: str) -> None:
    descriptor = importlib.import_module("dra_driver.kubelet._proto.pod_resources_v1_pb2").DESCRIPTOR
    assert {field.name: field.number for field in descriptor.message_types_by_name[message].fields} == POD_RESOURCES_FIELDS[message]
