"""Who competes: our node program, and the peer as it ships and without client-go's limit of five requests a second.

All live in the namespaces of one node, with the same token, the same simulated GPUs and the kubelet's own directories.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from kubernetes import client

from dra_driver.gpu import nvml as management_library
from dra_driver.gpu.inventory import discover
from dra_driver.gpu.simulator import simulate
from dra_driver.k8s.objects.resource import DeviceAllocationResult, DeviceRequestAllocationResult
from dra_driver.node.driver import DRIVER, GpuDriver
from e2e.cluster import Cluster, Node
from e2e.kube import Kube

PROFILE = "h100-sxm-80gb"
NAMESPACE, ACCOUNT = "dra-driver", "dra-driver-node"
OURS, SHIPPED, UNTHROTTLED, AGAIN = "ours", "peer as shipped", "peer unthrottled", "peer again"
END_LIMIT = 30.0
CDI = Path("/dev/shm/dra-driver-bench-cdi")
"""In memory, as /var/run is on a real node; on the local cluster it is a directory on the disk, where a file costs milliseconds."""
UNLIMITED = ("--kube-api-qps=1000", "--kube-api-burst=1000")


@dataclass
class Contender:
    """One program. `throttled` says that it gets few measurements, because each takes 200 ms."""

    name: str
    driver: str
    program: tuple[str, ...]
    node: Node
    log: Path
    throttled: bool = False
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def socket(self) -> Path:
        """The service socket, as this host sees it."""
        return self.node.host_path(f"/var/lib/kubelet/plugins/{self.driver}/dra.sock")

    def start(self, gpus: int) -> None:
        """Starts it with so many GPUs; returns at once."""
        hardware = {"{driver_root}": str(driver_root(self.node, gpus)), "{devices}": str(hardware_file(self.node, gpus)), "{gpus}": str(gpus)}
        command = [_filled(argument, hardware) for argument in self.program]
        self.process = self.node.spawn(command, log=self.log)

    def stop(self) -> None:
        """Ends it as the kubelet would."""
        if self.process is not None:
            self.process.terminate()
            status = self.process.wait(END_LIMIT)
            self.process = None
            assert status == 0, f"{self.name} ended with status {status}, see {self.log}"

    def check(self) -> None:
        """Raises AssertionError when it has ended by itself."""
        assert self.process is not None
        assert self.process.poll() is None, f"{self.name} ended:\n{self.log.read_text()[-2000:]}"

    def rss(self) -> float:
        """Resident memory in MiB."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def cpu(self) -> float:
        """Processor time used so far, in ms."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def contenders(cluster: Cluster, node: Node, kube: Kube, peer: Path, *, noise: bool) -> list[Contender]:
    """All contenders; `noise` adds the unthrottled peer a second time."""
    access = (
        f"--node-name={node.name}",
        f"--api-server={cluster.server}",
        f"--ca-file={cluster.ca_file}",
        f"--token-file={_token_file(kube, node)}",
        f"--cdi-dir={CDI}",
    )
    ours = (
        str(Path(sys.executable).with_name("dra-driver")),
        "node",
        *access,
        f"--simulate={PROFILE}",
        "--simulate-gpus={gpus}",
        "--driver-root={driver_root}",
    )
    log = cluster.settings.log

    def competitor(name: str, driver: str, *flags: str) -> Contender:
        program = (str(peer), f"--driver-name={driver}", *access, "--devices={devices}", *flags)
        return Contender(name, driver, program, node, log / f"bench-{driver}.log", throttled=not flags)

    found = [
        Contender(OURS, DRIVER, ours, node, log / "bench-ours.log"),
        competitor(SHIPPED, "shipped.peer.example.com"),
        competitor(UNTHROTTLED, "unthrottled.peer.example.com", *UNLIMITED),
    ]
    return [*found, competitor(AGAIN, "again.peer.example.com", *UNLIMITED)] if noise else found


def driver_root(node: Node, gpus: int) -> Path:
    """The simulated driver root of that size; one for each size, so that no start has to build it."""
    return node.root / f"bench-{gpus}-gpus"


def hardware_file(node: Node, gpus: int) -> Path:
    """What the peer reads: the devices that we publish and the container edits that we would write."""
    return node.root / f"bench-{gpus}-gpus.json"


def prepare_hardware(node: Node, gpus: int) -> list[str]:
    """Makes the driver root and the peer's file; returns the devices' names."""
    root = driver_root(node, gpus)
    nvml, paths = simulate(PROFILE, root, gpus=gpus, seed=node.name)
    management_library.initialize(nvml)
    driver = GpuDriver(node.name, discover(nvml, paths), paths)
    devices = driver.devices()
    results = [DeviceRequestAllocationResult(request="gpu", driver=DRIVER, pool=node.name, device=one.name) for one in devices]
    plan = driver.plan(DeviceAllocationResult(results=results))
    edits = {one.result.device: one.edits for one in plan.devices}
    hardware_file(node, gpus).write_bytes(msgspec.json.encode({"devices": devices, "edits": edits, "common": plan.common}))
    return [one.name for one in devices]


def _token_file(kube: Kube, node: Node) -> Path:
    """A token of the node program's account, bound to the Node as in a pod."""
    stored = kube.get("Node", node.name)
    assert stored is not None
    bound = client.V1BoundObjectReference(kind="Node", api_version="v1", name=node.name, uid=stored["metadata"]["uid"])
    request = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[], bound_object_ref=bound, expiration_seconds=7200))
    answer = client.CoreV1Api(kube.api).create_namespaced_service_account_token(ACCOUNT, NAMESPACE, request)
    assert answer.status is not None
    path = node.root / "bench-token"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(answer.status.token))
    return path


def _filled(argument: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        argument = argument.replace(name, value)
    return argument
