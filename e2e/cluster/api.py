"""Just enough of the Kubernetes API to see a cluster come up: GET, with the administrator's certificate."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

from e2e.cluster.settings import Settings

TIMEOUT = 5.0


class Api:
    def __init__(self, settings: Settings) -> None:
        self._host = str(settings.control_plane_address)
        self._context = ssl.create_default_context(cafile=str(settings.pki / "ca.crt"))
        self._context.load_cert_chain(settings.pki / "admin.crt", settings.pki / "admin.key")

    def get(self, path: str) -> bytes:
        """The body of the answer. Raises OSError where there is none, or no good one."""
        connection = http.client.HTTPSConnection(self._host, 6443, timeout=TIMEOUT, context=self._context)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"GET {path}: {error!r}") from error
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise ConnectionError(f"GET {path}: status {response.status}")
        return body

    def ready(self) -> bool:
        try:
            return self.get("/readyz") == b"ok"
        except OSError:
            return False

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Each Node object by name. Raises OSError."""
        return {item["metadata"]["name"]: item for item in json.loads(self.get("/api/v1/nodes"))["items"]}


def ready_condition(node: dict[str, Any]) -> tuple[bool, str]:
    """Whether a Node object is Ready, and the kubelet's or controller's word on it."""
    for condition in node.get("status", {}).get("conditions", []):
        if condition["type"] == "Ready":
            return condition["status"] == "True", condition.get("message", "")
    return False, "the kubelet has not reported yet"
