"""What the API server does to ResourceClaims and ResourceClaimTemplates: defaults, immutability, a consistent status."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dra_driver.k8s.field_errors import FieldError, forbidden, invalid, required, too_many
from dra_driver.sandbox.apiserver import devices

IMMUTABLE = "field is immutable"
MAX_REQUESTS = 32
MAX_RESERVATIONS = 256


def prepare(spec: dict[str, Any]) -> None:
    """Defaults of requests (`SetDefaults_ExactDeviceRequest`, `SetDefaults_DeviceSubRequest`)."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        for one in [request.get("exactly"), *(request.get("firstAvailable") or ())]:
            if one is not None and one.setdefault("allocationMode", "ExactCount") == "ExactCount":
                one.setdefault("count", 1)


def validate(new: dict[str, Any], old: dict[str, Any] | None) -> Iterator[FieldError]:
    """The spec never changes; on create the requests are checked, though not their CEL expressions, constraints and configurations."""
    spec = new["spec"]
    if old is not None:
        if spec != old["spec"]:
            yield invalid("spec", spec, IMMUTABLE)
        return
    path = "spec.devices"
    if "spec" in spec:
        spec, path = spec["spec"], "spec.spec.devices"
    requests = (spec.get("devices") or {}).get("requests") or []
    if len(requests) > MAX_REQUESTS:
        yield too_many(f"{path}.requests", len(requests), MAX_REQUESTS)
        return
    for index, request in enumerate(requests):
        yield from _request(request, f"{path}.requests[{index}]")
    yield from devices.unique([request.get("name", "") for request in requests], f"{path}.requests", requests)


def _request(request: dict[str, Any], where: str) -> Iterator[FieldError]:
    yield from devices.label(request.get("name") or "", f"{where}.name")
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
    if exactly is None and not alternatives:
        yield required(where, "exactly one of `exactly` or `firstAvailable` is required")
    elif exactly is not None and alternatives:
        yield invalid(where, None, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set")
    elif exactly is not None:
        yield from _exact(exactly, f"{where}.exactly")
    else:
        for index, one in enumerate(alternatives):
            yield from _exact(one, f"{where}.firstAvailable[{index}]")


def _exact(one: dict[str, Any], where: str) -> Iterator[FieldError]:
    if not one.get("deviceClassName"):
        yield required(f"{where}.deviceClassName")
    mode, count = one["allocationMode"], one.get("count", 0)
    if mode not in ("All", "ExactCount"):
        yield FieldError("Unsupported value", f"{where}.allocationMode", mode, 'supported values: "All", "ExactCount"')
    elif mode == "All" and count:
        yield invalid(f"{where}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount" and count <= 0:
        yield invalid(f"{where}.count", count, "must be greater than zero")


def validate_status(new: dict[str, Any], old: dict[str, Any]) -> Iterator[FieldError]:
    """An allocation never changes, it only comes and goes; consumers need one."""
    status, before = new.get("status") or {}, old.get("status") or {}
    allocation, reserved = status.get("allocation"), status.get("reservedFor") or []
    if len(reserved) > MAX_RESERVATIONS:
        yield too_many("status.reservedFor", len(reserved), MAX_RESERVATIONS)
    if reserved and not allocation:
        yield forbidden("status.reservedFor", "may not be specified when `allocated` is not set")
    if allocation and before.get("allocation") and allocation != before["allocation"]:
        yield invalid("status.allocation", None, "field cannot be modified once set")
    yield from devices.unique([consumer.get("uid", "") for consumer in reserved], "status.reservedFor", reserved)
