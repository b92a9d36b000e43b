"""Health of devices: what sources report becomes a state that does not flap, that outlives the process, and that is shown.

It is shown in two places, which can never disagree: to the kubelet (`health_service`), which puts it into the status of pods, and as taints of
published devices, which keep pods away. A source reports each of its devices again and again, healthy ones too: silence is not health.
"""

from __future__ import annotations

import enum
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import msgspec

from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.daemon.logs import Trouble
from dra_driver.errors import JournalError
from dra_driver.k8s.objects.resource import DeviceTaint
from dra_driver.kubelet.database import Database

log = logging.getLogger(__name__)

TIMEOUT = 30.0
"""Seconds after which the kubelet takes a device that no stream mentions for unknown; the same holds here for a device that no source reports."""

UNMONITORED = "unmonitored"
"""Ends the key of the taint of a device whose health nobody knows. Its effect is None: a fact for people, and no reason against the device."""

CHECK = 2.0
"""Seconds between two looks for sources that fell silent."""


class Health(enum.StrEnum):
    """As in a pod's status."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


@dataclass(frozen=True)
class Patience:
    """How often in a row, and for how many seconds, something must be reported before it counts."""

    reports: int
    seconds: float


FAILING = Patience(3, 10.0)
RECOVERING = Patience(3, 30.0)


class Finding(msgspec.Struct, frozen=True):
    """What one source holds of one device. `reason` ends the taint's key, `message` is for people; it is so `since` that Unix time."""

    health: Health
    reason: str = ""
    message: str = ""
    since: float = 0.0


@dataclass(frozen=True)
class DeviceHealth:
    """What is shown of a device: the worst that a source holds. `updated` is the Unix time of the last report."""

    pool: str
    device: str
    health: Health
    message: str
    updated: float


class _Record:
    """The finding of one source, when it last reported, and what it has reported against the finding since."""

    def __init__(self, finding: Finding, now: float) -> None:
        self.finding = finding
        self.reported = now
        self._rival: tuple[Health, str] | None = None
        self._rival_since = 0.0
        self._rival_reports = 0

    def weigh(self, new: Finding, now: float, *, fatal: bool) -> bool:
        """Takes a report; whether it changed the finding."""
        held, kind = self.finding, (new.health, new.reason)
        self.reported = now
        if kind == (held.health, held.reason):
            self._rival = None
            self.finding = msgspec.structs.replace(new, since=held.since)
            return new.message != held.message
        if new.health is Health.UNKNOWN and held.health is Health.UNHEALTHY:
            self._rival = None  # no sign of recovery
            return False
        if self._rival != kind:
            self._rival, self._rival_since, self._rival_reports = kind, now, 0
        self._rival_reports += 1
        patience = RECOVERING if new.health is Health.HEALTHY else FAILING
        if fatal or (self._rival_reports >= patience.reports and now - self._rival_since >= patience.seconds):
            self.replace(new)
            return True
        return False

    def replace(self, new: Finding) -> None:
        """What is held from now on."""
        self.finding, self._rival = new, None


_Key = tuple[str, str]


