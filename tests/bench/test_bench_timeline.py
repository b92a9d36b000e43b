"""How long slices were absent, from the changes that a watch saw."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes import client

from bench.timeline import Change, Timeline

DRIVER = "gpu.nvidia.com"


class NoSlices:
    """A cluster with one slice, whose watch says nothing."""

    def __init__(self, api: object) -> None:
        pass

    def list_resource_slice(self, *, watch: bool = False, **options: object) -> Any:
        self.data = json.dumps({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "old"}, "spec": {"driver": DRIVER}}]})
        return self

    def stream(self, size: int) -> Iterator[bytes]:
        return iter(())

    def shutdown(self) -> None:
        pass

    close = shutdown


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Timeline]:
    monkeypatch.setattr(client, "ResourceV1Api", NoSlices)
    kube: Any = SimpleNamespace(api=None)
    one = Timeline(kube)
    yield one
    one.close()


def happened(seen: Timeline, *changes: tuple[float, str, bool]) -> None:
    seen._changes += [Change(at, DRIVER, name, gone=gone) for at, name, gone in changes]


def test_absence_begins_when_the_last_slice_goes_and_ends_when_one_comes(seen: Timeline) -> None:
    happened(seen, (10.0, "old", True), (12.5, "new", False))
    assert seen.absent(DRIVER, 9.0, 20.0) == 2.5


def test_an_absence_that_lasts_counts_until_now(seen: Timeline) -> None:
    happened(seen, (10.0, "old", True))
    assert seen.absent(DRIVER, 9.0, 20.0) == 10.0


def test_several_absences_add_up(seen: Timeline) -> None:
    happened(seen, (10.0, "old", True), (11.0, "new", False), (15.0, "new", True), (15.5, "newer", False))
    assert seen.absent(DRIVER, 9.0, 20.0) == 1.5


def test_while_another_slice_is_there_nothing_is_absent(seen: Timeline) -> None:
    happened(seen, (9.5, "second", False), (10.0, "old", True), (12.0, "third", False))
    assert seen.absent(DRIVER, 9.0, 20.0) == 0.0


def test_what_was_before_counts_only_as_the_state_at_the_beginning(seen: Timeline) -> None:
    happened(seen, (1.0, "old", True), (12.0, "new", False))
    assert seen.absent(DRIVER, 9.0, 20.0) == 3.0
    assert seen.absent("other.example.com", 9.0, 20.0) == 11.0


def test_the_first_slice_since_a_moment_is_waited_for(seen: Timeline) -> None:
    happened(seen, (8.0, "early", False), (10.0, "early", True), (12.0, "new", False))
    assert seen.wait_first(DRIVER, 9.0, 1.0) == 12.0
    with pytest.raises(AssertionError, match="not within 0 s: other publishes"):
        seen.wait_first("other", 9.0, 0.0)
