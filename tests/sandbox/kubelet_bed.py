"""A kubelet stand-in with quick repetitions in a short directory (socket paths have 107 bytes)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from dra_driver.k8s.client import Client
from dra_driver.sandbox.kubelet.stand_in import StandInKubelet
from dra_driver.sandbox.kubelet.timing import Timing
from tests.sandbox.memory_api import NODE, MemoryApi

QUICK = Timing(scan=0.01, dial=5.0, get_info=0.3, backoff=0.05, backoff_limit=0.2, wiping_delay=0.3, wiping_backoff=0.01)


class Bed:
    """Plugins are made with `root` as their directory."""

    def __init__(self, root: Path, timing: Timing = QUICK) -> None:
        self.root = root
        self.api = MemoryApi()
        self.kubelet = StandInKubelet(cast("Client", self.api), NODE, root, timing=timing)

    def methods(self) -> list[str]:
        return [call.name for call in self.kubelet.calls]


@contextmanager
def short_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as directory:
        yield Path(directory)


@contextmanager
def running_bed(timing: Timing = QUICK) -> Iterator[Bed]:
    with short_directory() as root:
        bed = Bed(root, timing)
        with bed.kubelet:
            yield bed
