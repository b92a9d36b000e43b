"""What an admin can set for the node program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from dra_driver.k8s import names
from dra_driver.k8s.settings import ApiServerSettings
from dra_driver.kubelet import service


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("must be an absolute path")
    return path


def _versions(text: str) -> str:
    wanted = text.split(",")
    if not set(wanted) <= set(service.VERSIONS) or len(set(wanted)) < len(wanted):
        raise ValueError(f"must be a comma-separated list of {' and '.join(service.VERSIONS)}, each once")
    return text


def _node_name(text: str) -> str:
    if problem := names.dns_subdomain_error(text):
        raise ValueError(f"must be the name of a Node: {problem}")
    return text


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]


class NodeSettings(ApiServerSettings):
    """The node program of the NVIDIA GPU DRA driver: publishes this node's GPUs and prepares them for pods."""

    node_name: Annotated[str, AfterValidator(_node_name)] = Field(description="name of this node's Node object, which is also the pool's name")
    driver_root: AbsolutePath = Field(default=Path("/"), description="directory below which the NVIDIA driver's libraries and device nodes lie")
    driver_root_mount: AbsolutePath | None = Field(
        default=None, description="in a container: where this program sees the driver root; without it at the same path as the host"
    )
    plugin_dir: AbsolutePath = Field(
        default=Path("/var/lib/kubelet/plugins/gpu.nvidia.com"),
        description="directory of the service socket and the journal; the kubelet sees the same path",
    )
    registry_dir: AbsolutePath = Field(
        default=Path("/var/lib/kubelet/plugins_registry"), description="directory in which the kubelet looks for plugins"
    )
    cdi_dir: AbsolutePath = Field(default=Path("/var/run/cdi"), description="directory in which the container runtime looks for CDI specs")
    dra_versions: Annotated[str, AfterValidator(_versions)] = Field(
        default=",".join(service.VERSIONS), description="DRAPlugin versions to serve, the most wanted first"
    )
    simulate: str = Field(default="", description="run on a simulated GPU node with this profile instead of NVML, such as h100-sxm-80gb")
    simulate_gpus: int | None = Field(default=None, description="number of simulated GPUs instead of the profile's")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="least severity that is logged")
