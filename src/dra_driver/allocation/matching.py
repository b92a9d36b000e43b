"""Do the selectors of a class and a request choose a device? The scheduler's answer, and a report of every single one.

A device must satisfy the class's selectors, then the request's. The first that is false settles it. An error settles more: the scheduler gives up
the whole pod, on all nodes, so errors are raised here and carry the scheduler's text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from dra_driver.allocation.pools import Candidate, DeviceId
from dra_driver.cel import CompileError, Environment, EvaluationError, Selector
from dra_driver.errors import ClaimError
from dra_driver.k8s.objects.resource import DeviceClass, DeviceSelector, ExactDeviceRequest, ResourceClaim

_HINT = ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"


@dataclass(frozen=True)
class Answer:
    """What one selector says of one device. `owner` is "class NAME" or "claim NAMESPACE/NAME".

    `error` is the scheduler's text or empty, `cause` the part of it that says what is wrong, and not where.
    """

    owner: str
    index: int
    expression: str
    value: bool
    error: str = ""
    cause: str = ""

    def __str__(self) -> str:
        return self.error or f"{self.owner}: selector #{self.index} is {str(self.value).lower()}"


@dataclass(frozen=True)
class DeviceReport:
    """All answers for one device, class selectors first, the ones after a false or an error included."""

    device: DeviceId
    answers: tuple[Answer, ...]

    @property
    def decisive(self) -> Answer | None:
        """The first answer that is not true; None if the device is chosen."""
        return next((answer for answer in self.answers if not answer.value), None)


def claim_name(claim: ResourceClaim) -> str:
    """Namespace and name."""
    return f"{claim.metadata.namespace}/{claim.metadata.name}" if claim.metadata.namespace else claim.metadata.name


def matches(candidate: Candidate, device_class: DeviceClass, claim: ResourceClaim, request: ExactDeviceRequest) -> bool:
    """Whether class and request choose the device. Raises ClaimError where the scheduler would give up the pod."""
    for answer in _answers(candidate, device_class, claim, request):
        if answer.error:
            raise ClaimError(answer.error)
        if not answer.value:
            return False
    return True


def report(candidates: Iterable[Candidate], device_class: DeviceClass, claim: ResourceClaim, request: ExactDeviceRequest) -> list[DeviceReport]:
    """The answer of every selector for every device, for people."""
    return [DeviceReport(candidate.id, tuple(_answers(candidate, device_class, claim, request))) for candidate in candidates]


def _answers(candidate: Candidate, device_class: DeviceClass, claim: ResourceClaim, request: ExactDeviceRequest) -> Iterator[Answer]:
    """Lazily, so that `matches` evaluates no more than the scheduler does."""
    owners = (f"class {device_class.metadata.name}", device_class.spec.selectors), (f"claim {claim_name(claim)}", request.selectors)
    for owner, selectors in owners:
        for index, selector in enumerate(selectors):
            yield _answer(owner, index, selector, candidate)


def _answer(owner: str, index: int, selector: DeviceSelector, candidate: Candidate) -> Answer:
    if selector.cel is None:
        cause = "CEL expression empty (unsupported selector type?)"
        return Answer(owner, index, "", value=False, error=f"{owner}: selector #{index}: {cause}", cause=cause)
    expression = selector.cel.expression
    try:
        value = _compiled(expression).matches(candidate.view)
    except CompileError as error:
        text = f"{owner}: selector #{index}: CEL compile error: {error}"
        return Answer(owner, index, expression, value=False, error=text, cause=str(error))
    except EvaluationError as error:
        hint = _HINT if str(error).startswith("no such key:") else ""
        text = f"{owner}: selector #{index} on device {candidate.id}: CEL runtime error: {error}{hint}"
        return Answer(owner, index, expression, value=False, error=text, cause=str(error))
    return Answer(owner, index, expression, value)


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> Selector:
    return Environment().compile(expression)
