"""Kubernetes' named formats: `format.dns1123Label().validate(x)` gives the problems of a name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dra_driver.cel.evaluation.conversions import parse_timestamp
from dra_driver.cel.evaluation.values import NONE, ListValue, NamedFormat, OptionalValue, Timestamp
from dra_driver.cel.functions.urls import request_problem

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_MAX_LABEL = 63
_MAX_SUBDOMAIN = 253

_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character"
)
_KEY_TEXT = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)

_UUID = re.compile("[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_BASE64 = re.compile("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CLOCK = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[^\n][0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})")


def _fits(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


def _length(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _explained(text: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


def _label(text: str) -> list[str]:
    problems = [f"must be no more than {_MAX_LABEL} bytes"] if _length(text) > _MAX_LABEL else []
    if not _fits(_LABEL, text):
        problems.append("must not contain dots" if _fits(_SUBDOMAIN, text) else _explained(_LABEL_TEXT, _LABEL, "my-name", "123-abc"))
    return problems


def _subdomain(text: str) -> list[str]:
    problems = [f"must be no more than {_MAX_SUBDOMAIN} bytes"] if _length(text) > _MAX_SUBDOMAIN else []
    if not _fits(_SUBDOMAIN, text):
        problems.append(_explained(_SUBDOMAIN_TEXT, _SUBDOMAIN, "example.com"))
    return problems


def _label_1035(text: str) -> list[str]:
    problems = [f"must be no more than {_MAX_LABEL} bytes"] if _length(text) > _MAX_LABEL else []
    if not _fits(_LABEL_1035, text):
        problems.append(_explained(_LABEL_1035_TEXT, _LABEL_1035, "my-name", "abc-123"))
    return problems


def _qualified_name(text: str) -> list[str]:
    problems: list[str] = []
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        shown = _explained(_KEY_TEXT, _KEY, "MyName", "my.name", "123-abc")
        return [f"a valid label key {shown} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    if slash:
        problems += ["prefix part must be non-empty"] if not prefix else [f"prefix part {problem}" for problem in _subdomain(prefix)]
    if not name:
        problems.append("name part must be non-empty")
    elif _length(name) > _MAX_LABEL:
        problems.append(f"name part must be no more than {_MAX_LABEL} bytes")
    if not _fits(_KEY, name):
        problems.append(f"name part {_explained(_KEY_TEXT, _KEY, 'MyName', 'my.name', '123-abc')}")
    return problems


def _label_value(text: str) -> list[str]:
    problems = [f"must be no more than {_MAX_LABEL} bytes"] if _length(text) > _MAX_LABEL else []
    if not _fits(_VALUE, text):
        problems.append(_explained(_VALUE_TEXT, _VALUE, "MyValue", "my_value", "12345"))
    return problems


def _prefix_of(problems: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """For a name to which more will be appended: a dash at its end does not matter."""
    return lambda text: problems(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


def _uri(text: str) -> list[str]:
    problem = request_problem(text)
    return [] if problem is None else [problem]


def _is_date(text: str) -> bool:
    return _DATE.fullmatch(text) is not None and isinstance(_whole_day(text), Timestamp)


def _whole_day(text: str) -> Any:
    """The day, with a year that timestamps know: year 0 is a leap year as 2000 is."""
    return parse_timestamp(f"{'2000' if text.startswith('0000') else text[:4]}{text[4:]}T00:00:00Z")


def _is_datetime(text: str) -> bool:
    parts = text.lower().split("t")
    if len(text) < 4 or len(parts) < 2 or not _is_date(parts[0]):
        return False
    clock = _CLOCK.fullmatch(parts[1])
    return clock is not None and clock[1] <= "23" and clock[2] <= "59" and clock[3] <= "59"


def _simple(valid: Callable[[str], bool], problem: str) -> Callable[[str], list[str]]:
    return lambda text: [] if valid(text) else [problem]


_FORMATS = {
    "dns1123Label": NamedFormat("DNS1123Label", _label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", _subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", _label_1035, 30),
    "qualifiedName": NamedFormat("QualifiedName", _qualified_name, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _prefix_of(_label), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _prefix_of(_subdomain), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _prefix_of(_label_1035), 30),
    "labelValue": NamedFormat("LabelValue", _label_value, 40),
    "uri": NamedFormat("URI", _uri, 1103),
    "uuid": NamedFormat("uuid", _simple(lambda text: _UUID.fullmatch(text) is not None, "does not match the UUID format"), 70),
    "byte": NamedFormat("byte", _simple(lambda text: _BASE64.fullmatch(text) is not None, "invalid base64"), 84),
    "date": NamedFormat("date", _simple(_is_date, "invalid date"), 71),
    "datetime": NamedFormat("datetime", _simple(_is_datetime, "invalid datetime"), 71),
}


def _named(name: str) -> OptionalValue:
    found = _FORMATS.get(name)
    return NONE if found is None else OptionalValue(found)


def _validate(named: NamedFormat, text: str) -> OptionalValue:
    problems = named.problems(text)
    return OptionalValue(ListValue(problems)) if problems else NONE


OVERLOADS: dict[str, Callable[..., Any]] = {
    "format-validate": _validate,
    "format-named": _named,
    **{f"format.{name}": (lambda named=named: named) for name, named in _FORMATS.items()},
}
