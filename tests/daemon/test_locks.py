"""Locks by key."""

from __future__ import annotations

import threading

import pytest

from dra_driver.daemon.locks import KeyedLocks


def test_one_key_is_held_by_one_at_a_time() -> None:
    locks, inside, most = KeyedLocks(), [0], [0]

    def work() -> None:
        for _ in range(200):
            with locks.hold(["a"]):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert locks._locks == {}, "a key that nobody holds costs nothing"


def test_different_keys_do_not_wait() -> None:
    locks, passed = KeyedLocks(), threading.Event()

    def other() -> None:
        with locks.hold(["b"]):
            passed.set()

    with locks.hold(["a"]):
        threading.Thread(target=other).start()
        assert passed.wait(10)


def test_holders_of_several_keys_never_wait_for_each_other_in_a_circle() -> None:
    locks, done = KeyedLocks(), [0]

    def work(keys: list[str]) -> None:
        for _ in range(300):
            with locks.hold(keys):
                done[0] += 1

    threads = [threading.Thread(target=work, args=(keys,), daemon=True) for keys in (["a", "b"], ["b", "a"], ["a", "a", "b"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_a_lock_is_given_back_when_the_work_fails() -> None:
    locks = KeyedLocks()
    for _ in range(2):
        with pytest.raises(ValueError, match="failed"), locks.hold(["a"]):
            raise ValueError("failed")
    assert locks._locks == {}
