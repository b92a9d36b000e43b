"""JSON merge patch (RFC 7396)."""

from __future__ import annotations

from typing import Any


def merged(value: Any, changes: Any) -> Any:
    """`value` with the changes: objects are merged field by field, null removes a field, anything else replaces."""
    if not isinstance(changes, dict):
        return changes
    result = dict(value) if isinstance(value, dict) else {}
    for field, change in changes.items():
        if change is None:
            result.pop(field, None)
        else:
            result[field] = merged(result.get(field), change)
    return result
