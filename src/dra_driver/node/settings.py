"""What an admin can set for the node program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dra_driver.daemon import logs
from dra_driver.daemon.paths import DeviceNumbers
from dra_driver.daemon.settings import absolute_path, one_of, setting, whole_number
from dra_driver.k8s import names
from dra_driver.k8s.settings import ApiServerSettings
from dra_driver.kubelet import service
from dra_driver.kubelet.instance import is_uid


def _versions(text: str) -> str:
    wanted = text.split(",")
    if not set(wanted) <= set(service.VERSIONS) or len(set(wanted)) < len(wanted):
        raise ValueError(f"must be a comma-separated list of {' and '.join(service.VERSIONS)}, each once")
    return text


def _node_name(text: str) -> str:
    if problem := names.dns_subdomain_error(text):
        raise ValueError(f"must be the name of a Node: {problem}")
    return text


def _pod_uid(text: str) -> str:
    if text and not is_uid(text):
        raise ValueError("must be a pod's UID: letters, digits and '-', 63 at most")
    return text


def _numbers(text: str) -> tuple[DeviceNumbers, ...]:
    pairs = [pair.split(":") for pair in text.split(",")]
    # 12 and 20 bits: MINORBITS of the kernel.
    if not all(len(pair) == 2 and all(number.isdecimal() for number in pair) and int(pair[0]) < 1 << 12 and int(pair[1]) < 1 << 20 for pair in pairs):
        raise ValueError("must be MAJOR:MINOR, or several with commas between them, 4095:1048575 at most")
    return tuple(DeviceNumbers("c", int(major), int(minor)) for major, minor in pairs)


@dataclass(frozen=True, kw_only=True)
class NodeSettings(ApiServerSettings):
    """The node program of the NVIDIA GPU DRA driver: publishes this node's GPUs and prepares them for pods."""

    node_name: str = setting("name of this node's Node object, which is also the pool's name", _node_name)
    pod_uid: str = setting("UID of this program's pod: its successor may start before it ends; without it there is one program a node", _pod_uid, "")
    driver_root: Path = setting("directory below which the NVIDIA driver's libraries and device nodes lie", absolute_path, Path("/"))
    driver_root_mount: Path | None = setting(
        "in a container: where this program sees the driver root; without it at the same path as the host", absolute_path, None
    )
    proc_mount: Path | None = setting(
        "in a container: where this program sees the host's /proc; without it devices of lost claims stay taken there", absolute_path, None
    )
    plugin_dir: Path = setting(
        "directory of the service socket and the journal; the kubelet sees the same path",
        absolute_path,
        Path("/var/lib/kubelet/plugins/gpu.nvidia.com"),
    )
    registry_dir: Path = setting("directory in which the kubelet looks for plugins", absolute_path, Path("/var/lib/kubelet/plugins_registry"))
    cdi_dir: Path = setting("directory in which the container runtime looks for CDI specs", absolute_path, Path("/var/run/cdi"))
    pod_resources_socket: Path = setting(
        "socket of the kubelet's PodResources API, which tells of running pods when the journal was lost",
        absolute_path,
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
    )
    dra_versions: str = setting("DRAPlugin versions to serve, the most wanted first", _versions, ",".join(service.VERSIONS))
    sweep_grace: int = setting(
        "seconds for which a prepared claim must be gone from the API before its devices may be freed without the kubelet's word",
        whole_number(1),
        300,
    )
    metrics_port: int = setting("TCP port of /metrics, /healthz and /readyz; 0 takes a free one and logs it", whole_number(0, 65535), 8080)
    unhealthy_effect: str = setting(
        "effect of an unhealthy GPU's taint: NoSchedule, NoExecute (pods that use it are evicted) or None",
        one_of("NoSchedule", "NoExecute", "None"),
        "NoSchedule",
    )
    simulate: str = setting("run on a simulated GPU node with this profile instead of NVML, such as h100-sxm-80gb", str, "")
    simulate_gpus: int | None = setting("number of simulated GPUs instead of the profile's", whole_number(), None)
    simulate_faults: Path | None = setting(
        "TOML file that breaks simulated GPUs, read again whenever it changes; it need not exist", absolute_path, None
    )
    simulate_numbers: tuple[DeviceNumbers, ...] | None = setting(
        "MAJOR:MINOR of the first simulated GPUs' device nodes, with commas, instead of NVIDIA's: as 1:7 of /dev/full, which containers can open",
        _numbers,
        None,
    )
    log_level: str = setting("least severity that is logged", one_of(*logs.LEVELS), "info")
