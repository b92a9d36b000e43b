from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.cluster.processes import PartError, Parts, Process, marked


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    made = Parts(tmp_path, Path("/tools"))
    made.directory.mkdir()
    made.log("any").parent.mkdir()
    yield made
    for process in marked(tmp_path):
        process.signal(signal.SIGKILL, 10)


def wait_for_end(pid: int) -> None:
    """Until the process is a zombie; nobody has collected it then."""
    handle = os.pidfd_open(pid)
    select.select([handle], [], [], 10)
    os.close(handle)


@pytest.mark.parametrize("other", [{"born": 1}, {"boot": "another"}])
def test_a_stranger_with_the_recorded_pid_is_never_signalled(sleeper: subprocess.Popen[bytes], other: dict[str, int | str]) -> None:
    recorded = replace(Process.of(sleeper.pid), **other)  # type: ignore[arg-type]
    assert not recorded.alive()
    assert recorded.signal(signal.SIGKILL, 10)
    assert sleeper.poll() is None


def test_a_zombie_is_gone(sleeper: subprocess.Popen[bytes]) -> None:
    process = Process.of(sleeper.pid)
    assert process.alive()
    os.kill(sleeper.pid, signal.SIGKILL)
    wait_for_end(sleeper.pid)
    assert Path(f"/proc/{sleeper.pid}").exists()
    assert not process.alive()


def test_a_command_name_with_brackets_does_not_shift_the_start_time(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    name = tmp_path / "a) Z 1 (b"
    name.symlink_to("/bin/sleep")
    with subprocess.Popen([name, "1000"]) as process:
        odd = Process.of(process.pid)
        process.kill()
    assert abs(odd.born - Process.of(sleeper.pid).born) < 60 * os.sysconf("SC_CLK_TCK")


def test_a_part_is_found_and_stopped_by_another_run(parts: Parts, tmp_path: Path) -> None:
    started = parts.start("part", ["sleep", "1000"])
    another = Parts(tmp_path, Path("/tools"))
    assert another.find("part") == started
    assert another.process("part").alive()
    another.stop("part")
    assert not started.process.alive()
    assert parts.find("part") is None
    with pytest.raises(PartError, match="part does not run"):
        parts.process("part")
    parts.stop("part")


def test_a_part_that_ignores_sigterm_is_killed(parts: Parts) -> None:
    reader, writer = os.pipe()
    part = parts.start("stubborn", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1000; done"], output=writer)
    os.close(writer)
    with os.fdopen(reader) as output:
        assert output.readline() == "ready\n"
        parts.stop("stubborn", limit=0.1)
    assert not part.process.alive()


def test_a_part_that_ends_while_it_comes_up_is_named_with_its_log(parts: Parts) -> None:
    part = parts.start("broken", ["sh", "-c", "echo unknown flag >&2; exit 1"])
    wait_for_end(part.process.pid)
    parts.start("fine", ["sleep", "1000"])
    with pytest.raises(PartError, match=r"broken ended while it came up(?s:.*)unknown flag"):
        parts.wait("fine", lambda: False, needs=["broken"])


def test_a_part_that_never_gets_ready_is_named(parts: Parts) -> None:
    parts.start("slow", ["sleep", "1000"])
    with pytest.raises(PartError, match="slow is not ready after 0 s"):
        parts.wait("slow", lambda: False, limit=0)


def test_a_process_without_a_record_is_found_by_its_mark(parts: Parts, tmp_path: Path) -> None:
    part = parts.start("part", ["sleep", "1000"])
    (parts.directory / "part.json").unlink()
    assert marked(tmp_path) == {part.process: tmp_path}
    assert marked(tmp_path / "other") == {}


def test_nothing_of_the_callers_environment_leaks_in(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    part = parts.start("part", ["sleep", "1000"])
    assert b"HTTPS_PROXY" not in Path(f"/proc/{part.process.pid}/environ").read_bytes()
