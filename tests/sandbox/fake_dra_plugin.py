"""A DRA driver of a few lines, so that tests of the kubelet stand-in can make it answer anything."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import grpc

from dra_driver.kubelet._proto import (
    dra_health_v1_pb2,
    dra_health_v1_pb2_grpc,
    dra_health_v1alpha1_pb2,
    dra_health_v1alpha1_pb2_grpc,
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    dra_v1beta1_pb2,
    dra_v1beta1_pb2_grpc,
    plugin_registration_pb2,
)
from dra_driver.kubelet._proto import plugin_registration_pb2_grpc as registration_grpc

VERSIONS = ("v1.DRAPlugin", "v1beta1.DRAPlugin")


class FakePlugin:
    """Serves both sockets until `stop`. `answer` may be replaced: it gets the module of messages, the method and the request.

    With `health`, which gets the module of messages and yields responses, DRAResourceHealth is served as well.
    """

    def __init__(
        self, root: Path, name: str = "gpu.example.com", *, instance: str = "", versions: tuple[str, ...] = VERSIONS, plugin_type: str = "DRAPlugin"
    ) -> None:
        self.name = name
        self.info = plugin_registration_pb2.PluginInfo(type=plugin_type, name=name, supported_versions=versions)
        self.directory = root / "plugins" / name
        self.directory.mkdir(parents=True, exist_ok=True)
        self.endpoint = self.directory / f"dra{instance}.sock"
        self.info.endpoint = str(self.endpoint)
        self.registrar = root / "plugins_registry" / f"{name}{instance}-reg.sock"
        self.registrar.parent.mkdir(exist_ok=True)
        self.statuses: list[plugin_registration_pb2.RegistrationStatus] = []
        self.refuse_status = False
        self.hold_info = threading.Event()
        self.hold_info.set()
        self.health: Callable[[Any], Iterator[Any]] | None = None
        self.answer: Callable[[Any, str, Any], Any] = self.succeed
        self._service = grpc.server(ThreadPoolExecutor(4))
        self._registration = grpc.server(ThreadPoolExecutor(4))

    def start(self) -> Self:
        dra_v1_pb2_grpc.add_DRAPluginServicer_to_server(_Dra(self, dra_v1_pb2), self._service)  # type: ignore[arg-type]
        dra_v1beta1_pb2_grpc.add_DRAPluginServicer_to_server(_Dra(self, dra_v1beta1_pb2), self._service)  # type: ignore[arg-type]
        if self.health is not None:
            dra_health_v1_pb2_grpc.add_DRAResourceHealthServicer_to_server(_Health(self.health, dra_health_v1_pb2), self._service)  # type: ignore[arg-type]
            alpha = _Health(self.health, dra_health_v1alpha1_pb2)
            dra_health_v1alpha1_pb2_grpc.add_DRAResourceHealthServicer_to_server(alpha, self._service)  # type: ignore[arg-type]
        registration_grpc.add_RegistrationServicer_to_server(_Registration(self), self._registration)
        self._service.add_insecure_port(f"unix:{self.endpoint}")
        self._service.start()
        self._registration.add_insecure_port(f"unix:{self.registrar}")
        self._registration.start()
        return self

    def stop(self) -> None:
        """A clean end: the registrar's socket goes first. grpc removes the files of its sockets."""
        self.hold_info.set()
        self._registration.stop(None).wait()
        self._service.stop(None).wait()
        for path in (self.registrar, self.endpoint):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def stop_service(self) -> None:
        """As a hung or dead process whose registrar socket stays."""
        self._service.stop(None).wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def device(self, messages: Any, uid: str, **fields: Any) -> Any:
        device = messages.Device(pool_name="node-a", device_name=f"{self.name}-dev", cdi_device_ids=[f"example.com/gpu={uid}"])
        for key, value in fields.items():
            if isinstance(value, list):
                getattr(device, key).extend(value)
            else:
                setattr(device, key, value)
        return device

    def succeed(self, messages: Any, method: str, request: Any) -> Any:
        response = getattr(messages, f"{method}Response")()
        for claim in request.claims:
            if method == "NodePrepareResources":
                response.claims[claim.uid].devices.append(self.device(messages, claim.uid))
            else:
                response.claims[claim.uid].SetInParent()
        return response


class _Dra:
    def __init__(self, plugin: FakePlugin, messages: Any) -> None:
        self._plugin = plugin
        self._messages = messages

    def NodePrepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer("NodePrepareResources", request, context)

    def NodeUnprepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer("NodeUnprepareResources", request, context)

    def _answer(self, method: str, request: Any, context: Any) -> Any:
        try:
            return self._plugin.answer(self._messages, method, request)
        except RuntimeError as error:
            context.abort(grpc.StatusCode.INTERNAL, str(error))


class _Health:
    def __init__(self, responses: Callable[[Any], Iterator[Any]], messages: Any) -> None:
        self._responses = responses
        self._messages = messages

    def NodeWatchResources(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        return self._responses(self._messages)


class _Registration(registration_grpc.RegistrationServicer):
    def __init__(self, plugin: FakePlugin) -> None:
        self._plugin = plugin

    def GetInfo(self, request: Any, context: Any) -> plugin_registration_pb2.PluginInfo:  # noqa: N802
        self._plugin.hold_info.wait()
        return self._plugin.info

    def NotifyRegistrationStatus(self, request: Any, context: Any) -> plugin_registration_pb2.RegistrationStatusResponse:  # noqa: N802
        self._plugin.statuses.append(request)
        if self._plugin.refuse_status:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now")
        return plugin_registration_pb2.RegistrationStatusResponse()
