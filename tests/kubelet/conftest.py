"""An API server with one Node, and short directories for sockets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import NODES, Node
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.sandbox.apiserver import ApiServer
from tests.kubelet.host import Host
from tests.kubelet.toy import NODE


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def client(api: ApiServer) -> Iterator[Client]:
    one = Client(api.connection, "test")
    one.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
    yield one
    one.close()


@pytest.fixture
def host(client: Client, tmp_path: Path) -> Iterator[Host]:
    one = Host(client, tmp_path)
    yield one
    one.close()


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="dra") as directory:
        yield Path(directory)
