"""Settings of a long-running program: a flag first, an environment variable second, a default last.

A program's settings are one pydantic model. The field `plugin_dir` is the flag ``--plugin-dir`` and the variable ``PLUGIN_DIR``, its description the
help text. Unknown flags and malformed values are refused with the flag, the value and what is allowed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from dra_driver.errors import SettingsError


class Settings(BaseModel):
    """Base of all settings: immutable, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


S = TypeVar("S", bound=Settings)


def parse(model: type[S], program: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> S:
    """The settings from a command line and the environment. SettingsError names each wrong one; `--help` ends the process as usual."""
    variables = os.environ if environment is None else environment
    parser = argparse.ArgumentParser(prog=program, description=model.__doc__, allow_abbrev=False, exit_on_error=False)
    for name, field in model.model_fields.items():
        default = "required" if field.is_required() else f"default {field.get_default()!s}" if field.get_default() not in (None, "") else "optional"
        parser.add_argument(_flag(name), metavar="VALUE", help=f"{field.description} (environment: {name.upper()}; {default})")
    try:
        given, unknown = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError as error:
        raise SettingsError(f"{program}: {error}") from error
    if unknown:
        raise SettingsError(f"{program}: unknown setting {unknown[0]}; --help lists the known ones")
    values: dict[str, Any] = {name: variables[name.upper()] for name in model.model_fields if variables.get(name.upper())}
    values |= {name: value for name, value in vars(given).items() if value is not None}
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise SettingsError(f"{program}: " + "; ".join(_explain(problem) for problem in error.errors())) from error


def effective(settings: Settings) -> dict[str, str]:
    """All settings as texts, for the log at start."""
    return {name: str(value) for name, value in settings.model_dump().items() if value not in (None, "")}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _explain(problem: Any) -> str:
    name = str(problem["loc"][0]) if problem["loc"] else ""
    found = "" if problem["type"] == "missing" else f", found {problem['input']!r}"
    message = "is required" if problem["type"] == "missing" else problem["msg"].removeprefix("Value error, ")
    return f"{_flag(name)} ({name.upper()}): {message}{found}" if name else message