class HealthBoard:
    """The health of one driver's devices. Any thread may call any method.

    `effect` is that of the taints of unhealthy devices: NoSchedule, NoExecute (pods that use the device are evicted) or None. A device that a source
    has not reported for `timeout` seconds is unknown, unless it was unhealthy.
    """

    def __init__(self, driver: str, *, effect: str = "NoSchedule", timeout: float = TIMEOUT, clock: Clock | None = None) -> None:
        self.timeout = timeout
        self._driver = driver
        self._effect = effect
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._devices: dict[_Key, dict[str, _Record]] = {}  # by source
        self._unsaved: set[_Key] = set()
        self._kept: frozenset[_Key] | None = None  # None: all
        self._telling = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._database: Database | None = None
        self._leads: Callable[[], bool] = lambda: True
        self._led = True
        self._saving = Trouble(log, "device health cannot be saved, will be tried again", "device health is saved again", driver=driver)
        self._silence = Trouble(log, "device health is not reported, so it is unknown", "device health is reported again", driver=driver)

    @property
    def leads(self) -> bool:
        """Whether this instance of the driver watches the devices; if another one does, what is here is old."""
        return self._leads()

    def open(self, database: Database, leads: Callable[[], bool] = lambda: True) -> None:
        """Takes over what `database` knows, keeps it up to date from now on, and tells the listeners. JournalError when it cannot be read."""
        self._database, self._leads = database, leads
        self._led = leads()
        self._load(database)
        self._settle()

    def close(self) -> None:
        """Nothing is saved from now on."""
        with self._telling:
            self._database = None

    def listen(self, listener: Callable[[], None]) -> None:
        """`listener` is called after every change, in the thread that made it, and never twice at a time."""
        self._listeners.append(listener)

    def report(
        self, pool: str, device: str, healthy: bool | None, message: str = "", *, source: str = "", reason: str = "unhealthy", fatal: bool = False
    ) -> None:
        """One look of one source at one device; None: it could not tell.

        The first report of a source counts at once, and so does a `fatal` one. Any other change must be reported again and again: FAILING and
        RECOVERING say how often and how long. An unhealthy device stays so while nobody can tell. The taint's key is <driver>/<reason>; `message`
        should be the same as long as the trouble is.
        """
        if healthy is None:
            new = Finding(Health.UNKNOWN, UNMONITORED, message, self._clock.now())
        elif healthy:
            new = Finding(Health.HEALTHY, "", message, self._clock.now())
        else:
            new = Finding(Health.UNHEALTHY, reason, message, self._clock.now())
        key = (pool, device)
        with self._lock:
            records = self._devices.setdefault(key, {})
            before = _worst(records)
            first = source not in records
            if first:
                records[source] = _Record(new, self._clock.monotonic())
            elif not records[source].weigh(new, self._clock.monotonic(), fatal=fatal):
                return
            self._unsaved.add(key)
            _log_change(key, before, records)
        # That a device is well when it is first seen is written with the next look of `watch`: a start has hundreds of them.
        self._settle(save=not (first and new.health is Health.HEALTHY))

    def keep(self, devices: Collection[tuple[str, str]]) -> None:
        """There are these devices, by pool and name; what is known of others, now or from before, is forgotten."""
        with self._lock:
            self._kept = frozenset(devices)
            self._drop_others()
        self._settle()

    def devices(self) -> list[DeviceHealth]:
        """All devices that were ever reported, in order."""
        with self._lock:
            offset = self._clock.now() - self._clock.monotonic()
            return [
                DeviceHealth(*key, _worst(records), _message(records), max(record.reported for record in records.values()) + offset)
                for key, records in sorted(self._devices.items())
            ]

    def taints(self, pool: str, device: str) -> tuple[DeviceTaint, ...]:
        """What the device should be published with. The time of a taint is that of the change that it stands for, also after a restart."""
        with self._lock:
            findings = [record.finding for record in self._devices.get((pool, device), {}).values()]
        taints: dict[str, DeviceTaint] = {}
        for finding in sorted(findings, key=lambda finding: (finding.reason, finding.since)):
            if finding.health is not Health.HEALTHY:
                effect = self._effect if finding.health is Health.UNHEALTHY else "None"
                since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(finding.since))
                taints.setdefault(finding.reason, DeviceTaint(key=f"{self._driver}/{finding.reason}", effect=effect, time_added=since))
        return tuple(taints.values())

    def watch(self, stop: threading.Event) -> None:
        """A loop: what is not reported becomes unknown, what could not be saved is, and with the lead comes what another instance knew."""
        while not self._clock.wait(stop, CHECK):
            leads = self._leads()
            if leads and not self._led and self._database is not None:
                self._load(self._database)
                self._settle()
            elif leads:
                self._expire()
            self._led = leads

    def _expire(self) -> None:
        silent: list[str] = []
        with self._lock:
            now = self._clock.monotonic()
            for key, records in self._devices.items():
                late = [record for record in records.values() if now - record.reported > self.timeout]
                silent += ["/".join(key)] if late else []
                for record in late:
                    if record.finding.health is Health.HEALTHY:
                        message = f"not checked for more than {self.timeout:g} s"
                        record.replace(Finding(Health.UNKNOWN, UNMONITORED, message, self._clock.now()))
                        self._unsaved.add(key)
        if self._unsaved:
            self._settle()
        self._silence.tell(f"no report for more than {self.timeout:g} s of {', '.join(sorted(silent))}" if silent else "")

    def _load(self, database: Database) -> None:
        with database.reading() as connection:
            rows = connection.execute("SELECT pool, device, state FROM health").fetchall()
        with self._lock:
            now = self._clock.monotonic()
            self._unsaved.clear()
            for pool, device, state in rows:
                try:
                    findings = msgspec.json.decode(state, type=dict[str, Finding])
                except msgspec.MsgspecError as error:
                    log.warning(
                        "saved device health cannot be read, the next report counts", extra={"device": f"{pool}/{device}", "error": str(error)}
                    )
                    continue
                self._devices[pool, device] = {source: _Record(finding, now) for source, finding in findings.items()}
            self._drop_others()

    def _drop_others(self) -> None:
        if self._kept is not None:
            gone = self._devices.keys() - self._kept
            for key in gone:
                del self._devices[key]
            self._unsaved |= gone

    def _settle(self, *, save: bool = True) -> None:
        """After a change: it is saved, then told, one change after the other, so that what is told last is what is true."""
        with self._telling:
            if save and self._database is not None and self._leads():
                self._save(self._database)
            for listener in self._listeners:
                try:
                    listener()
                except Exception:
                    log.exception("a listener of device health failed", extra={"driver": self._driver})

    def _save(self, database: Database) -> None:
        with self._lock:
            rows = {key: {source: record.finding for source, record in self._devices.get(key, {}).items()} for key in self._unsaved}
            self._unsaved.clear()
        if not rows:
            return
        try:
            database.write(lambda connection: _write(connection, rows))
        except JournalError as error:
            self._saving.tell(str(error))
            with self._lock:
                self._unsaved |= rows.keys()
        else:
            self._saving.tell("")


def _write(connection: sqlite3.Connection, rows: dict[_Key, dict[str, Finding]]) -> None:
    for (pool, device), findings in rows.items():
        connection.execute("DELETE FROM health WHERE pool = ? AND device = ?", (pool, device))
        if findings:
            connection.execute("INSERT INTO health VALUES (?, ?, ?)", (pool, device, msgspec.json.encode(findings).decode()))


def _worst(records: Mapping[str, _Record]) -> Health:
    found = {record.finding.health for record in records.values()}
    return next((health for health in (Health.UNHEALTHY, Health.UNKNOWN) if health in found), Health.HEALTHY)


def _message(records: Mapping[str, _Record]) -> str:
    """Of those sources that hold the worst."""
    worst = _worst(records)
    return "; ".join(record.finding.message for record in records.values() if record.finding.health is worst and record.finding.message)


def _log_change(key: _Key, before: Health, records: Mapping[str, _Record]) -> None:
    after = _worst(records)
    about = {"device": "/".join(key), "problem": _message(records)}
    if after is Health.HEALTHY and before is not Health.HEALTHY:
        log.info("device is healthy again", extra=about)
    elif after is not before:
        log.warning("device is unhealthy" if after is Health.UNHEALTHY else "health of the device is unknown", extra=about)
