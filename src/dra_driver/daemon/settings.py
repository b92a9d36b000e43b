"""Settings of a long-running program: a flag first, an environment variable second, a default last.

A program's settings are one frozen dataclass with keyword fields, each made by `setting`. The field `plugin_dir` is the flag ``--plugin-dir`` and the
variable ``PLUGIN_DIR``. Unknown flags and malformed values are refused with the flag, the value and what is allowed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, overload

from dra_driver.errors import SettingsError

T = TypeVar("T")
D = TypeVar("D")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all settings. A subclass whose fields depend on each other says what is wrong with them by a ValueError of `__post_init__`."""


S = TypeVar("S", bound=Settings)


@overload
def setting(description: str, read: Callable[[str], T]) -> T: ...
@overload
def setting(description: str, read: Callable[[str], T], default: D) -> T | D: ...
def setting(description: str, read: Callable[[str], Any], default: Any = MISSING) -> Any:
    """A field. `read` makes the value of its text, and says what is allowed by a ValueError; without a `default` the setting is required."""
    return field(default=default, metadata={"description": description, "read": read})


def absolute_path(text: str) -> Path:
    """Reads an absolute path."""
    path = Path(text)
    if not path.is_absolute():
        raise ValueError("must be an absolute path")
    return path


def whole_number(least: int = 0, most: int | None = None) -> Callable[[str], int]:
    """Reads a decimal number in this range."""

    def read(text: str) -> int:
        value = int(text) if text.isdecimal() and text.isascii() else -1
        if value < least or (most is not None and value > most):
            raise ValueError(f"must be a whole number, {least} or more" if most is None else f"must be a whole number from {least} to {most}")
        return value

    return read


def one_of(*choices: str) -> Callable[[str], str]:
    """Reads one of these words."""

    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return text

    return read


def parse(model: type[S], program: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> S:
    """The settings from a command line and the environment. SettingsError names each wrong one; `--help` ends the process as usual."""
    variables = os.environ if environment is None else environment
    known = fields(model)
    parser = argparse.ArgumentParser(prog=program, description=model.__doc__, allow_abbrev=False, exit_on_error=False)
    for one in known:
        default = "required" if one.default is MISSING else f"default {one.default}" if one.default not in (None, "") else "optional"
        parser.add_argument(_flag(one.name), metavar="VALUE", help=f"{one.metadata['description']} (environment: {one.name.upper()}; {default})")
    try:
        given, unknown = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError as error:
        raise SettingsError(f"{program}: {error}") from error
    if unknown:
        raise SettingsError(f"{program}: unknown setting {unknown[0]}; --help lists the known ones")
    texts = {one.name: variables[one.name.upper()] for one in known if variables.get(one.name.upper())}
    texts |= {name: text for name, text in vars(given).items() if text is not None}
    values: dict[str, Any] = {}
    problems = []
    for one in known:
        try:
            values |= _value(one, texts)
        except ValueError as error:
            problems.append(f"{_flag(one.name)} ({one.name.upper()}): {error}")
    if problems:
        raise SettingsError(f"{program}: {'; '.join(problems)}")
    try:
        return model(**values)
    except ValueError as error:
        raise SettingsError(f"{program}: {error}") from error


def effective(settings: Settings) -> dict[str, str]:
    """All settings as texts, for the log at start."""
    return {name: str(value) for name, value in vars(settings).items() if value not in (None, "")}


def _value(one: Field[Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """The field's name and value, nothing where its default counts."""
    text = texts.get(one.name)
    if text is None:
        if one.default is MISSING:
            raise ValueError("is required")
        return {}
    try:
        return {one.name: one.metadata["read"](text)}
    except ValueError as error:
        raise ValueError(f"{error}, found {text!r}") from error


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
