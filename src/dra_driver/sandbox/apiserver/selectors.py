"""Field and label selectors over JSON objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.sandbox.apiserver.refusals import bad_request

Match = Callable[[Mapping[str, Any]], bool]

_SET_BASED = re.compile(r"(?P<key>[^\s!=,()]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)")
_EQUALITY = re.compile(r"(?P<key>[^\s!=,()]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s!=,()]*)")
_EXISTS = re.compile(r"(?P<not>!?)\s*(?P<key>[^\s!=,()]+)")


def field_selector(text: str, supported: frozenset[str], kind: str) -> Match:
    """`path=value,path!=value`; an unset field counts as "". Only the paths that the kind supports."""
    terms: list[tuple[str, bool, str]] = []
    for term in filter(None, text.split(",")):
        found = _EQUALITY.fullmatch(term.strip())
        if not found:
            raise bad_request(f"invalid selector: {text!r}; can't understand {term!r}")
        if found["key"] not in supported:
            raise bad_request(f"field label not supported for {kind}: {found['key']}")
        terms.append((found["key"], found["operator"] == "!=", found["value"]))
    return lambda obj: all((_field(obj, path) == value) != negated for path, negated, value in terms)


def label_selector(text: str) -> Match:
    """`a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a`, `!a`, joined by commas."""
    checks = [_label_check(term.strip(), text) for term in re.split(r",(?![^(]*\))", text) if term.strip()]
    return lambda obj: all(check((obj.get("metadata") or {}).get("labels") or {}) for check in checks)


def _label_check(term: str, whole: str) -> Match:
    if found := _SET_BASED.fullmatch(term):
        key, wanted = found["key"], {value.strip() for value in found["values"].split(",")}
        return (lambda labels: labels.get(key) in wanted) if found["operator"] == "in" else (lambda labels: labels.get(key) not in wanted)
    if found := _EQUALITY.fullmatch(term):
        key, value = found["key"], found["value"]
        return (lambda labels: labels.get(key) != value) if found["operator"] == "!=" else (lambda labels: labels.get(key) == value)
    if found := _EXISTS.fullmatch(term):
        key = found["key"]
        return (lambda labels: key not in labels) if found["not"] else (lambda labels: key in labels)
    raise bad_request(f"unable to parse requirement: {whole!r}")


def _field(obj: Mapping[str, Any], path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""
