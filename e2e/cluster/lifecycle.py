"""Up and down, in whatever state the machine is: nothing there, a cluster that runs, or what a killed run left."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dra_driver.errors import HostError, SettingsError
from e2e.cluster import build, cgroups, host_directories, network, requirements
from e2e.cluster.cluster import Cluster
from e2e.cluster.processes import kill, marked
from e2e.cluster.progress import Progress
from e2e.cluster.settings import Settings, check_ours

LOCK = "\0dra-driver-e2e"  # an abstract socket's name: bound by one process at a time, gone with it, and no file is left behind


def up(settings: Settings, cache: Path, progress: Progress) -> Cluster:
    """Start the cluster; where it runs already with these settings, only wait until it is ready. Raises PartError, HostError, SettingsError."""
    requirements.check_root()
    requirements.check_programs()
    with _alone(progress):
        cluster = _running(settings)
        if cluster is not None:
            progress.say("the cluster is already up")
            cluster.wait_ready(progress)
            return cluster
        build.build(cache, progress)
        if settings.state.exists() or marked(settings.state):
            with progress.step("cleaned up after an earlier run"):
                _clean(settings.state)
        cluster = Cluster(settings)
        cluster.start(progress)
        return cluster


def down(state: Path, progress: Progress, keep_logs: Path | None = None) -> None:
    """End and remove everything, also what a killed run left. `keep_logs` gets a copy of all logs first. Raises HostError, SettingsError."""
    requirements.check_root()
    with _alone(progress):
        check_ours(state)
        if keep_logs is not None:
            _copy_logs(state, keep_logs)
        with progress.step("cluster is down"):
            _clean(state)


def _running(settings: Settings) -> Cluster | None:
    """The cluster, if all of it runs as `settings` want it. Raises SettingsError where another one is in the way."""
    for owner in marked().values():
        if owner != settings.state:
            raise SettingsError(f"another cluster runs on this machine; end it first: python -m e2e.cluster down --state {owner}")
    try:
        cluster = Cluster.load(settings.state)
    except SettingsError:  # none, or one whose start was killed at its very beginning
        return None
    if not cluster.runs():
        return None
    if cluster.settings != settings:
        raise SettingsError(f"a cluster with other options runs already (see {settings.file}); end it first: python -m e2e.cluster down")
    return cluster


def _clean(state: Path) -> None:
    kill(marked(state))
    network.unplug_host()
    cgroups.remove()
    if state.exists():
        check_ours(state)
        _check_unmounted(state)
        host_directories.remove(state / "made-directories")
        shutil.rmtree(state)


def _check_unmounted(state: Path) -> None:
    """Mounts below the state are all in the nodes' namespaces; one on the host is a person's, and deleting through it would be wrong."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        target = Path(line.split()[4])
        if target.is_relative_to(state):
            raise HostError(f"{target} is a mount point of this host; its content is not deleted. Unmount it and repeat: umount {target}")


def _copy_logs(state: Path, destination: Path) -> None:
    if (state / "log").exists():
        shutil.copytree(state / "log", destination, dirs_exist_ok=True)
    for pods in (state / "nodes").glob("*/log/pods"):
        shutil.copytree(pods, destination / "pods" / pods.parts[-3], dirs_exist_ok=True)


@contextmanager
def _alone(progress: Progress) -> Iterator[None]:
    """Wait until no other run changes the cluster."""
    with socket.socket(socket.AF_UNIX) as lock:
        waiting = False
        while True:
            try:
                lock.bind(LOCK)
            except OSError:
                if not waiting:
                    progress.say("waiting for another up or down on this machine to end")
                waiting = True
                time.sleep(0.2)
            else:
                break
        yield
