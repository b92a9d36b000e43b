"""What the host must offer: root, a few programs, and nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from dra_driver.errors import HostError

CNI_DIRECTORIES = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
CNI_PLUGINS = ("bridge", "host-local", "loopback", "portmap")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Program: the Debian package that brings it.
PROGRAMS = {
    "busybox": "busybox-static",
    "ip": "iproute2",
    "iptables": "iptables",
    "mount": "mount",
    "nft": "nftables",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "runc": "runc",
    "unshare": "util-linux",
}
IMAGE_PROGRAMS = {"buildah": "buildah", "mmdebstrap": "mmdebstrap"}


def program(name: str) -> str | None:
    """The path of a program of this host; also from the directories of system programs, which a user's PATH may lack."""
    return shutil.which(name, path=SYSTEM_PATH)


def check_root() -> None:
    """Raises HostError."""
    if os.geteuid() != 0:
        raise HostError("the cluster needs root (namespaces, mounts, cgroups): run it as root or with sudo")


def check_programs() -> None:
    """Raises HostError with all that is missing and the command that installs it."""
    missing = _missing(PROGRAMS)
    for plugin in CNI_PLUGINS:
        if not any((directory / plugin).exists() for directory in CNI_DIRECTORIES):
            missing[f"CNI plugin {plugin}"] = "containernetworking-plugins"
    _refuse(missing)


def check_image_programs() -> None:
    """Raises HostError with what the build of the driver's image lacks and the command that installs it."""
    _refuse(_missing(IMAGE_PROGRAMS))


def _missing(programs: dict[str, str]) -> dict[str, str]:
    return {name: package for name, package in programs.items() if program(name) is None}


def _refuse(missing: dict[str, str]) -> None:
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        raise HostError(f"missing on this machine: {', '.join(missing)}. Install them with: apt-get install --no-install-recommends {packages}")
