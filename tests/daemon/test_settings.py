"""Settings: where a value comes from, and what is said about one that is wrong."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path

import pytest

from dra_driver.daemon.settings import Settings, absolute_path, effective, one_of, parse, setting, whole_number
from dra_driver.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class Boat(Settings):
    """A program with a boat."""

    harbour_name: str = setting("where it lies", str)
    crew: int | None = setting("how many sail it", whole_number(1, 9), None)
    port: int = setting("at the radio", whole_number(), 80)
    log_dir: Path = setting("its log", absolute_path, Path("/log"))
    sail: str = setting("which one", one_of("jib", "main"), "jib")
    motto: str = setting("its motto", str, "")

    def __post_init__(self) -> None:
        if self.crew == 1 and self.sail == "main":
            raise ValueError("--sail=main takes a --crew of two")


def boat(*arguments: str, **environment: str) -> Boat:
    return parse(Boat, "sailor", arguments, environment)


def test_a_flag_wins_over_a_variable_over_a_default() -> None:
    assert boat("--harbour-name=a", HARBOUR_NAME="b", CREW="2") == Boat(harbour_name="a", crew=2)
    assert boat(HARBOUR_NAME="b") == Boat(harbour_name="b")


def test_an_empty_variable_is_none() -> None:
    assert boat("--harbour-name", "a", CREW="", SAIL="") == Boat(harbour_name="a")


def test_values_have_the_types_of_their_fields() -> None:
    assert boat("--harbour-name=a", "--crew=3", "--log-dir=/x", "--sail=main") == Boat(harbour_name="a", crew=3, log_dir=Path("/x"), sail="main")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "sailor: --harbour-name (HARBOUR_NAME): is required"),
        (["--harbour-name=a", "--crew=0"], "sailor: --crew (CREW): must be a whole number from 1 to 9, found '0'"),
        (["--harbour-name=a", "--crew=ten"], "sailor: --crew (CREW): must be a whole number from 1 to 9, found 'ten'"),
        (["--harbour-name=a", "--port=-1"], "sailor: --port (PORT): must be a whole number, 0 or more, found '-1'"),
        (["--harbour-name=a", "--port=٣"], "sailor: --port (PORT): must be a whole number, 0 or more, found '٣'"),
        (["--harbour-name=a", "--log-dir=x"], "sailor: --log-dir (LOG_DIR): must be an absolute path, found 'x'"),
        (["--harbour-name=a", "--sail=spinnaker"], "sailor: --sail (SAIL): must be one of jib, main, found 'spinnaker'"),
        (["--harbour-name=a", "--sail=main", "--crew=1"], "sailor: --sail=main takes a --crew of two"),
        (["--harbour-name=a", "--harbour=b"], "sailor: unknown setting --harbour=b; --help lists the known ones"),
        (["--harbour-name=a", "b"], "sailor: unknown setting b; --help lists the known ones"),
        (["--harbour-name"], "sailor: argument --harbour-name: expected one argument"),
        (["--sail=x"], "sailor: --harbour-name (HARBOUR_NAME): is required; --sail (SAIL): must be one of jib, main, found 'x'"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_allowed(arguments: list[str], told: str) -> None:
    with pytest.raises(SettingsError) as raised:
        boat(*arguments)
    assert str(raised.value) == told


def test_help_tells_flag_variable_and_default(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        boat("--help")
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert "A program with a boat." in told
    for line in (
        "--harbour-name VALUE  where it lies (environment: HARBOUR_NAME; required)",
        "--crew VALUE          how many sail it (environment: CREW; optional)",
        "--log-dir VALUE       its log (environment: LOG_DIR; default /log)",
        "--motto VALUE         its motto (environment: MOTTO; optional)",
    ):
        assert line in told


def test_effective_settings_are_those_with_a_value() -> None:
    assert effective(boat("--harbour-name=a")) == {"harbour_name": "a", "port": "80", "log_dir": "/log", "sail": "jib"}


def test_settings_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        boat("--harbour-name=a").port = 81  # type: ignore[misc]
