"""Is the process alive, and is it ready? `/healthz` and `/readyz` as texts, for the kubelet and for people.

Alive means that every loop still turns and that nothing is lost that only a restart brings back. An API server that cannot be reached is cured by no
restart, so it is a reason not to be ready.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dra_driver.daemon.clock import Clock, SystemClock


class Pulse:
    """How long something has not moved. `reading` is anything that changes with every turn, such as a counter."""

    def __init__(self, reading: Callable[[], object], clock: Clock | None = None) -> None:
        self._reading = reading
        self._clock = clock or SystemClock()
        self._last, self._since = reading(), self._clock.monotonic()

    def age(self) -> float:
        """Seconds for which the reading has been the same, as far as those who asked could see."""
        reading = self._reading()
        if reading != self._last:
            self._last, self._since = reading, self._clock.monotonic()
        return self._clock.monotonic() - self._since


class Verdict(NamedTuple):
    """The answer to a probe: HTTP 200 or 503, and its lines."""

    good: bool
    text: str


class Probes:
    """What is looked at. Something may be added at any time."""

    def __init__(self) -> None:
        self._faults: list[tuple[str, Callable[[], str]]] = []
        self._loops: list[tuple[str, Callable[[], float], float]] = []
        self._conditions: list[tuple[str, Callable[[], str]]] = []

    def add_loop(self, name: str, age: Callable[[], float], *, limit: float) -> None:
        """A loop counts as stuck when its `age` is beyond `limit` seconds."""
        self._loops.append((name, age, limit))

    def add_fault(self, name: str, reason: Callable[[], str]) -> None:
        """`reason` says what a restart of the process would cure, "" while there is nothing."""
        self._faults.append((name, reason))

    def add_condition(self, name: str, reason: Callable[[], str]) -> None:
        """`reason` says why this is not ready, "" when it is."""
        self._conditions.append((name, reason))

    def health(self) -> Verdict:
        """One line for each loop with its age, one for each possible fault."""
        ages = [(name, age(), limit) for name, age, limit in list(self._loops)]
        lines = [f"{name}: {age:.1f} s since it last turned{f', more than {limit:g} s' if age > limit else ''}" for name, age, limit in ages]
        faults = _asked(self._faults)
        return Verdict(all(age <= limit for _, age, limit in ages) and faults.good, "\n".join([*lines, *filter(None, [faults.text])]))

    def readiness(self) -> Verdict:
        """One line for each condition."""
        return _asked(self._conditions)


def _asked(questions: list[tuple[str, Callable[[], str]]]) -> Verdict:
    reasons = [(name, reason()) for name, reason in list(questions)]
    return Verdict(not any(reason for _, reason in reasons), "\n".join(f"{name}: {reason or 'ok'}" for name, reason in reasons))
