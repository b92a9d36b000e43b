"""A cgroup for each node, below which its kubelet puts the pods: /dra-driver-e2e/NODE in every hierarchy.

cgroup v1 and its hybrid form with v2 have one hierarchy a controller; each gets the directory. With cgroup v2 alone (usual with systemd) there
is one hierarchy, where a controller works in a directory only if its parent passes it on; we pass on what we can and check for what a kubelet
needs. Best effort: systemd is not asked, and takes controllers away from directories that are not its own only when it is reconfigured.
"""

from __future__ import annotations

import time
from pathlib import Path

from dra_driver.errors import HostError

ROOT = Path("/sys/fs/cgroup")
NAME = "dra-driver-e2e"
NEEDED = {"cpu", "cpuset", "memory", "pids"}  # cgroup v2 controllers without which a kubelet does not start
EMPTY_LIMIT = 10.0  # seconds for a cgroup to become empty after its last process was killed


def path(node: str) -> str:
    """The node's cgroup as the kubelet's cgroupRoot."""
    return f"/{NAME}/{node}"


def create(node: str, root: Path = ROOT) -> None:
    """Raises HostError where cgroup v2 does not pass the controllers on."""
    for hierarchy in _hierarchies(root):
        for directory in (hierarchy / NAME, hierarchy / NAME / node):
            directory.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # v1: empty in a new cgroup, and nothing runs in it while they are
                file = directory / name
                if hierarchy.name == "cpuset" and file.exists() and not file.read_text().strip():
                    file.write_text((directory.parent / name).read_text())
    if _is_v2(root):
        _pass_controllers_on(root, node)


def remove(root: Path = ROOT) -> None:
    """Remove the cgroups of all nodes; nothing runs in them any more. Raises HostError where one stays in use."""
    end = time.monotonic() + EMPTY_LIMIT
    for hierarchy in _hierarchies(root):
        top = hierarchy / NAME
        directories = sorted((entry for entry in top.rglob("*") if entry.is_dir()), reverse=True)  # children before parents
        for directory in (*directories, top):
            _remove_when_empty(directory, end)


def _remove_when_empty(directory: Path, end: float) -> None:
    while True:
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > end:
                raise HostError(f"cgroup {directory} cannot be removed: {error.strerror}; its cgroup.procs names who is still in it") from error
            time.sleep(0.05)
        else:
            return


def _is_v2(root: Path) -> bool:
    return (root / "cgroup.controllers").exists()


def _hierarchies(root: Path) -> list[Path]:
    if _is_v2(root):
        return [root]
    # Links such as cpu -> cpu,cpuacct name a hierarchy twice.
    return [entry for entry in sorted(root.iterdir()) if entry.is_dir() and not entry.is_symlink()]


def _pass_controllers_on(root: Path, node: str) -> None:
    for directory in (root, root / NAME):
        for controller in (directory / "cgroup.controllers").read_text().split():
            try:
                (directory / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError:  # some cannot be passed on here; what counts is checked below
                continue
    missing = NEEDED - set((root / NAME / node / "cgroup.controllers").read_text().split())
    if missing:
        raise HostError(
            f"cgroup v2 does not pass the controllers {', '.join(sorted(missing))} on to {root / NAME / node}. "
            f"They must be in {root / 'cgroup.subtree_control'}; inside a container the cgroup root holds processes and refuses that: use the host"
        )
