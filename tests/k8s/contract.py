"""What the contract tests share: one server, real or not, and objects of our own on it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import (
    Device,
    DeviceAttribute,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dra_driver.sandbox.apiserver import ApiServer

KUBECONFIG = os.environ.get("DRA_CONTRACT_KUBECONFIG", "")


@dataclass
class Server:
    """`double` is None for a real one."""

    client: Client
    driver: str
    double: ApiServer | None

    @property
    def mine(self) -> str:
        return f"spec.driver={self.driver}"

    def slice(self, name: str = "", *, pool: str = "pool", devices: int = 1) -> ResourceSlice:
        found = [Device(f"gpu-{index}", attributes={"model": DeviceAttribute(string="H200")}) for index in range(devices)]
        spec = ResourceSliceSpec(driver=self.driver, pool=ResourcePool(pool, 1), node_name=f"node.{self.driver}", devices=found)
        metadata = ObjectMeta(name=f"{name}.{self.driver}") if name else ObjectMeta(generate_name=f"0-{self.driver}-")
        return ResourceSlice(metadata=metadata, spec=spec)

    def claim(self, name: str) -> ResourceClaim:
        request = DeviceRequest("gpu", exactly=ExactDeviceRequest("class.example.com"))
        spec = ResourceClaimSpec(DeviceClaim(requests=[request]))
        return ResourceClaim(metadata=ObjectMeta(name=f"{name}-{self.driver}", namespace="default"), spec=spec)
