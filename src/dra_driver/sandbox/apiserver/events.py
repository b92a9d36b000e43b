"""What the API server refuses of an events.k8s.io/v1 Event. Its messages use the field names of the older core/v1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dra_driver.k8s.field_errors import FieldError, invalid, required

_NEEDED = ("reportingController", "reportingInstance", "action", "reason")
_TEXT_BYTES = {"reportingInstance": 128, "action": 128, "reason": 128, "note": 1024}
_IMMUTABLE = (*_NEEDED, "regarding", "note", "type", "eventTime")
_NAMES = {"regarding": "involvedObject", "note": "message"}
_NAMESPACES_OF_CLUSTER_WIDE_OBJECTS = ("default", "kube-system")


def validate(new: dict[str, Any], old: dict[str, Any] | None) -> Iterator[FieldError]:
    """On create all fields, on update that nothing but the series changes."""
    regarding = new.get("regarding") or {}
    if not regarding.get("namespace") and new["metadata"].get("namespace") not in _NAMESPACES_OF_CLUSTER_WIDE_OBJECTS:
        yield invalid("involvedObject.namespace", "", "does not match event.namespace")
    for field in _NEEDED if old else (*_NEEDED, "eventTime"):
        if not new.get(field):
            yield required(field)
    for field, limit in _TEXT_BYTES.items():
        yield from _short(new.get(field) or "", _NAMES.get(field, field), limit)
    if old is None or new.get("series") != old.get("series"):
        yield from _series(new.get("series"))
    if old is None and new.get("type") not in ("Normal", "Warning"):
        yield invalid("type", "", f"has invalid value: {new.get('type', '')}")
    for field in _IMMUTABLE if old else ():
        if new.get(field) != (old or {}).get(field):
            yield invalid(_NAMES.get(field, field), new.get(field), "field is immutable")


def _short(text: str, field: str, limit: int) -> Iterator[FieldError]:
    if len(text.encode()) > limit:
        yield invalid(field, "", f"can have at most {limit} characters")


def _series(series: dict[str, Any] | None) -> Iterator[FieldError]:
    if series is not None:
        if series.get("count", 0) < 2:
            yield invalid("series.count", "", "should be at least 2")
        if not series.get("lastObservedTime"):
            yield required("series.lastObservedTime")
