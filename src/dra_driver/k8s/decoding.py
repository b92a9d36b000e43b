"""JSON of one object into its struct, so that one bad object never costs the others.

An object of a newer or broken writer may not fit our struct. It counts as absent, alike in lists and watches, and is logged once with its name.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Generic

import msgspec

from dra_driver.k8s.objects.meta import K, Kind, Object, ObjectMeta, decode

log = logging.getLogger(__name__)

_REMEMBERED = 1000


class Decoded(msgspec.Struct, Generic[K], frozen=True):
    """`object` is None when only the metadata could be read."""

    metadata: ObjectMeta
    object: K | None


class _OnlyMetadata(Object):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class Decoder:
    """Thread-safe. `unreadable` counts the objects that did not fit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged: set[tuple[str, str, str]] = set()
        self.unreadable = 0

    def read(self, kind: Kind[K], raw: bytes | msgspec.Raw) -> Decoded[K]:
        """Never raises on well-formed JSON."""
        data = bytes(raw)
        try:
            found = decode(data, kind.type)
        except msgspec.ValidationError as error:
            metadata = read_metadata(data)
            self._note(kind, metadata, error)
            return Decoded(metadata, None)
        return Decoded(found.metadata, found)

    def _note(self, kind: Kind[Any], metadata: ObjectMeta, error: msgspec.ValidationError) -> None:
        key = (kind.name, metadata.namespace, metadata.name)
        with self._lock:
            self.unreadable += 1
            if key in self._logged:
                return
            if len(self._logged) >= _REMEMBERED:
                self._logged.clear()
            self._logged.add(key)
        extra = {"kind": kind.name, "namespace": metadata.namespace, "object": metadata.name, "error": str(error)}
        log.warning("object unreadable, treated as absent", extra=extra)


def read_metadata(data: bytes) -> ObjectMeta:
    """The metadata of any object; empty if even that does not fit."""
    try:
        return decode(data, _OnlyMetadata).metadata
    except msgspec.ValidationError:
        return ObjectMeta()
