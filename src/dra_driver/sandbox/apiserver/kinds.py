"""The kinds that the double serves, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dra_driver.k8s.field_errors import FieldError
from dra_driver.sandbox.apiserver import claims, events, slices

Json = dict[str, Any]


@dataclass(frozen=True)
class Write:
    """One create (`old` is None) or update on its way to the store."""

    new: Json
    old: Json | None
    now: str
    disabled_gates: frozenset[str]


def _nothing(_: Write) -> None:
    pass


def _anything(_: Write) -> Iterable[FieldError]:
    return ()


@dataclass(frozen=True, eq=False)
class Resource:
    """One row.

    `prepare` sets defaults and drops fields of disabled gates, `validate` refuses; `validate_status` does so for the status subresource.
    `counts_generations`: metadata.generation counts changes of the spec. `first_status` replaces the status of a created object, None keeps it.
    `graceful`: deletion of an object that runs on a node waits for its kubelet. `unconditional`: PUT works without a resourceVersion.
    """

    group_version: str
    kind: str
    plural: str
    namespaced: bool = True
    fields: frozenset[str] = frozenset()
    has_spec: bool = True
    has_status: bool = False
    first_status: Json | None = None
    counts_generations: bool = False
    graceful: bool = False
    unconditional: bool = True
    prepare: Callable[[Write], None] = _nothing
    validate: Callable[[Write], Iterable[FieldError]] = _anything
    validate_status: Callable[[Write], Iterable[FieldError]] = _anything

    @property
    def group(self) -> str:
        """Without the version; empty for core."""
        return self.group_version.rpartition("/")[0]

    @property
    def selectable(self) -> frozenset[str]:
        """Paths of field selectors."""
        return self.fields | {"metadata.name"} | ({"metadata.namespace"} if self.namespaced else set())


_DRA = "resource.k8s.io/v1"

RESOURCES = (
    Resource("v1", "Namespace", "namespaces", namespaced=False, has_status=True, first_status={"phase": "Active"}),
    Resource("v1", "Node", "nodes", namespaced=False, has_status=True, fields=frozenset({"spec.unschedulable"})),
    Resource(
        "v1",
        "Pod",
        "pods",
        has_status=True,
        first_status={"phase": "Pending"},
        counts_generations=True,
        graceful=True,
        fields=frozenset({"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase"}),
    ),
    Resource(
        "v1",
        "Event",
        "events",
        has_spec=False,
        fields=frozenset({"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "reason", "type"}),
    ),
    Resource(
        "events.k8s.io/v1",
        "Event",
        "events",
        has_spec=False,
        fields=frozenset({"regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "reason", "type"}),
        validate=lambda write: events.validate(write.new, write.old),
    ),
    Resource("coordination.k8s.io/v1", "Lease", "leases", unconditional=False),
    Resource(
        _DRA,
        "ResourceSlice",
        "resourceslices",
        namespaced=False,
        counts_generations=True,
        fields=frozenset({"spec.nodeName", "spec.driver", "spec.pool.name"}),
        prepare=lambda write: slices.prepare(write.new, write.old, write.now, write.disabled_gates),
        validate=lambda write: slices.validate(write.new, write.old),
    ),
    Resource(
        _DRA,
        "ResourceClaim",
        "resourceclaims",
        has_status=True,
        first_status={},
        prepare=lambda write: claims.prepare(write.new["spec"]),
        validate=lambda write: claims.validate(write.new, write.old),
        validate_status=lambda write: claims.validate_status(write.new, write.old or {}),
    ),
    Resource(
        _DRA,
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
        prepare=lambda write: claims.prepare(write.new["spec"].setdefault("spec", {})),
        validate=lambda write: claims.validate(write.new, write.old),
    ),
    Resource(_DRA, "DeviceClass", "deviceclasses", namespaced=False, counts_generations=True),
    Resource(
        _DRA,
        "DeviceTaintRule",
        "devicetaintrules",
        namespaced=False,
        counts_generations=True,
        has_status=True,
        first_status={},
        prepare=lambda write: slices.stamp_taint(write.new["spec"].get("taint") or {}, write.now),
    ),
)

BY_PATH = {(resource.group_version, resource.plural): resource for resource in RESOURCES}
