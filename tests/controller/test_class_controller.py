"""The running controller against an API server: every change is judged, told once, and survives what the server does."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from dra_driver.k8s.objects.resource import DEVICE_CLASSES, RESOURCE_SLICES
from dra_driver.sandbox.apiserver import ApiServer
from tests.controller.bed import FAILING, GOOD, INVALID, NOWHERE, ControllerBed, LogLines, a_class, a_slice, gpu

MANIFEST = Path(__file__).resolve().parents[2] / "manifests" / "rbac-controller.yaml"


def test_a_class_is_judged_when_it_comes_changes_and_goes(bed: ControllerBed) -> None:
    bed.client.create(RESOURCE_SLICES, a_slice("a", gpu("gpu-0"), gpu("gpu-1")))
    one = bed.client.create(DEVICE_CLASSES, a_class("one", GOOD))
    line = bed.log.wait_judged("one", "Matches")
    assert (line["was"], line["devices"], line["nodes"], line["levelname"]) == ("", 2, 1, "INFO")

    one.spec = a_class("one", INVALID).spec
    bed.client.replace(DEVICE_CLASSES, one)
    line = bed.log.wait_judged("one", "SelectorInvalid")
    assert (line["was"], line["levelname"]) == ("Matches", "WARNING")
    assert "<input>:1:7: undefined field 'drvier'" in line["note"]

    bed.client.delete(DEVICE_CLASSES, "one")
    bed.log.wait("device class gone", lambda line: line["class"] == "one")
    assert bed.controller.reports == {}
    assert len(bed.log.of("device class judged")) == 2


def test_a_class_is_judged_again_when_slices_come_change_and_go(bed: ControllerBed) -> None:
    bed.client.create(DEVICE_CLASSES, a_class("one", GOOD))
    assert bed.log.wait_judged("one", "NoDeviceMatches")["note"] == "No devices are published in ResourceSlices."
    published = bed.client.create(RESOURCE_SLICES, a_slice("a", gpu("gpu-0")))
    bed.log.wait_judged("one", "Matches")
    published.spec.devices.append(gpu("gpu-1", attributes={}))
    published = bed.client.replace(RESOURCE_SLICES, published)
    assert "no such key: type" in bed.log.wait_judged("one", "SelectorFails")["note"]
    bed.client.delete(RESOURCE_SLICES, published.metadata.name)
    bed.log.wait("device class judged", lambda line: line["was"] == "SelectorFails")


def test_each_state_has_its_event_on_the_class(bed: ControllerBed) -> None:
    bed.client.create(RESOURCE_SLICES, a_slice("a", gpu("gpu-0")))
    wanted = {
        "invalid": (INVALID, "SelectorInvalid", "Warning"),
        "fails": (FAILING, "SelectorFails", "Warning"),
        "nowhere": (NOWHERE, "NoDeviceMatches", "Warning"),
        "good": (GOOD, "Matches", "Normal"),
    }
    uids = {name: bed.client.create(DEVICE_CLASSES, a_class(name, row[0])).metadata.uid for name, row in wanted.items()}
    for name, (_, reason, kind) in wanted.items():
        event = bed.wait_event(name, reason)
        assert (event.type, event.regarding.uid, event.regarding.kind, event.action) == (kind, uids[name], "DeviceClass", "EvaluateSelectors")
        assert event.note == bed.log.wait_judged(name, reason)["note"]
    assert len(bed.events()) == len(wanted)


def test_what_stays_the_same_is_not_told_again(bed: ControllerBed) -> None:
    bed.client.create(RESOURCE_SLICES, a_slice("a", gpu("gpu-0")))
    bed.client.create(DEVICE_CLASSES, a_class("one", GOOD))
    bed.wait_event("one", "Matches")
    # More devices are the same state; the second class proves that the pass has been.
    bed.client.create(RESOURCE_SLICES, a_slice("b", gpu("gpu-0")))
    bed.client.create(DEVICE_CLASSES, a_class("two", "device.driver.matches('^gpu')"))
    bed.wait_event("two", "Matches")
    assert [line["class"] for line in bed.log.of("device class judged")] == ["one", "two"]
    assert sorted(event.regarding.name for event in bed.events()) == ["one", "two"]


def test_storms_of_errors_are_outlived(api: ApiServer, log: LogLines) -> None:
    storms = [api.fail("GET", "", status=500, times=2), api.fail("POST", "/events", status=500, times=1)]
    with ControllerBed(api, log) as bed:
        bed.client.create(DEVICE_CLASSES, a_class("one", GOOD))
        bed.wait_event("one", "NoDeviceMatches")
        api.fail("GET", "watch=true", status=410, reason="Expired", times=2)
        api.compact()
        api.cut_watches()
        bed.client.create(RESOURCE_SLICES, a_slice("a", gpu("gpu-0")))
        bed.log.wait_judged("one", "Matches")
        assert [storm.hits for storm in storms] == [2, 1]
        assert len(log.of("Events cannot be written")) == 1
        assert len(log.of("Events are written again")) == 1
        assert log.of("loop failed, will be restarted") == []


def test_probes_tell_what_is_missing(api: ApiServer, log: LogLines) -> None:
    storm = api.fail("GET", "resourceslices", status=500, times=None)
    with ControllerBed(api, log) as bed:
        probes = bed.probes
        assert storm.hit.wait(20)
        assert bed.controller.classes.synced.wait(20)
        ready = probes.readiness()
        assert not ready.good
        assert re.search(r"^ResourceSlices: not listed yet, \d+ attempts failed$", ready.text, re.MULTILINE)
        assert "DeviceClasses: ok" in ready.text
        assert "reports: the first pass over all classes is not finished" in ready.text
        assert probes.health().good
        storm.release()
        bed.client.create(DEVICE_CLASSES, a_class("one", GOOD))
        bed.wait_event("one", "NoDeviceMatches")
        assert bed.controller.slices.synced.is_set()
        assert probes.readiness().good
        assert len(probes.health().text.splitlines()) == 4


def test_the_shipped_role_allows_just_what_is_asked(bed: ControllerBed, api: ApiServer) -> None:
    bed.client.create(DEVICE_CLASSES, a_class("one", GOOD))
    bed.wait_event("one", "NoDeviceMatches")
    assert api.wait_for(lambda: api.open_watches == 2)
    (role,) = (found for found in yaml.safe_load_all(MANIFEST.read_text()) if found["kind"] == "ClusterRole")
    allowed = {
        (group, resource, verb) for rule in role["rules"] for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]
    }
    asked = set()
    for request in api.requests():
        group, resource = re.match(r"/apis/([^/]+)/v1/(?:namespaces/[^/]+/)?([^/?]+)", request.path).groups()  # type: ignore[union-attr]
        asked.add((group, resource, "watch" if "watch=true" in request.path else {"GET": "list", "POST": "create", "PATCH": "patch"}[request.method]))
    mine = asked - {("events.k8s.io", "events", "list"), ("resource.k8s.io", "deviceclasses", "create")}  # the test's own
    assert mine <= allowed
    assert {verb for _, resource, verb in allowed if resource == "events"} == {"create", "patch"}
