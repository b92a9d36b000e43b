"""What an admin can set for the node program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from dra_driver.daemon.settings import Settings
from dra_driver.kubelet import service


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("must be an absolute path")
    return path


def _versions(text: str) -> str:
    unknown = [name for name in text.split(",") if name not in service.VERSIONS]
    if unknown or not text:
        raise ValueError(f"must be a comma-separated list of {' and '.join(service.VERSIONS)}")
    return text


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]


class NodeSettings(Settings):
    """The node program of the NVIDIA GPU DRA driver: publishes this node's GPUs and prepares them for pods."""

    node_name: str = Field(min_length=1, description="name of this node's Node object, which is also the pool's name")
    driver_root: AbsolutePath = Field(default=Path("/"), description="directory below which the NVIDIA driver's libraries and device nodes lie")
    plugin_dir: AbsolutePath = Field(
        default=Path("/var/lib/kubelet/plugins/gpu.nvidia.com"),
        description="directory of the service socket and the journal; the kubelet sees the same path",
    )
    registry_dir: AbsolutePath = Field(
        default=Path("/var/lib/kubelet/plugins_registry"), description="directory in which the kubelet looks for plugins"
    )
    cdi_dir: AbsolutePath = Field(default=Path("/var/run/cdi"), description="directory in which the container runtime looks for CDI specs")
    kubeconfig: str = Field(default="", description="kubeconfig file; without it and without --api-server the in-cluster configuration is used")
    api_server: str = Field(default="", description="address of the API server, such as https://10.0.0.1:6443")
    ca_file: Path | None = Field(default=None, description="file with the CA certificates that the API server's certificate is checked against")
    token_file: Path | None = Field(default=None, description="file with the bearer token; it is read again when it changes")
    dra_versions: Annotated[str, AfterValidator(_versions)] = Field(
        default=",".join(service.VERSIONS), description="DRAPlugin versions to serve, the most wanted first"
    )
    simulate: str = Field(default="", description="run on a simulated GPU node with this profile instead of NVML, such as h100-sxm-80gb")
    simulate_gpus: int | None = Field(default=None, ge=0, le=64, description="number of simulated GPUs instead of the profile's")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="least severity that is logged")
