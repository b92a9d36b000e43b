"""The journal of prepared claims."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from dra_driver.errors import ClaimRetryError, DeviceHeldError, JournalError
from dra_driver.k8s.objects.resource import DeviceAllocationResult, DeviceRequestAllocationResult
from dra_driver.kubelet import journal as journal_module
from dra_driver.kubelet.database import Database
from dra_driver.kubelet.journal import ChangeRecord, ClaimKey, Entry, HeldDevice, Journal


def entry(uid: str, *devices: str, share_id: str = "", admin: bool = False, changes: tuple[ChangeRecord, ...] = ()) -> Entry:
    results = [DeviceRequestAllocationResult(request="gpu", driver="d", pool="node", device=name, share_id=share_id or None) for name in devices]
    held = tuple(HeldDevice("node", name, f"GPU-{name}", share_id, admin) for name in devices)
    return Entry(ClaimKey("ns", f"claim-{uid}", uid), DeviceAllocationResult(results=results), held, changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plugin" / "state.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    with closing(Database(path)) as one:
        yield one


@pytest.fixture
def journal(database: Database) -> Journal:
    return Journal(database, boot_id="boot-1")


def test_an_entry_is_read_back_as_it_was_written_also_by_the_next_process(path: Path) -> None:
    written = [
        entry("1", "a", "b", changes=(ChangeRecord("z", "on", "off"), ChangeRecord("a", "1", "0"))),
        entry("2", "c", share_id="s1"),
        entry("3", "c", admin=True),
    ]
    with closing(Database(path)) as first:
        assert Journal(first, boot_id="boot-1").reserve(written) == {}
    with closing(Database(path)) as second:
        journal = Journal(second)
        assert journal.entries() == written
        assert journal.find("2") == written[1]
        assert journal.find("4") is None
        assert {one.boot_id for one in journal.entries()} == {"boot-1"}
        assert journal.count() == 3


def test_an_exclusive_device_has_one_holder_and_only_the_second_claim_of_a_call_is_refused(journal: Journal) -> None:
    journal.reserve([entry("1", "a")])
    refused = journal.reserve([entry("2", "b"), entry("3", "c", "a"), entry("4", "d")])
    assert list(refused) == ["3"]
    reason = refused["3"]
    assert isinstance(reason, DeviceHeldError)
    assert reason.retryable
    assert (reason.holder, reason.holder_uid) == ("ns/claim-1", "1")
    assert "device a (GPU-a) is still prepared for claim ns/claim-1 (UID 1)" in str(reason)
    assert [one.claim.uid for one in journal.entries()] == ["1", "2", "4"]
    journal.release(["1"])
    assert journal.reserve([entry("3", "c", "a")]) == {}


def test_two_claims_of_one_call_cannot_take_the_same_device(journal: Journal) -> None:
    assert list(journal.reserve([entry("1", "a"), entry("2", "a")])) == ["2"]


ALONE: dict[str, object] = {}
SHARE, OTHER_SHARE, ADMIN = {"share_id": "s1"}, {"share_id": "s2"}, {"admin": True}


@pytest.mark.parametrize(
    ("first", "second", "allowed"),
    [
        (ALONE, ALONE, False),
        (ALONE, SHARE, False),
        (SHARE, ALONE, False),
        (SHARE, OTHER_SHARE, True),
        (ALONE, ADMIN, True),
        (ADMIN, ALONE, True),
        (ADMIN, ADMIN, True),
        (ADMIN, SHARE, True),
        (ALONE, {"share_id": "s1", "admin": True}, True),
    ],
)
def test_who_may_have_a_device_at_the_same_time(journal: Journal, first: dict[str, object], second: dict[str, object], allowed: bool) -> None:
    journal.reserve([entry("1", "a", **first)])  # type: ignore[arg-type]
    assert (journal.reserve([entry("2", "a", **second)]) == {}) is allowed  # type: ignore[arg-type]


def test_devices_that_overlap_exclude_each_other_and_their_siblings_do_not(database: Database) -> None:
    family = {"GPU-0": ["GPU-0-a", "GPU-0-b"], "GPU-0-a": ["GPU-0"], "GPU-0-b": ["GPU-0"]}
    journal = Journal(database, related=lambda uuid: family.get(uuid, ()))
    journal.reserve([entry("1", "0-a")])
    assert journal.reserve([entry("2", "0-b")]) == {}
    reason = str(journal.reserve([entry("3", "0")])["3"])
    assert "device 0 (GPU-0) overlaps with 0-a (GPU-0-a), which is still prepared for claim ns/claim-1 (UID 1)" in reason
    journal.release(["1", "2"])
    assert journal.reserve([entry("3", "0")]) == {}
    assert list(journal.reserve([entry("2", "0-b")])) == ["2"]


def test_claims_may_share_a_setting_of_the_host_only_if_they_want_the_same(journal: Journal) -> None:
    journal.reserve([entry("1", "a", share_id="1", changes=(ChangeRecord("mode", "slow", "fast"),))])
    assert journal.reserve([entry("2", "a", share_id="2", changes=(ChangeRecord("mode", "slow", "fast"),))]) == {}
    reason = journal.reserve([entry("3", "a", share_id="3", changes=(ChangeRecord("mode", "off", "fast"),))])["3"]
    assert isinstance(reason, ClaimRetryError)
    assert "needs mode to be off, but claim ns/claim-1 (UID 1) has it set to slow" in str(reason)
    assert journal.changed_by_others(journal.entries()[0]) == {"mode": ChangeRecord("mode", "slow", "fast")}


def test_reserving_again_replaces_the_allocation_and_frees_what_it_no_longer_names(journal: Journal) -> None:
    journal.reserve([entry("1", "a", "b", changes=(ChangeRecord("mode", "slow", "fast"),))])
    before = journal.entries()[0].revision
    journal.reserve([entry("1", "b", "c")])
    (found,) = journal.entries()
    assert [held.device for held in found.devices] == ["b", "c"]
    assert found.changes == ()
    assert found.revision != before, "whoever looked at the old row can tell"
    assert journal.reserve([entry("2", "a")]) == {}


def test_releasing_an_unknown_claim_is_fine(journal: Journal) -> None:
    journal.release(["nobody"])
    journal.release([])


def test_two_processes_exclude_each_other(path: Path) -> None:
    with closing(Database(path)) as ours, closing(Database(path)) as theirs:
        Journal(ours).reserve([entry("1", "a")])
        assert list(Journal(theirs).reserve([entry("2", "a")])) == ["2"]


def test_the_unique_index_is_the_last_line_against_a_second_holder(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.reserve([entry("1", "a")])
    monkeypatch.setattr(journal_module, "_held", lambda connection, entry, overlaps: None)
    with pytest.raises(JournalError, match="UNIQUE constraint failed"):
        journal.reserve([entry("2", "a")])


def test_concurrent_reservations_of_one_device_have_exactly_one_winner(journal: Journal) -> None:
    refused: list[str] = []

    def reserve(uid: str) -> None:
        refused.extend(journal.reserve([entry(uid, "a")]))

    threads = [threading.Thread(target=reserve, args=(str(number),)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 15


def test_what_was_reserved_survives_sigkill(path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from dra_driver.k8s.objects.resource import DeviceAllocationResult
from dra_driver.kubelet.database import Database
from dra_driver.kubelet.journal import ClaimKey, Entry, HeldDevice, Journal
journal = Journal(Database(Path({str(path)!r})))
journal.reserve([Entry(ClaimKey("ns", "c", "1"), DeviceAllocationResult(), (HeldDevice("node", "a", "GPU-a"),))])
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    with closing(Database(path)) as database:
        assert [one.claim.uid for one in Journal(database).entries()] == ["1"]


def test_a_failed_write_leaves_nothing_half_done(journal: Journal) -> None:
    journal.reserve([entry("1", "a")])
    twice = entry("2", "b")
    with pytest.raises(JournalError):
        journal.reserve([entry("3", "c"), Entry(twice.claim, twice.allocation, twice.devices * 2)])
    assert [one.claim.uid for one in journal.entries()] == ["1"]
    assert journal.reserve([entry("4", "c")]) == {}, "the journal is usable after a failure"


def test_what_is_read_is_of_one_moment(journal: Journal, path: Path) -> None:
    journal.reserve([entry("1", "c")])
    with closing(Database(path)) as other:
        written: list[str] = []

        def meanwhile(statement: str) -> None:
            if "FROM devices" in statement and not written:
                written.append(statement)
                Journal(other).reserve([entry("1", "a", "b")])

        with journal._db.reading() as connection:
            connection.set_trace_callback(meanwhile)
        found = journal.entries()
        assert written
        assert [[held.device for held in one.devices] for one in found] == [["c"]], "as of the moment in which the reading began"
        assert [[held.device for held in one.devices] for one in journal.entries()] == [["a", "b"]]


def test_a_claim_that_has_its_devices_already_is_written_whatever_others_have(journal: Journal) -> None:
    assert journal.adopt(entry("1", "a", changes=(ChangeRecord("mode", "fast", "eco"),))) is None
    assert journal.adopt(entry("2", "b")) is None
    doubly = journal.adopt(entry("3", "a", "c", changes=(ChangeRecord("mode", "slow", "eco"),)))
    assert isinstance(doubly, DeviceHeldError)
    assert doubly.holder == "ns/claim-1"
    assert [one.claim.uid for one in journal.entries()] == ["1", "2", "3"]
    assert list(journal.reserve([entry("4", "a"), entry("5", "c"), entry("6", "d")])) == ["4", "5"]
    journal.release(["1"])
    assert list(journal.reserve([entry("4", "a")])) == ["4"], "the other one still has it"
    journal.release(["3"])
    assert journal.reserve([entry("4", "a"), entry("5", "c")]) == {}


def test_a_claim_that_has_a_device_under_two_names_already_holds_it(journal: Journal) -> None:
    both = entry("1", "a", "alias")
    both = replace(both, devices=tuple(msgspec.structs.replace(held, uuid="GPU-a") for held in both.devices))
    assert journal.adopt(both) is None
    assert [held.device for held in journal.entries()[0].devices] == ["a", "alias"]
    assert list(journal.reserve([entry("2", "a")])) == ["2"]


def test_a_device_whose_uuid_is_not_known_is_held_by_its_name(journal: Journal) -> None:
    unknown = entry("1", "a")
    unknown = replace(unknown, devices=tuple(msgspec.structs.replace(held, uuid=held.by_name) for held in unknown.devices))
    assert journal.adopt(unknown) is None
    assert list(journal.reserve([entry("2", "a"), entry("3", "b"), entry("4", "a", admin=True)])) == ["2"]


def test_a_claim_without_a_uid_has_a_key_that_no_uid_equals() -> None:
    claim = ClaimKey.without_uid("ns", "c")
    assert (claim.uid, claim.has_uid, str(claim)) == ("pod-resources/ns/c", False, "ns/c (UID not known)")
    assert ClaimKey("ns", "c", "9f7c").has_uid


@pytest.mark.parametrize(("boot_id", "same"), [("boot-1", True), ("boot-2", False), ("", False)])
def test_what_was_done_in_another_boot_or_in_one_that_is_not_known_is_not_there_any_more(database: Database, boot_id: str, same: bool) -> None:
    for before in ("boot-1", ""):
        Journal(database, boot_id=before).reserve([entry("1", "a")])
        journal = Journal(database, boot_id=boot_id)
        row = journal.find("1")
        assert row is not None
        assert journal.is_of_this_boot(row) is (same and bool(before))
        assert journal.has(entry("1", "a"), row) is (same and bool(before))


def test_a_new_journal_is_incomplete_until_somebody_says_that_it_is_not(path: Path) -> None:
    with closing(Database(path)) as database:
        assert Journal(database).is_incomplete()
    with closing(Database(path)) as database:
        assert Journal(database).is_incomplete()
        Journal(database).complete()
    with closing(Database(path)) as database:
        assert not Journal(database).is_incomplete()
