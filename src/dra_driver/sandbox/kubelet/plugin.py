"""One registered instance of a DRA driver, as the kubelet talks to it: v1 or v1beta1 over its service socket, and its health stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import grpc

from dra_driver.errors import ClaimRetryError
from dra_driver.kubelet._proto import dra_v1_pb2, dra_v1_pb2_grpc, dra_v1beta1_pb2, dra_v1beta1_pb2_grpc
from dra_driver.sandbox.kubelet.calls import CallRecorder
from dra_driver.sandbox.kubelet.health import HealthCache, HealthWatch
from dra_driver.sandbox.kubelet.release import Release
from dra_driver.sandbox.kubelet.timing import Timing


@dataclass(frozen=True)
class ClaimReference:
    """How the kubelet names a claim to a driver."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class PreparedDevice:
    """A device that a driver prepared. No `request_names` means: for all requests of the claim."""

    pool: str
    device: str
    request_names: tuple[str, ...] = ()
    cdi_device_ids: tuple[str, ...] = ()
    share_id: str | None = None


@dataclass(frozen=True)
class _Service:
    messages: ModuleType
    stub: Callable[[grpc.Channel], Any]


SERVICES: Mapping[str, _Service] = {
    "v1.DRAPlugin": _Service(dra_v1_pb2, dra_v1_pb2_grpc.DRAPluginStub),
    "v1beta1.DRAPlugin": _Service(dra_v1beta1_pb2, dra_v1beta1_pb2_grpc.DRAPluginStub),
}
"""What this kubelet speaks, by the name in `supported_versions`."""


def unix_channel(path: str) -> grpc.Channel:
    """A connection of its own to a socket; Go clients send `localhost` as the authority too."""
    return grpc.insecure_channel(f"unix:{path}", options=[("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)])


def is_connected(channel: grpc.Channel) -> bool:
    """Whether the connection stands; opens it where it does not."""
    # The synchronous API tells the state publicly only by `subscribe`, whose thread outlives the channel.
    state = channel._channel.check_connectivity_state(True)  # type: ignore[attr-defined]  # noqa: SLF001
    return bool(state == grpc.ChannelConnectivity.READY.value[0])


def rpc_error_text(error: grpc.RpcError) -> str:
    """A failed call as Go's grpc writes it into events: `rpc error: code = DeadlineExceeded desc = …`."""
    code = "".join(word.capitalize() for word in error.code().name.split("_"))
    return f"rpc error: code = {code} desc = {error.details()}"


class DraPlugin:
    """The connection is kept while the plugin is registered; `connected` says whether it stood when `look` was last called."""

    def __init__(self, driver: str, endpoint: str, service: str, *, recorder: CallRecorder, timeout: float) -> None:
        self.driver = driver
        self.endpoint = endpoint
        self.service = service
        self.connected = False
        self.health: HealthWatch | None = None
        self._messages = SERVICES[service].messages
        self._timeout = timeout
        self._channel = unix_channel(endpoint)
        self._stub = SERVICES[service].stub(grpc.intercept_channel(self._channel, recorder))

    def look(self) -> bool:
        """Notes the state of the connection and opens it again where it was lost; tells whether the state changed."""
        before, self.connected = self.connected, is_connected(self._channel)
        return before != self.connected

    def watch_health(self, service: str, cache: HealthCache, *, release: Release, timing: Timing) -> None:
        """Keeps a health stream open until `close`."""
        self.health = HealthWatch(self._channel, self.driver, service, cache, release=release, timing=timing)

    def close(self) -> None:
        """Ends the connection; running calls are cancelled."""
        self._channel.close()
        if self.health is not None:
            self.health.close()

    def prepare(self, claims: Sequence[ClaimReference]) -> dict[str, tuple[PreparedDevice, ...]]:
        """NodePrepareResources; the devices of each claim by its UID.

        ClaimRetryError with the kubelet's text: the call failed, an answer has an error, an unknown claim, or no entry for one of the claims.
        """
        results = self._call("NodePrepareResources", claims)
        return {uid: tuple(map(_prepared_device, result.devices)) for uid, result in results.items()}

    def unprepare(self, claims: Sequence[ClaimReference]) -> None:
        """NodeUnprepareResources; errors as for `prepare`."""
        self._call("NodeUnprepareResources", claims)

    def _call(self, method: str, claims: Sequence[ClaimReference]) -> Mapping[str, Any]:
        request = getattr(self._messages, f"{method}Request")()
        for claim in claims:
            request.claims.add(namespace=claim.namespace, uid=claim.uid, name=claim.name)
        try:
            response = getattr(self._stub, method)(request, timeout=self._timeout)
        except grpc.RpcError as error:
            raise ClaimRetryError(f"{method}: {rpc_error_text(error)}") from error
        except ValueError as error:  # `close` was called between the choice of the plugin and its call
            raise ClaimRetryError(f"{method}: rpc error: code = Canceled desc = grpc: the client connection is closing") from error
        results: Mapping[str, Any] = response.claims
        _check(method, claims, results)
        return results


def _check(method: str, claims: Sequence[ClaimReference], results: Mapping[str, Any]) -> None:
    asked = {claim.uid: claim.name for claim in claims}
    for uid, result in results.items():
        if uid not in asked:
            raise ClaimRetryError(f"{method} returned result for unknown claim UID {uid}")
        if result.error:
            raise ClaimRetryError(f"{method} failed for ResourceClaim {asked[uid]}: {result.error}")
    if unfinished := len(claims) - len(results):
        raise ClaimRetryError(f"{method} skipped {unfinished} ResourceClaims")


def _prepared_device(device: Any) -> PreparedDevice:
    return PreparedDevice(
        pool=device.pool_name,
        device=device.device_name,
        request_names=tuple(device.request_names),
        cdi_device_ids=tuple(device.cdi_device_ids),
        share_id=getattr(device, "share_id", "") or None,
    )
