"""The API's rules for names, with the API's own messages.

Each function returns the texts that the API server puts behind `Invalid value: "…": ` or `Too long: ` in a 422: all of them, or the first one where
its name is in the singular; nothing for a good value. Lengths count bytes, whatever unit the message names.
Source: k8s.io/apimachinery, pkg/api/validate/content; resource.k8s.io names: pkg/apis/resource/validation.
"""

from __future__ import annotations

import re

DNS_LABEL_MAX = 63
DNS_SUBDOMAIN_MAX = 253
LABEL_MAX = 63
DRIVER_NAME_MAX = 63
POOL_NAME_MAX = 253
ATTRIBUTE_DOMAIN_MAX = 63
ATTRIBUTE_ID_MAX = 32

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_LABEL_NAME})?"
_C_IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"

_LABEL_NAME_RULE = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"


def dns_label_errors(value: str, *, unit: str = "characters") -> list[str]:
    """RFC 1123 label: names of devices, counters, counter sets and requests.

    The API counts bytes everywhere and calls them characters in what it checks by hand, bytes in what it checks declaratively: that is `unit`.
    """
    found = _too_long(value, DNS_LABEL_MAX, unit)
    if re.fullmatch(_LABEL, value):
        return found
    if re.fullmatch(_SUBDOMAIN, value):
        return [*found, "must not contain dots"]
    rule = (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character"
    )
    return [*found, _mismatch(rule, _LABEL, "my-name", "123-abc")]


def dns_label_error(value: str) -> str | None:
    """The first of `dns_label_errors`."""
    return _first(dns_label_errors(value))


def dns_subdomain_errors(value: str, *, unit: str = "characters") -> list[str]:
    """RFC 1123 subdomain: names of most objects. `unit` as for labels."""
    rule = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
        "and must start and end with an alphanumeric character"
    )
    found = _too_long(value, DNS_SUBDOMAIN_MAX, unit)
    return found if re.fullmatch(_SUBDOMAIN, value) else [*found, _mismatch(rule, _SUBDOMAIN, "example.com")]


def dns_subdomain_error(value: str) -> str | None:
    """The first of `dns_subdomain_errors`."""
    return _first(dns_subdomain_errors(value))


def driver_name_error(value: str) -> str | None:
    """`spec.driver` and the domain of an attribute: a subdomain of at most 63 bytes; upper case is allowed, though the API warns of it."""
    if not value:
        return "must be non-empty"
    return _beyond(value, DRIVER_NAME_MAX) or dns_subdomain_error(value.lower())


def label_key_errors(value: str) -> list[str]:
    """Keys of labels and annotations, taint keys, condition types: `[prefix/]name`, which the API also calls a qualified name."""
    prefix, slash, name = value.rpartition("/")
    rule = _mismatch(_LABEL_NAME_RULE, _LABEL_NAME, "MyName", "my.name", "123-abc")
    if value.count("/") > 1:
        return [f"a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    wrong = [] if not slash else dns_subdomain_errors(prefix, unit="bytes") if prefix else ["must be non-empty"]
    found = [f"prefix part {text}" for text in wrong]
    found += [f"name part {text}" for text in (_too_long(name, LABEL_MAX, "bytes") if name else ["must be non-empty"])]
    return found if re.fullmatch(_LABEL_NAME, name) else [*found, f"name part {rule}"]


def label_key_error(value: str) -> str | None:
    """The first of `label_key_errors`."""
    return _first(label_key_errors(value))


def label_value_errors(value: str) -> list[str]:
    """Values of labels and taints; may be empty."""
    rule = (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
        "and must start and end with an alphanumeric character"
    )
    found = _too_long(value, LABEL_MAX, "bytes")
    return found if re.fullmatch(_LABEL_VALUE, value) else [*found, _mismatch(rule, _LABEL_VALUE, "MyValue", "my_value", "12345")]


def label_value_error(value: str) -> str | None:
    """The first of `label_value_errors`."""
    return _first(label_value_errors(value))


def c_identifier_mismatch(value: str) -> str | None:
    """The id of an attribute or capacity apart from its length."""
    rule = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'"
    return None if re.fullmatch(_C_IDENTIFIER, value) else _mismatch(rule, _C_IDENTIFIER, "my_name", "MY_NAME", "MyName")


def c_identifier_error(value: str) -> str | None:
    """The id of an attribute or capacity, without its domain."""
    return _beyond(value, ATTRIBUTE_ID_MAX) or c_identifier_mismatch(value)


def _first(found: list[str]) -> str | None:
    return found[0] if found else None


def _too_long(value: str, limit: int, unit: str) -> list[str]:
    return [f"must be no more than {limit} {unit}"] if len(value.encode()) > limit else []


def _beyond(value: str, limit: int) -> str | None:
    return f"may not be more than {limit} bytes" if len(value.encode()) > limit else None


def _mismatch(rule: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"
