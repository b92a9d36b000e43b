"""Every error that this project raises on purpose.

::

    DraError                      retryable = False unless said otherwise
    ├── SettingsError             the process: a flag, variable or file is wrong; exit status 2
    ├── StoppedError              the process: it is to end before it has started; exit status 0
    ├── HostError                 the process: a directory, socket or library of this host cannot be used
    │   ├── HostNotReadyError     retryable: it is not there yet, such as a driver that is being installed
    │   └── InstanceConflictError another live instance or driver holds our place
    ├── JournalError              the process: the journal of prepared claims cannot be read or written
    │   └── JournalDamagedError   its content is not what was written
    ├── ApiError                  one request to the API server: `status`, `reason`, `message`
    │   ├── ApiUnavailableError   retryable: no connection, timeout, 429, 5xx
    │   ├── ApiNotFoundError      404
    │   ├── ApiConflictError      409: another writer was first, or the name exists
    │   ├── ApiGoneError          410: the resourceVersion is too old, list again
    │   ├── ApiInvalidError       422: the object was understood and refused
    │   └── ApiDeniedError        401, 403
    ├── ClaimError                one ResourceClaim: the others of the call are not affected
    │   ├── ClaimRetryError       retryable: the same call may succeed later
    │   │   ├── DeviceHeldError   another claim still holds the device
    │   │   └── NoFitError        no free devices satisfy the claim on this node
    │   └── UnsupportedRequestError   the claim asks for what this version cannot do yet
    ├── DeviceError               one device of this node
    │   └── DeviceNotReadyError   retryable: something of it is not there yet, such as its device node
    ├── SliceError                one ResourceSlice breaks a limit of the API
    ├── ParseError                a Quantity or version text that Go would refuse as well; also a ValueError
    ├── CompileError              a CEL expression that the API server would refuse
    └── EvaluationError           a CEL expression that fails on one device

A text names the object, the field, what was found, what is allowed and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence


class DraError(Exception):
    """Base of the tree. `retryable` tells whether the same action may succeed later without a change by a person."""

    retryable = False


class SettingsError(DraError):
    """A flag, environment variable or configuration file is wrong."""


class StoppedError(DraError):
    """The process was told to end while it waited for something to start with."""


class HostError(DraError):
    """A directory, socket, device node or library of this host cannot be used."""


class HostNotReadyError(HostError):
    """Something of this host is missing that may still come: a device node, the files of a driver that is being installed."""

    retryable = True


class InstanceConflictError(HostError):
    """Another live process holds the place that this one needs."""


class JournalError(DraError):
    """The journal of prepared claims cannot be read or written."""


class JournalDamagedError(JournalError):
    """What the journal's file holds is not what was written: it can be moved away and rebuilt."""


class ApiError(DraError):
    """A request that the API server did not answer with success.

    `status` is the HTTP status (0 where no answer came), `reason` the `metav1.Status` reason, `message` its text.
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason


class ApiUnavailableError(ApiError):
    """No connection, a timeout, 429 or 5xx. `retry_after` is the server's wish in seconds, if it had one."""

    retryable = True

    def __init__(self, message: str, *, status: int = 0, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after = retry_after


class ApiNotFoundError(ApiError):
    """404."""


class ApiConflictError(ApiError):
    """409 with reason `Conflict` or `AlreadyExists`."""


class ApiGoneError(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class ApiInvalidError(ApiError):
    """422: the object was understood and refused."""


class ApiDeniedError(ApiError):
    """401 or 403."""


class ClaimError(DraError):
    """One ResourceClaim cannot be prepared or unprepared; the other claims of the call are not affected."""


class ClaimRetryError(ClaimError):
    """As ClaimError, but the same call may succeed later."""

    retryable = True


class DeviceHeldError(ClaimRetryError):
    """Another claim still holds a device that this one needs.

    `holder` is that claim's namespace/name and `holder_uid` its UID; `revision` is of the journal's row that says so.
    """

    def __init__(self, message: str, *, holder: str, holder_uid: str, revision: int) -> None:
        super().__init__(message)
        self.holder = holder
        self.holder_uid = holder_uid
        self.revision = revision


class NoFitError(ClaimRetryError):
    """No free devices satisfy the claim on a node; other devices, or devices that become free, may."""


class UnsupportedRequestError(ClaimError):
    """The claim uses an API feature that this version does not implement yet."""


class DeviceError(DraError):
    """One device of this node cannot be used."""


class DeviceNotReadyError(DeviceError):
    """As HostNotReadyError, for one device."""

    retryable = True


class SliceError(DraError):
    """A ResourceSlice breaks a limit of the API; nothing of its pool is written."""


class ParseError(DraError, ValueError):
    """A Quantity or version text that the Go code refuses as well."""


class CompileError(DraError):
    """A CEL expression that does not compile. `diagnostics` places each problem that has a place in the text."""

    def __init__(self, message: str, diagnostics: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.diagnostics = tuple(diagnostics)


class EvaluationError(DraError):
    """A CEL expression that fails on one device; the scheduler stops scheduling the pod then. `shown` is what it shows: the text and a hint."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.shown = f"{message}{_MISSING_KEY_HINT}" if "no such key:" in message else message


_MISSING_KEY_HINT = ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"
