"""Turns by key."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from dra_driver.daemon.turns import Turns


def test_one_key_is_held_by_one_at_a_time() -> None:
    turns, inside, most = Turns(), [0], [0]

    def work() -> None:
        for _ in range(200):
            with turns.hold(["a"], 30):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert turns._lines == {}, "a key that nobody holds costs nothing"


def test_different_keys_do_not_wait() -> None:
    turns, passed = Turns(), threading.Event()

    def other() -> None:
        with turns.hold(["b"], 30):
            passed.set()

    with turns.hold(["a"], 30):
        threading.Thread(target=other).start()
        assert passed.wait(10)


def test_turns_come_in_the_order_of_lining_up() -> None:
    turns, order = Turns(), []
    places = [turns.line_up(keys) for keys in (["a"], ["a", "b"], ["b"], ["a"])]

    def work(number: int) -> None:
        with places[number] as turn:
            turn.wait(30)
            order.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in (3, 2, 1, 0)]  # who waits first does not matter
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert order.index(0) < order.index(1) < min(order.index(2), order.index(3))


def test_a_place_that_is_given_up_holds_up_nobody() -> None:
    turns = Turns()
    with turns.line_up(["a"]), turns.line_up(["b"]) as turn:
        assert not turn.wait(30)
    with turns.hold(["a"], 30) as busy:
        assert not busy


def test_holders_of_several_keys_never_wait_for_each_other_in_a_circle() -> None:
    turns, done = Turns(), [0]

    def work(keys: list[str]) -> None:
        for _ in range(300):
            with turns.hold(keys, 30):
                done[0] += 1

    threads = [threading.Thread(target=work, args=(keys,), daemon=True) for keys in (["a", "b"], ["b", "a"], ["a", "a", "b"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_a_turn_ends_when_the_work_fails() -> None:
    turns = Turns()
    for _ in range(2):
        with pytest.raises(ValueError, match="failed"), turns.hold(["a"], 30):
            raise ValueError("failed")
    assert turns._lines == {}


HOLDER = """
import sys, signal
from pathlib import Path
from dra_driver.daemon.turns import Turns
with Turns(Path(sys.argv[1])).hold(["a"], 30):
    print("held", flush=True)
    signal.pause()
"""


def test_turns_hold_between_processes_and_end_with_them(tmp_path: Path) -> None:
    path = tmp_path / "turns"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True) as other, closing(Turns(path)) as turns:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with turns.hold(["b"], 30):
            pass
        got = threading.Event()

        def work() -> None:
            with turns.hold(["a"], 30):
                got.set()

        thread = threading.Thread(target=work)
        thread.start()
        assert not got.wait(0.3)
        os.kill(other.pid, signal.SIGKILL)
        thread.join(10)
        assert got.is_set()


def test_two_turns_of_one_file_in_one_process_are_like_two_processes(tmp_path: Path) -> None:
    path = tmp_path / "turns"
    with closing(Turns(path)) as ours, closing(Turns(path)) as theirs:
        got = threading.Event()

        def work() -> None:
            with theirs.hold(["a"], 30):
                got.set()

        thread = threading.Thread(target=work)
        with ours.hold(["a"], 30):
            thread.start()
            assert not got.wait(0.3)
        thread.join(10)
        assert got.is_set()


def test_who_waits_for_several_keys_gets_those_that_come_in_time(tmp_path: Path) -> None:
    path = tmp_path / "turns"
    with closing(Turns(path)) as ours, closing(Turns(path)) as theirs, ours.hold(["a"], 30), theirs.hold(["b"], 30):
        with ours.hold(["a", "b", "c"], 0.05) as busy:
            assert busy == {"a", "b"}
            with theirs.hold(["c"], 0.05) as held:
                assert held == {"c"}, "what did come is ours alone"
            with theirs.hold(["a"], 0.05) as held:
                assert held == {"a"}
        with theirs.hold(["c"], 0.05) as held:
            assert held == set()


def test_a_lock_that_cannot_be_given_back_holds_up_nobody_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Turns(tmp_path / "turns")) as turns:

        def fail(key: str) -> None:
            raise OSError(37, "No locks available")

        with monkeypatch.context() as broken:
            broken.setattr(turns, "_unlock_file", fail)
            with pytest.raises(OSError, match="No locks"), turns.hold(["a"], 30):
                pass
        with turns.hold(["a"], 0.05) as busy:
            assert busy == set()


def test_a_file_that_is_closed_while_somebody_has_a_turn_keeps_others_out(tmp_path: Path) -> None:
    path = tmp_path / "turns"
    ours = Turns(path)
    with closing(Turns(path)) as theirs:
        with ours.hold(["a"], 30):
            ours.close()  # the process ends, and a call hangs
            with theirs.hold(["a"], 0.05) as busy:
                assert busy == {"a"}
        ours.close()
