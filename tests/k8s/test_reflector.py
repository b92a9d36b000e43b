"""The reflector under everything that an API server can do to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import NODES, Node
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import RESOURCE_SLICES
from dra_driver.k8s.reflector import Handler, Reflector
from dra_driver.sandbox.apiserver import ApiServer
from tests.k8s.conftest import FakeClock

Change = tuple[str | None, str | None]


class Following:
    """A reflector of nodes in a thread, and what its handler saw: the label "v" of old and new."""

    def __init__(self, client: Client, clock: FakeClock, **options: Any) -> None:
        self.seen: list[Change] = []
        self.stop = threading.Event()
        self._changed = threading.Condition()
        self.reflector = Reflector(client, NODES, self._handle, clock=clock, **options)
        self.thread = threading.Thread(target=self.reflector.run, args=(self.stop,))
        self.thread.start()

    def _handle(self, old: Node | None, new: Node | None) -> None:
        with self._changed:
            self.seen.append((_label(old), _label(new)))
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, 20), self.seen

    def wait_seen(self, *changes: Change) -> None:
        self.wait(lambda: self.seen == list(changes))

    def end(self) -> None:
        self.stop.set()
        self.thread.join(20)
        assert not self.thread.is_alive()


def _label(node: Node | None) -> str | None:
    return node.metadata.labels["v"] if node else None


@pytest.fixture
def follow(api: ApiServer, client: Client, clock: FakeClock) -> Iterator[Callable[..., Following]]:
    """Starts one that has synced and is watching."""
    started: list[Following] = []

    def start(**options: Any) -> Following:
        following = Following(client, clock, **options)
        started.append(following)
        assert following.reflector.synced.wait(20)
        assert api.wait_for(lambda: api.open_watches == 1)
        return following

    yield start
    for following in started:
        following.end()


def put(client: Client, name: str, value: str) -> None:
    nodes = {found.metadata.name: found for found in client.list(NODES).items}
    if name in nodes:
        nodes[name].metadata.labels = {"v": value}
        client.replace(NODES, nodes[name])
    else:
        client.create(NODES, Node(metadata=ObjectMeta(name=name, labels={"v": value})))


def _watches(api: ApiServer) -> int:
    return len(api.requests("GET", "watch=true"))


def test_the_copy_follows_and_the_handler_hears_old_and_new_in_order(client: Client, follow: Callable[..., Following]) -> None:
    put(client, "a", "1")
    following = follow()
    put(client, "b", "2")
    put(client, "a", "3")
    client.delete(NODES, "b")
    following.wait_seen((None, "1"), (None, "2"), ("1", "3"), ("2", None))
    assert [key[1] for key in following.reflector.items()] == ["a"]
    assert _label(following.reflector.get("a")) == "3"
    assert following.reflector.get("b") is None
    assert following.reflector.age() == 0


def test_a_large_list_comes_in_pages(api: ApiServer, follow: Callable[..., Following]) -> None:
    for index in range(1001):
        api.inject("v1", "nodes", {"metadata": {"name": f"n{index}", "labels": {"v": "1"}}})
    assert len(follow().reflector.items()) == 1001
    assert len(api.requests("GET", "limit=500")) == 3


def test_watches_ask_for_bookmarks_and_an_end(api: ApiServer, follow: Callable[..., Following]) -> None:
    follow(field_selector="metadata.name=a")
    (request,) = api.requests("GET", "watch=true")
    assert "allowWatchBookmarks=true" in request.path
    assert "timeoutSeconds=" in request.path
    assert "fieldSelector=metadata.name%3Da" in request.path


@pytest.mark.parametrize("path", ["limit=500", "watch=true"])
def test_a_storm_of_errors_meets_few_requests_and_ends_in_recovery(api: ApiServer, client: Client, clock: FakeClock, path: str) -> None:
    storm = api.fail("GET", path, status=500, times=None)
    during: list[int] = []

    def calm() -> None:
        during.append(storm.hits)
        storm.release()

    clock.at(30, calm)
    following = Following(client, clock)
    assert following.reflector.synced.wait(20)
    assert api.wait_for(lambda: api.open_watches == 1)
    put(client, "a", "1")
    following.wait_seen((None, "1"))
    following.end()
    assert 3 <= during[0] <= 10
    assert following.reflector.failures >= during[0]
    assert max(clock.waits) <= 45


def test_the_server_decides_how_long_to_stay_away(api: ApiServer, clock: FakeClock, follow: Callable[..., Following]) -> None:
    api.fail("GET", "limit=500", status=429, retry_after=77)
    follow()
    assert clock.waits[0] >= 77


def test_a_watch_that_falls_silent_is_replaced(api: ApiServer, client: Client, follow: Callable[..., Following]) -> None:
    following = follow(silence=0.3)
    api.mute_watches()
    put(client, "a", "1")
    following.wait_seen((None, "1"))
    assert following.reflector.lists == 1


def test_a_broken_watch_goes_on_without_a_list(api: ApiServer, client: Client, follow: Callable[..., Following]) -> None:
    following = follow()
    api.cut_watches()
    assert api.wait_for(lambda: _watches(api) == 2)
    put(client, "a", "1")
    following.wait_seen((None, "1"))
    assert following.reflector.lists == 1


def test_a_history_that_is_gone_is_replaced_by_a_list_with_deletions(api: ApiServer, client: Client, follow: Callable[..., Following]) -> None:
    put(client, "a", "1")
    put(client, "b", "2")
    following = follow()
    away = api.fail("GET", "watch=true", status=503, times=None)
    api.cut_watches()
    assert away.hit.wait(20)
    client.delete(NODES, "a")
    put(client, "b", "3")
    put(client, "c", "4")
    api.compact()
    away.release()
    following.wait(lambda: len(following.seen) == 5)
    assert following.seen[2:] == [("1", None), ("2", "3"), (None, "4")]
    assert following.reflector.lists == 2


def test_what_came_and_went_in_a_gap_leaves_no_change_but_the_gap_is_told(api: ApiServer, client: Client, follow: Callable[..., Following]) -> None:
    gaps = threading.Semaphore(0)
    following = follow(gap=gaps.release)
    assert gaps.acquire(timeout=20), "of the first list"
    away = api.fail("GET", "watch=true", status=503, times=None)
    api.cut_watches()
    assert away.hit.wait(20)
    put(client, "a", "1")
    client.delete(NODES, "a")
    api.compact()
    away.release()
    assert gaps.acquire(timeout=20)
    assert following.seen == []
    assert not gaps.acquire(blocking=False), "once for each list"


def test_410_as_http_status_means_the_same(api: ApiServer, client: Client, follow: Callable[..., Following]) -> None:
    following = follow()
    gone = api.fail("GET", "watch=true", status=410, reason="Expired", times=3)
    api.cut_watches()
    assert api.wait_for(lambda: gone.hits == 3 and api.open_watches == 1)
    put(client, "a", "1")
    following.wait_seen((None, "1"))
    assert following.reflector.lists == 4
    assert api.open_connections <= 3


def test_bookmarks_spare_a_quiet_watch_the_list(api: ApiServer, client: Client, follow: Callable[..., Following]) -> None:
    following = follow(field_selector="metadata.name=a")
    put(client, "other", "1")
    api.send_bookmarks()
    assert api.wait_for(lambda: following.reflector.events == 1)
    api.compact()
    api.cut_watches()
    assert api.wait_for(lambda: _watches(api) == 2)
    put(client, "a", "1")
    following.wait_seen((None, "1"))
    assert following.reflector.lists == 1


def test_after_a_while_the_copy_is_compared_with_a_full_list(
    api: ApiServer, client: Client, clock: FakeClock, follow: Callable[..., Following]
) -> None:
    put(client, "a", "1")
    following = follow(relist=600)
    clock.time += 601
    api.cut_watches()
    assert api.wait_for(lambda: len(api.requests("GET", "limit=500")) >= 3 and _watches(api) == 2)
    assert following.reflector.lists == 2
    assert following.seen == [(None, "1")]


def test_a_handler_that_raises_is_counted_and_the_loop_goes_on(api: ApiServer, client: Client, clock: FakeClock) -> None:
    heard = threading.Semaphore(0)

    def broken(_old: Node | None, _new: Node | None) -> None:
        heard.release()
        raise RuntimeError("broken handler")

    handler: Handler[Node] = broken
    put(client, "a", "1")
    reflector = Reflector(client, NODES, handler, clock=clock)
    stop = threading.Event()
    thread = threading.Thread(target=reflector.run, args=(stop,))
    thread.start()
    put(client, "b", "2")
    assert heard.acquire(timeout=20)
    assert heard.acquire(timeout=20)
    assert api.wait_for(lambda: reflector.handler_failures == 2)
    stop.set()
    thread.join(20)
    assert len(reflector.items()) == 2
    assert reflector.failures == 0


def test_an_object_that_becomes_unreadable_counts_as_deleted(api: ApiServer, client: Client, clock: FakeClock) -> None:
    spec = {"driver": "d.example.com", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n"}
    changes: list[tuple[bool, bool]] = []
    third = threading.Event()

    def handle(old: object, new: object) -> None:
        changes.append((old is not None, new is not None))
        if len(changes) == 3:
            third.set()

    api.inject("resource.k8s.io/v1", "resourceslices", {"metadata": {"name": "a"}, "spec": spec})
    reflector = Reflector(client, RESOURCE_SLICES, handle, clock=clock)
    stop = threading.Event()
    thread = threading.Thread(target=reflector.run, args=(stop,))
    thread.start()
    assert reflector.synced.wait(20)
    api.inject("resource.k8s.io/v1", "resourceslices", {"metadata": {"name": "a"}, "spec": {**spec, "pool": 7}})
    api.inject("resource.k8s.io/v1", "resourceslices", {"metadata": {"name": "b"}, "spec": spec})
    assert third.wait(20)
    stop.set()
    thread.join(20)
    assert changes == [(False, True), (True, False), (False, True)]


def test_a_server_that_ends_watches_at_once_gets_pauses(api: ApiServer, client: Client, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_driver.k8s.reflector.WATCH_SECONDS", (0, 0))
    stop = threading.Event()
    clock.at(30, stop.set)
    Reflector(client, NODES, clock=clock).run(stop)
    assert _watches(api) <= 10


def test_stop_ends_the_loop_in_the_middle_of_a_watch(follow: Callable[..., Following]) -> None:
    follow().end()
