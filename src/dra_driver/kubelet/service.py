"""DRAPlugin, the service that the kubelet calls, in both API versions.

v1 and v1beta1 have the same methods and messages, but for `share_id`; one implementation serves both, given the generated module of the version.
Each call gets one entry for each claim asked for, and no other: the kubelet treats anything else as a failure of all of them.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterable
from typing import Any, Protocol

import grpc

from dra_driver.daemon import logs
from dra_driver.errors import ClaimRetryError, DraError
from dra_driver.kubelet._proto import dra_v1_pb2, dra_v1_pb2_grpc, dra_v1beta1_pb2, dra_v1beta1_pb2_grpc
from dra_driver.kubelet.claims import PATIENCE, Caller, ClaimKeeper, PreparedDevice
from dra_driver.kubelet.journal import ClaimKey

log = logging.getLogger(__name__)

WORKERS = 64  # threads, made when they are needed
MOST_PREPARES = 48  # at a time; the rest of the workers is for unprepares, which pods that end wait for
ANSWER_TIME = 1.0  # seconds before the caller's deadline at which an answer must be on its way

V1 = "v1.DRAPlugin"
V1BETA1 = "v1beta1.DRAPlugin"
VERSIONS = (V1, V1BETA1)

_CALLS = itertools.count(1)


def _caller(context: grpc.ServicerContext) -> Caller:
    left = context.time_remaining()
    return Caller(PATIENCE if left is None else left - ANSWER_TIME, context.is_active)


class _WireClaim(Protocol):
    namespace: str
    name: str
    uid: str


class _Service:
    """The methods of DRAPlugin. `messages` is the generated module of one version."""

    def __init__(self, keeper: ClaimKeeper, messages: Any, prepares: threading.Semaphore) -> None:
        self._keeper = keeper
        self._prepares = prepares
        self._messages = messages
        self._version = messages.DESCRIPTOR.package.rpartition(".")[2]
        self._has_share_id = "share_id" in messages.Device.DESCRIPTOR.fields_by_name

    def NodePrepareResources(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        """Prepares all claims of the request; errors are per claim."""
        claims = self._keys("prepare", request.claims)
        response = self._messages.NodePrepareResourcesResponse()
        if not self._prepares.acquire(blocking=False):
            return self._all_failed(response, claims, "prepare", ClaimRetryError(f"{MOST_PREPARES} other calls are being prepared; try again later"))
        try:
            outcomes = self._keeper.prepare(claims, _caller(context))
        except Exception as error:  # noqa: BLE001  the journal, or a bug: all claims of this call fail, none of another call
            return self._all_failed(response, claims, "prepare", error)
        finally:
            self._prepares.release()
        for claim in claims:
            outcome = outcomes[claim.uid]
            entry = response.claims[claim.uid]
            if isinstance(outcome, DraError):
                entry.error = str(outcome)
            else:
                entry.devices.extend(self._device(device) for device in outcome)
        return response

    def NodeUnprepareResources(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802, ARG002
        """Unprepares all claims of the request; errors are per claim."""
        claims = self._keys("unprepare", request.claims)
        response = self._messages.NodeUnprepareResourcesResponse()
        try:
            outcomes = self._keeper.unprepare(claims)
        except Exception as error:  # noqa: BLE001
            return self._all_failed(response, claims, "unprepare", error)
        for claim in claims:
            outcome = outcomes[claim.uid]
            response.claims[claim.uid].error = "" if outcome is None else str(outcome)
        return response

    def _keys(self, operation: str, claims: Iterable[_WireClaim]) -> list[ClaimKey]:
        """The claims asked for, each UID once."""
        logs.operation.set(f"{operation}-{next(_CALLS)}")
        keys = list({claim.uid: ClaimKey(claim.namespace, claim.name, claim.uid) for claim in claims}.values())
        log.debug("call", extra={"operation": operation, "version": self._version, "claims": [str(key) for key in keys]})
        return keys

    def _all_failed(self, response: Any, claims: list[ClaimKey], operation: str, error: Exception) -> Any:
        log.error("call failed", exc_info=None if isinstance(error, DraError) else error, extra={"operation": operation, "error": str(error)})
        shown = error if isinstance(error, DraError) else ClaimRetryError(f"internal error, please report it: {type(error).__name__}: {error}")
        for claim in claims:
            response.claims[claim.uid].error = f"claim {claim}: {shown}"
        return response

    def _device(self, device: PreparedDevice) -> Any:
        wire = self._messages.Device(request_names=device.requests, pool_name=device.pool, device_name=device.device, cdi_device_ids=device.cdi_ids)
        if self._has_share_id and device.share_id:
            wire.share_id = device.share_id
        return wire


class _V1(_Service, dra_v1_pb2_grpc.DRAPluginServicer):
    pass


class _V1Beta1(_Service, dra_v1beta1_pb2_grpc.DRAPluginServicer):
    pass


def add_to(server: grpc.Server, keeper: ClaimKeeper, versions: Iterable[str] = VERSIONS) -> None:
    """Serves DRAPlugin for `keeper` on `server` in the given versions."""
    prepares = threading.Semaphore(MOST_PREPARES)
    for version in versions:
        if version == V1:
            dra_v1_pb2_grpc.add_DRAPluginServicer_to_server(_V1(keeper, dra_v1_pb2, prepares), server)
        elif version == V1BETA1:
            dra_v1beta1_pb2_grpc.add_DRAPluginServicer_to_server(_V1Beta1(keeper, dra_v1beta1_pb2, prepares), server)
        else:
            raise ValueError(f"unknown DRAPlugin version {version}; known are {', '.join(VERSIONS)}")
