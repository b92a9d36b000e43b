"""What the client does when the API server or the way to it does not behave."""

from __future__ import annotations

import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dra_driver.errors import ApiDeniedError, ApiError, ApiNotFoundError, ApiUnavailableError, DraError
from dra_driver.k8s.client import Client
from dra_driver.k8s.config import Connection
from dra_driver.k8s.objects.core import NODES, Node
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import RESOURCE_SLICES
from dra_driver.sandbox.apiserver import ApiServer
from tests.k8s.conftest import FakeClock


def node(name: str = "n1") -> Node:
    return Node(metadata=ObjectMeta(name=name))


def test_a_get_is_repeated_until_the_server_recovers(api: ApiServer, client: Client) -> None:
    client.create(NODES, node())
    api.fail("GET", "/nodes/n1", status=500, times=3)
    assert client.get(NODES, "n1").metadata.name == "n1"
    assert len(api.requests("GET", "/nodes/n1")) == 4


def test_all_attempts_end_by_the_deadline(api: ApiServer, client: Client, clock: FakeClock) -> None:
    api.fail("GET", "/nodes", status=503, times=None)
    with pytest.raises(ApiUnavailableError, match="HTTP 503"):
        client.get(NODES, "n1", deadline=20)
    assert sum(clock.waits) <= 20
    assert 4 < len(api.requests()) < 60


def test_without_a_deadline_there_is_one_attempt(api: ApiServer, client: Client) -> None:
    api.fail(status=500, times=None)
    with pytest.raises(ApiUnavailableError):
        client.get(NODES, "n1", deadline=0)
    assert len(api.requests()) == 1


def test_a_server_that_never_answers_costs_no_more_than_the_deadline(api: ApiServer) -> None:
    client = Client(api.connection, "test")
    api.hang(times=None)
    started = time.monotonic()
    with pytest.raises(ApiUnavailableError, match=r"GET /api/v1/nodes/n1 at http://127.0.0.1:\d+: .*timed out"):
        client.get(NODES, "n1", deadline=0.3)
    assert time.monotonic() - started < 10
    client.close()


def test_retry_after_is_honoured_for_any_verb(api: ApiServer, client: Client, clock: FakeClock) -> None:
    api.fail("POST", status=429, retry_after=7)
    api.fail("POST", status=503, retry_after=9)
    client.create(NODES, node())
    assert len(api.requests("POST")) == 3
    assert clock.waits[0] >= 7
    assert clock.waits[1] >= 9


def test_a_create_whose_answer_is_lost_is_not_repeated(api: ApiServer, client: Client) -> None:
    api.lose_answer("POST")
    with pytest.raises(ApiUnavailableError, match=r"POST /api/v1/nodes at http://"):
        client.create(NODES, node())
    assert len(api.requests("POST")) == 1
    assert client.get(NODES, "n1")


def test_a_write_is_not_repeated_after_an_error_that_may_hide_success(api: ApiServer, client: Client) -> None:
    created = client.create(NODES, node())
    api.fail("PUT", status=500)
    with pytest.raises(ApiUnavailableError):
        client.replace(NODES, created)
    assert len(api.requests("PUT")) == 1


def test_a_guarded_delete_whose_answer_is_lost_has_succeeded(api: ApiServer, client: Client) -> None:
    created = client.create(NODES, node())
    api.lose_answer("DELETE")
    client.delete(NODES, "n1", uid=created.metadata.uid)
    assert len(api.requests("DELETE")) == 2
    with pytest.raises(ApiNotFoundError):
        client.get(NODES, "n1")


def test_an_unguarded_delete_is_not_repeated(api: ApiServer, client: Client) -> None:
    client.create(NODES, node())
    api.lose_answer("DELETE")
    with pytest.raises(ApiUnavailableError):
        client.delete(NODES, "n1")
    assert len(api.requests("DELETE")) == 1


