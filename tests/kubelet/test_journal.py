"""The journal of prepared claims."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dra_driver.errors import ClaimRetryError, JournalError
from dra_driver.k8s.objects.resource import DeviceAllocationResult, DeviceRequestAllocationResult
from dra_driver.kubelet.journal import ClaimKey, Entry, HeldDevice, Journal


def entry(uid: str, *devices: str, share_id: str = "", exclusive: bool = True) -> Entry:
    results = [DeviceRequestAllocationResult(request="gpu", driver="d", pool="node", device=name, share_id=share_id or None) for name in devices]
    held = tuple(HeldDevice("node", name, f"GPU-{name}", share_id, exclusive) for name in devices)
    return Entry(ClaimKey("ns", f"claim-{uid}", uid), DeviceAllocationResult(results=results), held)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plugin" / "state.db"


def test_an_entry_is_read_back_as_it_was_written_also_by_the_next_process(path: Path) -> None:
    first = Journal(path)
    written = [entry("1", "a", "b"), entry("2", "c", share_id="s1", exclusive=False)]
    assert first.reserve(written) == {}
    first.close()
    second = Journal(path)
    assert second.entries() == written
    assert second.find("2") == written[1]
    assert second.find("3") is None
    second.close()


def test_an_exclusive_device_has_one_holder_and_only_the_second_claim_of_a_call_is_refused(path: Path) -> None:
    journal = Journal(path)
    journal.reserve([entry("1", "a")])
    refused = journal.reserve([entry("2", "b"), entry("3", "c", "a"), entry("4", "d")])
    assert list(refused) == ["3"]
    assert isinstance(refused["3"], ClaimRetryError)
    assert "device a (GPU-a) is still prepared for claim ns/claim-1 (UID 1)" in str(refused["3"])
    assert [one.claim.uid for one in journal.entries()] == ["1", "2", "4"]
    journal.release(["1"])
    assert journal.reserve([entry("3", "c", "a")]) == {}
    journal.close()


def test_two_claims_of_one_call_cannot_take_the_same_device(path: Path) -> None:
    journal = Journal(path)
    assert list(journal.reserve([entry("1", "a"), entry("2", "a")])) == ["2"]
    journal.close()


def test_shares_and_admin_access_exclude_nobody(path: Path) -> None:
    journal = Journal(path)
    assert journal.reserve([entry("1", "a"), entry("2", "a", share_id="s1", exclusive=False), entry("3", "a", exclusive=False)]) == {}
    journal.close()


def test_reserving_again_replaces_the_allocation_and_frees_what_it_no_longer_names(path: Path) -> None:
    journal = Journal(path)
    journal.reserve([entry("1", "a", "b")])
    journal.reserve([entry("1", "b", "c")])
    assert [held.device for held in journal.entries()[0].devices] == ["b", "c"]
    assert journal.reserve([entry("2", "a")]) == {}
    journal.close()


def test_releasing_an_unknown_claim_is_fine(path: Path) -> None:
    journal = Journal(path)
    journal.release(["nobody"])
    journal.close()


def test_two_processes_exclude_each_other(path: Path) -> None:
    ours, theirs = Journal(path), Journal(path)
    ours.reserve([entry("1", "a")])
    assert list(theirs.reserve([entry("2", "a")])) == ["2"]
    ours.close()
    theirs.close()


def test_the_unique_index_is_the_last_line_against_a_second_holder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(path)
    journal.reserve([entry("1", "a")])
    monkeypatch.setattr(Journal, "_holder", lambda self, entry: None)
    with pytest.raises(JournalError, match="UNIQUE constraint failed"):
        journal.reserve([entry("2", "a")])
    journal.close()


def test_only_the_driver_may_read_it(path: Path) -> None:
    journal = Journal(path)
    journal.reserve([entry("1", "a")])
    assert {one.stat().st_mode & 0o077 for one in path.parent.iterdir()} == {0}
    journal.close()


def test_concurrent_reservations_of_one_device_have_exactly_one_winner(path: Path) -> None:
    journal = Journal(path)
    refused: list[str] = []

    def reserve(uid: str) -> None:
        refused.extend(journal.reserve([entry(uid, "a")]))

    threads = [threading.Thread(target=reserve, args=(str(number),)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 15
    journal.close()


def test_what_was_reserved_survives_sigkill(path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from dra_driver.k8s.objects.resource import DeviceAllocationResult
from dra_driver.kubelet.journal import ClaimKey, Entry, HeldDevice, Journal
journal = Journal(Path({str(path)!r}))
journal.reserve([Entry(ClaimKey("ns", "c", "1"), DeviceAllocationResult(), (HeldDevice("node", "a", "GPU-a"),))])
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    journal = Journal(path)
    assert [one.claim.uid for one in journal.entries()] == ["1"]
    journal.close()


def test_a_failed_write_leaves_nothing_half_done(path: Path) -> None:
    journal = Journal(path)
    journal.reserve([entry("1", "a")])
    twice = entry("2", "b")
    with pytest.raises(JournalError):
        journal.reserve([entry("3", "c"), Entry(twice.claim, twice.allocation, twice.devices * 2)])
    assert [one.claim.uid for one in journal.entries()] == ["1"]
    assert journal.reserve([entry("4", "c")]) == {}, "the journal is usable after a failure"
    journal.close()


def test_every_commit_is_synced_to_the_disk(path: Path) -> None:
    journal = Journal(path)
    assert journal._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert journal._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    journal.close()


def test_a_newer_journal_is_refused_and_left_untouched(path: Path) -> None:
    Journal(path).close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = 2 WHERE key = 'oldest_reader'")
        db.execute("DROP TABLE devices")  # as a newer version may have done
    db.close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match="written by a newer version"):
        Journal(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"not a database, but long enough to be looked at" * 10, b""])
def test_an_unreadable_journal_is_an_error_that_names_the_file(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    if content:
        with pytest.raises(JournalError, match=r"state\.db: file is not a database; if it is damaged, drain the node"):
            Journal(path)
    else:
        Journal(path).close()  # an empty file is an empty database


def test_a_directory_that_cannot_be_made_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match="plugin directory must be writable"):
        Journal(tmp_path / "file" / "state.db")
