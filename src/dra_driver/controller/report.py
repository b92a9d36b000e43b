"""What is known about one DeviceClass, and how it is put into words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Also the reasons of Events. The worst that holds, in this order."""

    INVALID = "SelectorInvalid"
    UNSUPPORTED = "SelectorUnsupported"
    FAILS = "SelectorFails"
    UNMATCHED = "NoDeviceMatches"
    MATCHES = "Matches"


MEANINGS = {
    State.INVALID: "a selector does not compile: pods that ask for the class stay pending",
    State.UNSUPPORTED: "the CEL engine of this version fails on a selector, which is an error of ours; the scheduler may well be able to evaluate it",
    State.FAILS: "a selector fails on some devices instead of being false; the scheduler gives up a pod when it tries one of them",
    State.UNMATCHED: "the selectors compile and fail nowhere, but choose none of the published devices",
    State.MATCHES: "the selectors choose at least one device and fail on none",
}
"""For the reference page and for the help."""

WARNINGS = frozenset({State.INVALID, State.FAILS, State.UNMATCHED})
"""What a cluster admin may have to repair."""


@dataclass(frozen=True)
class Problem:
    """A selector that cannot be evaluated at all. `unsupported`: by an error of this version, not of the class."""

    selector: int
    expression: str
    text: str
    unsupported: bool = False

    def __str__(self) -> str:
        return f"selector #{self.selector}: {self.text}"


@dataclass(frozen=True)
class Failure:
    """The devices on which one selector fails with one text; `sample` names the first of them as driver/pool/device."""

    selector: int
    expression: str
    text: str
    devices: int
    sample: tuple[str, ...]

    @property
    def advice(self) -> str:
        """What helps against the usual cause; "" where that is not known."""
        if not self.text.startswith("no such key:"):
            return ""
        return "Ask for device.driver first and guard names that a device may lack with has(); quantities are in device.capacity."


@dataclass(frozen=True)
class ClassReport:
    """`devices` are the published ones that were looked at; `matching` of them are chosen, on `nodes` different nodes.

    `shared` of the chosen ones name no node: several nodes can reach them. Without compiled selectors nothing is looked at.
    """

    name: str
    uid: str
    devices: int = 0
    matching: int = 0
    nodes: int = 0
    shared: int = 0
    problems: tuple[Problem, ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def state(self) -> State:
        """In one word."""
        if any(not problem.unsupported for problem in self.problems):
            return State.INVALID
        if self.problems:
            return State.UNSUPPORTED
        if self.failures:
            return State.FAILS
        return State.MATCHES if self.matching else State.UNMATCHED

    @property
    def failing(self) -> int:
        """Devices on which a selector fails."""
        return sum(failure.devices for failure in self.failures)

    @property
    def identity(self) -> tuple[str, ...]:
        """Equal as long as there is nothing new to say: the state and its texts, not the counts."""
        return (self.state, *sorted({*map(str, self.problems), *(f"#{failure.selector}: {failure.text}" for failure in self.failures)}))

    @property
    def note(self) -> str:
        """The state in sentences, most important first."""
        if self.problems:
            return "; ".join(map(str, self.problems))
        chosen = f"{self.matching} of {_counted(self.devices, 'device')} chosen{_where(self)}"
        if self.failures:
            return " ".join([*map(_failure, self.failures), "The scheduler gives up a pod when it tries such a device.", f"{chosen}."])
        if self.matching:
            return f"{chosen}."
        if not self.devices:
            return "No devices are published in ResourceSlices."
        return f"None of {_counted(self.devices, 'published device')} is chosen: pods that ask for this class stay pending."


def _failure(failure: Failure) -> str:
    text = f"selector #{failure.selector} fails on {_counted(failure.devices, 'device')}, such as {failure.sample[0]}: {failure.text}."
    return f"{text} {failure.advice}" if failure.advice else text


def _where(report: ClassReport) -> str:
    places = [f"on {_counted(report.nodes, 'node')}"] if report.nodes else []
    places += [f"{report.shared} of them reachable from several nodes"] if report.shared else []
    return " " + ", ".join(places) if places else ""


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
