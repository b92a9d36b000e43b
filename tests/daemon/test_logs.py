"""Log lines for machines and for people."""

from __future__ import annotations

import io
import json
import logging

import pytest

from dra_driver.daemon.logs import ConsoleFormatter, JsonFormatter, Trouble, configure


def record(**extra: object) -> logging.LogRecord:
    made = logging.LogRecord("dra_driver.x", logging.WARNING, "x.py", 1, "claim failed", None, None)
    vars(made).update(extra)
    return made


def test_a_json_line_has_the_constant_message_and_the_keys() -> None:
    line = json.loads(JsonFormatter().format(record(claim="ns/c", devices=["a"])))
    assert {key: line[key] for key in ("level", "logger", "msg", "claim", "devices")} == {
        "level": "warning",
        "logger": "dra_driver.x",
        "msg": "claim failed",
        "claim": "ns/c",
        "devices": ["a"],
    }
    assert line["ts"].endswith("Z")


def test_a_console_line_has_the_keys_as_words() -> None:
    assert ConsoleFormatter().format(record(claim="ns/c")).endswith("warning claim failed claim=ns/c")


def test_where_nobody_looks_lines_are_json() -> None:
    root, stream = logging.getLogger(), io.StringIO()
    before = root.handlers[:], root.level
    try:
        configure("warning", stream=stream)
        logging.getLogger("some").info("too quiet")
        logging.getLogger("some").warning("loud")
    finally:
        root.handlers[:], _ = before
        root.setLevel(before[1])
    assert [json.loads(line)["msg"] for line in stream.getvalue().splitlines()] == ["loud"]


def test_trouble_is_told_when_it_begins_changes_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble(logging.getLogger("t"), "cannot", "can again", pool="p")
    with caplog.at_level(logging.INFO):
        for reason in ("", "a", "a", "b", "b", "", ""):
            trouble.tell(reason)
    assert [(one.message, vars(one).get("error"), vars(one)["pool"]) for one in caplog.records] == [
        ("cannot", "a", "p"),
        ("cannot", "b", "p"),
        ("can again", None, "p"),
    ]
