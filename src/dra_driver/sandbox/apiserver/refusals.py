"""How an API server says no: `metav1.Status`, with the texts of the real one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dra_driver.k8s.field_errors import FieldError


class Refusal(Exception):  # noqa: N818 - the answer to a request, not an error of the double
    """Becomes the answer to the request, or the ERROR event of a watch."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}

    def status(self) -> dict[str, Any]:
        """The JSON."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            **({"details": self.details} if self.details else {}),
            "code": self.code,
        }


def bad_request(message: str) -> Refusal:
    """400."""
    return Refusal(400, "BadRequest", message)


def not_found(group: str, plural: str, name: str) -> Refusal:
    """404 for an object."""
    return Refusal(404, "NotFound", f'{_dotted(plural, group)} "{name}" not found', _details(group, plural, name))


def already_exists(group: str, plural: str, name: str) -> Refusal:
    """409 on create."""
    return Refusal(409, "AlreadyExists", f'{_dotted(plural, group)} "{name}" already exists', _details(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str) -> Refusal:
    """409 on write."""
    return Refusal(409, "Conflict", f'Operation cannot be fulfilled on {_dotted(plural, group)} "{name}": {why}', _details(group, plural, name))


def expired(message: str) -> Refusal:
    """410."""
    return Refusal(410, "Expired", message)


def unprocessable(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> Refusal:
    """422."""
    texts = list(dict.fromkeys(map(str, errors)))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [{"reason": error.reason, "message": error.body(), "field": error.field} for error in errors]
    return Refusal(422, "Invalid", f'{_dotted(kind, group)} "{name}" is invalid: {text}', {**_details(group, kind, name), "causes": causes})


def _details(group: str, kind: str, name: str) -> dict[str, Any]:
    return {"name": name, **({"group": group} if group else {}), "kind": kind}


def _dotted(name: str, group: str) -> str:
    return f"{name}.{group}" if group else name
