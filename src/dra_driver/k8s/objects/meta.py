"""Parts that every API object has. Structs hold only the fields we use; a null list or map is an empty one."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class Object(msgspec.Struct, rename="camel", omit_defaults=True):
    """Base of all structs: camelCase on the wire, defaults left out, unknown fields ignored."""


class OwnerReference(Object):
    """metav1.OwnerReference."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class ObjectMeta(Object):
    """metav1.ObjectMeta."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []


class ListMeta(Object):
    """metav1.ListMeta."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


def always(value: str) -> Any:
    """A field with this default that is written all the same (`omit_defaults` leaves out only plain defaults)."""
    return msgspec.field(default_factory=lambda: value)


class TopLevel(Object):
    """Base of the kinds: a struct with `metadata`; the subclasses add `api_version` and `kind`."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    def __str__(self) -> str:
        where = f"{self.metadata.namespace}/" if self.metadata.namespace else ""
        return f"{type(self).__name__} {where}{self.metadata.name}"


K = TypeVar("K", bound=TopLevel)


class Kind(msgspec.Struct, Generic[K], frozen=True):
    """Where objects of one type live in the API."""

    type: type[K]
    api_version: str
    name: str
    plural: str
    namespaced: bool = True

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of one object, or of the collection without `name`; `namespace` "" of a namespaced kind is all namespaces."""
        root = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        parts = [root, *(["namespaces", namespace] if self.namespaced and namespace else []), self.plural, name, subresource]
        return "/".join(part for part in parts if part)


class Status(Object):
    """metav1.Status: the API server's answer when it refuses, and the object of an ERROR watch event."""

    message: str = ""
    reason: str = ""
    code: int = 0


def decode(data: bytes, kind: type[T]) -> T:
    """Reads API JSON; explicit nulls are treated as absent, as Go does. Raises `msgspec.DecodeError` on malformed input."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        return msgspec.convert(without_nulls(msgspec.json.decode(data)), type=kind)


def without_nulls(value: Any) -> Any:
    """The JSON value without map entries that are null (Go writes `null` for nil lists and maps)."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
