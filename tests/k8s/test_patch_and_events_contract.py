"""PATCH and Events: what the double and a real API server do alike, seen through our client and our recorder."""

from __future__ import annotations

import urllib.error
import urllib.request
import uuid
from typing import Any

import msgspec
import pytest

from dra_driver.daemon.clock import SystemClock
from dra_driver.errors import ApiConflictError, ApiInvalidError, ApiNotFoundError
from dra_driver.k8s.events import EVENTS, NOTE_BYTES, Event, EventRecorder, EventSeries, ObjectReference, fit
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import RESOURCE_SLICES
from dra_driver.sandbox.apiserver import ApiServer
from tests.k8s.contract import Server

CONTROLLER = "dra-driver-test"
NOW = "2026-12-01T10:00:00.000001Z"


def reference(server: Server) -> ObjectReference:
    return ObjectReference("resource.k8s.io/v1", "DeviceClass", f"class.{server.driver}", str(uuid.uuid4()))


def recorded(server: Server, regarding: ObjectReference) -> list[Event]:
    return [event for event in server.client.list(EVENTS, "default").items if event.regarding.uid == regarding.uid]


def record(server: Server, regarding: ObjectReference, recorder: EventRecorder | None = None, **changes: Any) -> None:
    what = {"type": "Normal", "reason": "Matches", "action": "EvaluateSelectors", "note": "2 devices"} | changes
    (recorder or EventRecorder(server.client, CONTROLLER)).record(regarding, **what)


def test_a_merge_patch_changes_what_it_names(server: Server) -> None:
    wanted = server.slice("one", devices=2)
    wanted.metadata.labels = {"keep": "1", "drop": "1"}
    one = server.client.create(RESOURCE_SLICES, wanted)
    changes = {"metadata": {"labels": {"drop": None, "new": "2"}}, "spec": {"pool": {"generation": 3}, "devices": [{"name": "only"}]}}
    patched = server.client.patch(RESOURCE_SLICES, one.metadata.name, changes=changes)
    assert patched.metadata.labels == {"keep": "1", "new": "2"}
    assert (patched.spec.pool.generation, patched.spec.pool.name, patched.spec.driver) == (3, "pool", server.driver)
    assert [device.name for device in patched.spec.devices] == ["only"]
    assert (patched.metadata.generation, one.metadata.generation) == (2, 1)
    assert server.client.get(RESOURCE_SLICES, one.metadata.name) == patched


def test_an_empty_patch_is_a_read(server: Server) -> None:
    one = server.client.create(RESOURCE_SLICES, server.slice("one"))
    assert server.client.patch(RESOURCE_SLICES, one.metadata.name, changes={}) == one