def test_a_refused_connection_is_tried_again_for_any_verb(clock: FakeClock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    client = Client(Connection(f"http://127.0.0.1:{port}"), "test", clock)
    with pytest.raises(ApiUnavailableError, match=rf"POST /api/v1/nodes at http://127.0.0.1:{port}"):
        client.create(NODES, node(), deadline=10)
    assert len(clock.waits) > 3


def test_close_ends_waiting_calls_and_watches(api: ApiServer) -> None:
    client = Client(api.connection, "test")
    watch = client.watch(NODES, "1")
    api.fail("GET", "/nodes/n1", status=429, retry_after=3600, times=None)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.get, NODES, "n1", deadline=100_000)
        watching = pool.submit(list, watch)
        assert api.wait_for(lambda: bool(api.requests("GET", "/nodes/n1")))
        client.close()
        assert isinstance(waiting.exception(10), ApiUnavailableError)
        assert watching.result(10) == []


@pytest.mark.parametrize(("status", "kind"), [(401, ApiDeniedError), (403, ApiDeniedError), (400, ApiError), (405, ApiError)])
def test_a_refusal_carries_the_words_of_the_server(api: ApiServer, client: Client, status: int, kind: type[DraError]) -> None:
    api.fail(status=status, reason="Because", message="nodes is forbidden: go away")
    with pytest.raises(ApiError, match=r"^nodes is forbidden: go away$") as caught:
        client.get(NODES, "n1")
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.reason) == (status, "Because")


def test_an_answer_that_is_no_status_is_quoted(api: ApiServer) -> None:
    client = Client(Connection(api.url + "/elsewhere"), "test")
    with pytest.raises(ApiNotFoundError, match="404 page not found"):
        client.get(NODES, "n1")
    client.close()


def test_an_unreadable_object_costs_only_itself_and_one_log_line(api: ApiServer, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    spec = {"driver": "d.example.com", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n"}
    api.inject("resource.k8s.io/v1", "resourceslices", {"metadata": {"name": "good"}, "spec": spec})
    api.inject("resource.k8s.io/v1", "resourceslices", {"metadata": {"name": "strange"}, "spec": {**spec, "pool": 7}})
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert [found.metadata.name for found in client.list(RESOURCE_SLICES).items] == ["good"]
    assert [record.__dict__["object"] for record in caplog.records] == ["strange"]
    assert client.unreadable == 2
    with client.watch(RESOURCE_SLICES, "1", timeout=0) as watch:
        assert [(event.metadata.name, event.object is None) for event in watch if event.type == "ADDED"] == [("good", False), ("strange", True)]
    with pytest.raises(ApiError, match=r"ResourceSlice from http://.* does not fit"):
        client.get(RESOURCE_SLICES, "strange")


def test_a_list_whose_snapshot_expires_between_pages_starts_again(api: ApiServer, client: Client) -> None:
    for index in range(700):
        api.inject("v1", "nodes", {"metadata": {"name": f"n{index}"}})
    api.fail("GET", "continue=", status=410, reason="Expired")
    assert len({found.metadata.name for found in client.list(NODES).items}) == 700
    assert [("limit=" in request.path, "continue=" in request.path) for request in api.requests("GET")] == [
        (True, False),
        (True, True),
        (False, False),
    ]


def test_a_silent_watch_ends_with_an_error(api: ApiServer, client: Client) -> None:
    with (
        pytest.raises(ApiUnavailableError, match=r"watch of /api/v1/nodes at http://.*: the connection was silent for too long"),
        client.watch(NODES, "1", timeout=300, silence=0.2) as watch,
    ):
        list(watch)


def test_a_watch_that_breaks_ends_with_an_error(api: ApiServer, client: Client) -> None:
    with client.watch(NODES, "1") as watch:
        events = iter(watch)
        client.create(NODES, node())
        assert next(events).type == "ADDED"
        api.cut_watches()
        with pytest.raises(ApiUnavailableError, match=r"watch of /api/v1/nodes"):
            next(events)


def test_threads_share_one_client(api: ApiServer) -> None:
    client = Client(api.connection, "test")
    start = threading.Barrier(8)

    def work(thread: int) -> None:
        start.wait()
        for index in range(25):
            name = f"n{thread}-{index}"
            created = client.create(NODES, node(name))
            assert client.get(NODES, name) == created
            client.delete(NODES, name, uid=created.metadata.uid)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert client.list(NODES).items == []
    assert api.open_connections <= 8
    client.close()
