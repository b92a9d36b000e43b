"""Another driver of our name on this node, such as NVIDIA's own plugin: the kubelet would give calls for our claims to either of the two.

Every registrar in the registry directory that is not ours is asked once for its name; those that have ours are asked again and again, since it is
only a living one that matters.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection
from pathlib import Path

import grpc

from dra_driver.kubelet._proto import plugin_registration_pb2 as pb
from dra_driver.kubelet._proto import plugin_registration_pb2_grpc as rpc
from dra_driver.kubelet.server import dial, is_served

PATIENCE = 1.0  # seconds; the kubelet waits no longer either

_File = tuple[Path, int, int]  # a socket that replaces another one is another file


class Strangers:
    """Looks for registrars of `driver` in `registry` other than those of `ours`, which is asked at every look."""

    def __init__(self, driver: str, registry: Path, ours: Callable[[], Collection[Path]]) -> None:
        self._driver = driver
        self._registry = registry
        self._ours = ours
        self._others: set[_File] = set()
        self._known: dict[_File, str] = {}

    def look(self) -> str:
        """Which living registrar has our driver's name, "" if none has.

        One that is busy for a moment lives on: the kubelet has not forgotten it either.
        """
        ours = self._ours()
        files = {file for file in self._sockets() if file[0] not in ours}
        self._others &= files
        self._known = {file: told for file, told in self._known.items() if file in files}
        asked = {file: _ask(file[0]) for file in sorted(files - self._others) if is_served(file[0])}
        try:
            for file, (_, answer) in asked.items():
                try:
                    info = answer.result()
                except grpc.RpcError:
                    if file in self._known:
                        return self._known[file]
                    continue  # perhaps next time
                if info.name == self._driver:
                    self._known[file] = (
                        f"another driver of the name {self._driver} is registered at {file[0]} (it serves {info.endpoint or file[0]}); "
                        "two of them would give one device to two pods: remove that driver from this node, or keep this one off it"
                    )
                    return self._known[file]
                self._others.add(file)
        finally:
            for channel, answer in asked.values():
                answer.cancel()
                channel.close()
        return ""

    def _sockets(self) -> set[_File]:
        found = set()
        for directory, _, names in os.walk(self._registry):
            for path in (Path(directory, name) for name in names if not name.startswith(".")):  # the kubelet ignores dot files
                try:
                    status = path.lstat()
                except OSError:
                    continue
                if stat.S_ISSOCK(status.st_mode):
                    found.add((path, status.st_ino, status.st_ctime_ns))
        return found


def _ask(path: Path) -> tuple[grpc.Channel, grpc.Future[pb.PluginInfo]]:
    channel = dial(path)
    return channel, rpc.RegistrationStub(channel).GetInfo.future(pb.InfoRequest(), timeout=PATIENCE)