def test_a_patch_can_be_refused(server: Server) -> None:
    one = server.client.create(RESOURCE_SLICES, server.slice("one"))
    name = one.metadata.name
    with pytest.raises(ApiNotFoundError):
        server.client.patch(RESOURCE_SLICES, "missing", changes={})
    with pytest.raises(ApiInvalidError, match=r"spec.driver: Invalid value: .*field is immutable"):
        server.client.patch(RESOURCE_SLICES, name, changes={"spec": {"driver": "other.example.com"}})
    server.client.patch(RESOURCE_SLICES, name, changes={"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(ApiConflictError, match="the object has been modified"):
        server.client.patch(RESOURCE_SLICES, name, changes={"metadata": {"resourceVersion": one.metadata.resource_version, "labels": {"a": "c"}}})


def test_the_double_says_which_patches_it_does_not_know(api: ApiServer) -> None:
    url = f"{api.url}/apis/resource.k8s.io/v1/resourceslices/x"
    headers = {"Content-Type": "application/json-patch+json"}
    with pytest.raises(urllib.error.HTTPError, match="415") as caught:
        urllib.request.urlopen(urllib.request.Request(url, b"[]", headers, method="PATCH"), timeout=20)
    caught.value.close()


def test_an_event_has_all_that_the_api_wants(server: Server) -> None:
    regarding = reference(server)
    record(server, regarding, EventRecorder(server.client, CONTROLLER, instance="pod-1"), type="Warning")
    (event,) = recorded(server, regarding)
    assert event.metadata.name.startswith(f"class.{server.driver}.")
    assert (event.metadata.namespace, event.regarding) == ("default", regarding)
    assert (event.type, event.reason, event.action, event.note) == ("Warning", "Matches", "EvaluateSelectors", "2 devices")
    assert (event.reporting_controller, event.reporting_instance, event.series) == (CONTROLLER, "pod-1", None)
    assert event.event_time


def test_the_same_again_is_a_series_and_something_else_is_not(server: Server) -> None:
    regarding, recorder = reference(server), EventRecorder(server.client, CONTROLLER)
    for _ in range(3):
        record(server, regarding, recorder)
    record(server, regarding, recorder, reason="NoDeviceMatches")
    record(server, regarding, recorder, note="3 devices")
    found = {(event.reason, event.note): event.series for event in recorded(server, regarding)}
    assert found.keys() == {("Matches", "2 devices"), ("NoDeviceMatches", "2 devices"), ("Matches", "3 devices")}
    series = found.pop(("Matches", "2 devices"))
    assert series
    assert (series.count, set(found.values())) == (3, {None})
    assert series.last_observed_time > "2026"


def test_a_restarted_program_goes_on_with_the_series(server: Server) -> None:
    regarding = reference(server)
    for _ in range(4):
        record(server, regarding, EventRecorder(server.client, CONTROLLER))
    (event,) = recorded(server, regarding)
    assert event.series
    assert event.series.count == 4


def test_an_event_that_has_expired_is_created_again(server: Server) -> None:
    regarding, recorder = reference(server), EventRecorder(server.client, CONTROLLER)
    for _ in range(2):
        record(server, regarding, recorder)
    (event,) = recorded(server, regarding)
    server.client.delete(EVENTS, event.metadata.name, "default")
    for count in (None, 2):
        record(server, regarding, recorder)
        (event,) = recorded(server, regarding)
        assert (event.series.count if event.series else None) == count


def test_a_long_note_and_a_long_name_are_cut_to_what_the_api_takes(server: Server) -> None:
    regarding = reference(server)
    regarding.name = ("x" * 62 + ".") * 3 + "y" * 40 + "." + "z" * 23
    record(server, regarding, note="ü" * 600)
    (event,) = recorded(server, regarding)
    assert len(event.note.encode()) <= NOTE_BYTES
    assert event.note == "ü" * 510 + "…"
    assert fit("u" * NOTE_BYTES) == "u" * NOTE_BYTES


def event(server: Server, **changes: Any) -> Event:
    parts: dict[str, Any] = {
        "metadata": ObjectMeta(name=f"{uuid.uuid4()}.{server.driver}", namespace="default"),
        "event_time": NOW,
        "reporting_controller": CONTROLLER,
        "reporting_instance": "pod",
        "action": "Act",
        "reason": "Reason",
        "regarding": reference(server),
        "note": "note",
        "type": "Normal",
    }
    return Event(**parts | changes)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"note": "n" * 1025}, r"message: Invalid value: .*can have at most 1024 characters"),
        ({"reason": "r" * 129}, r"reason: Invalid value: .*can have at most 128 characters"),
        ({"action": ""}, r"action: Required value"),
        ({"reason": ""}, r"reason: Required value"),
        ({"reporting_instance": ""}, r"reportingInstance: Required value"),
        ({"reporting_controller": ""}, r"reportingController: Required value"),
        ({"event_time": None}, r"eventTime: Required value"),
        ({"type": "Bad"}, r"type: Invalid value: .*has invalid value: Bad"),
        ({"series": EventSeries(1, NOW)}, r"series.count: Invalid value: .*should be at least 2"),
    ],
)
def test_an_event_that_is_not_whole_is_refused(server: Server, changes: dict[str, Any], refusal: str) -> None:
    with pytest.raises(ApiInvalidError, match=refusal):
        server.client.create(EVENTS, event(server, **changes))


@pytest.mark.parametrize("field", ["note", "reason", "type", "action", "reportingInstance"])
def test_of_an_event_only_the_series_may_change(server: Server, field: str) -> None:
    name = server.client.create(EVENTS, event(server)).metadata.name
    with pytest.raises(ApiInvalidError, match="field is immutable"):
        server.client.patch(EVENTS, name, "default", changes={field: "Warning"})
    series = EventSeries(2, NOW)
    patched = server.client.patch(EVENTS, name, "default", changes={"series": msgspec.to_builtins(series)})
    assert patched.series == series
    with pytest.raises(ApiInvalidError, match=r"series.count"):
        server.client.patch(EVENTS, name, "default", changes={"series": {"count": 1}})


def test_the_clock_of_an_event_has_microseconds(server: Server) -> None:
    class Moment(SystemClock):
        def now(self) -> float:
            return 1_800_000_000.000_25

    regarding = reference(server)
    record(server, regarding, EventRecorder(server.client, CONTROLLER, clock=Moment()))
    assert [event.event_time for event in recorded(server, regarding)] == ["2027-01-15T08:00:00.000250Z"]
