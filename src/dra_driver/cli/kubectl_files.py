"""Manifests read as `kubectl apply -f` reads them: YAML or JSON, many documents, lists; of all that only the kinds that are asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dra_driver.errors import SettingsError
from dra_driver.k8s.objects.meta import K, Kind, without_nulls

STDIN = Path("-")


_FastLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where PyYAML was built with libyaml


class _Loader(_FastLoader):  # type: ignore[misc]
    """Times stay texts, as in the API's JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class Manifests:
    """What is in the files. SettingsError names the file, and the object in it, that cannot be read."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._objects = [(path, obj) for path in paths for document in _documents(path) for obj in _flat(path, document)]

    def of(self, kind: Kind[K]) -> list[K]:
        """All objects of the kind. One without a UID, which only the API server gives, gets its place in the files for one."""
        return [self._read(kind, place) for place, (_, obj) in enumerate(self._objects) if self._is(kind, obj)]

    def _is(self, kind: Kind[Any], obj: dict[str, Any]) -> bool:
        group = kind.api_version.rpartition("/")[0]
        return obj.get("kind") == kind.name and str(obj.get("apiVersion", "")).rpartition("/")[0] == group

    def _read(self, kind: Kind[K], place: int) -> K:
        path, data = self._objects[place]
        name = _name(data)
        if data["apiVersion"] != kind.api_version:
            raise SettingsError(f"{path}: {kind.name} {name}: apiVersion is {data['apiVersion']}, only {kind.api_version} is understood")
        try:
            found = msgspec.convert(without_nulls(data), type=kind.type)
        except msgspec.ValidationError as error:
            raise SettingsError(f"{path}: {kind.name} {name}: {error}") from error
        found.metadata.uid = found.metadata.uid or f"{path}#{place}"
        return found


def _documents(path: Path) -> list[Any]:
    try:
        # Standard input as text would hide wrong bytes in the C locale.
        text = (sys.stdin.buffer.read() if path == STDIN else path.read_bytes()).decode()
        return [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: no YAML: {error}") from error


def _flat(path: Path, document: Any) -> Iterator[dict[str, Any]]:
    """The objects of a document; `kind: List` and `kind: SomethingList` hold many."""
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise SettingsError(f"{path}: a document is no Kubernetes object: it has no kind")
    if not document["kind"].endswith("List"):
        yield document
        return
    items = document.get("items") or []
    if not isinstance(items, list):
        raise SettingsError(f"{path}: {document['kind']}: items is {items!r}, it must be a list of objects")
    for item in items:
        # Items of a typed list need not repeat what the list says.
        implied = {} if document["kind"] == "List" else {"apiVersion": document.get("apiVersion"), "kind": document["kind"].removesuffix("List")}
        yield from _flat(path, implied | item if isinstance(item, dict) else item)


def _name(data: dict[str, Any]) -> str:
    metadata = data.get("metadata")
    return str(metadata.get("name", "(no name)")) if isinstance(metadata, dict) else "(no name)"
