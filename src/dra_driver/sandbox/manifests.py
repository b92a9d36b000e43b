"""YAML files as `kubectl apply` takes them, read into our structs and created through the API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from dra_driver.errors import SettingsError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import PODS
from dra_driver.k8s.objects.meta import Kind, TopLevel
from dra_driver.k8s.objects.resource import DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS

KINDS: dict[tuple[str, str], Kind[Any]] = {
    (kind.api_version, kind.name): kind for kind in (DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, PODS)
}


def read(path: Path, *, namespace: str = "default") -> list[TopLevel]:
    """The objects of a file; those without a namespace get this one, where their kind has namespaces.

    SettingsError: the file cannot be read, is no YAML, or holds a kind that the sandbox does not know.
    """
    try:
        documents = [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document is not None]
    except OSError as error:
        raise SettingsError(f"manifest {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"manifest {path}: {error}") from error
    objects: list[TopLevel] = []
    for document in documents:
        kind = _kind(path, document)
        try:
            obj: TopLevel = msgspec.convert(document, type=kind.type)
        except msgspec.ValidationError as error:
            raise SettingsError(f"manifest {path}, {kind.name}: {error}") from error
        if kind.namespaced:
            obj.metadata.namespace = obj.metadata.namespace or namespace
        objects.append(obj)
    return objects


def create(client: Client, obj: TopLevel) -> None:
    """Stores one of the objects that `read` returns. Raises ApiError."""
    client.create(next(kind for kind in KINDS.values() if isinstance(obj, kind.type)), obj)


def _kind(path: Path, document: Any) -> Kind[Any]:
    identity = (document.get("apiVersion"), document.get("kind")) if isinstance(document, dict) else (None, None)
    if identity not in KINDS:
        known = ", ".join(name for _, name in KINDS)
        raise SettingsError(f"manifest {path}: found apiVersion {identity[0]}, kind {identity[1]}, the sandbox knows {known}")
    return KINDS[identity]
