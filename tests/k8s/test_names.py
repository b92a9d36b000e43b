"""Names that the API accepts and refuses, in its words (the slice contract tests compare some of them with a real server)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dra_driver.k8s.names import (
    c_identifier_error,
    dns_label_error,
    dns_subdomain_error,
    driver_name_error,
    label_key_error,
    label_value_error,
)

Check = Callable[[str], str | None]


@pytest.mark.parametrize(
    ("check", "good"),
    [
        (dns_label_error, ["a", "0", "gpu-0000-17-00-0", 63 * "a"]),
        (dns_subdomain_error, ["a", "a.b", "0.1", "node-1.example.com", 253 * "a"]),
        (driver_name_error, ["gpu.nvidia.com", "GPU.Nvidia.com", 63 * "a"]),
        (label_key_error, ["a", "A_b.c", "example.com/A_b", f"{253 * 'a'}/{63 * 'b'}"]),
        (label_value_error, ["", "a", "A_b.c-1", 63 * "a"]),
        (c_identifier_error, ["a", "_a", "A1", 32 * "a"]),
    ],
)
def test_good_names(check: Check, good: list[str]) -> None:
    assert [check(name) for name in good] == [None] * len(good)


@pytest.mark.parametrize(
    ("check", "bad", "text"),
    [
        (dns_label_error, "", "a lowercase RFC 1123 label must consist of"),
        (dns_label_error, "A", "a lowercase RFC 1123 label must consist of"),
        (dns_label_error, "-a", "a lowercase RFC 1123 label must consist of"),
        (dns_label_error, "a\n", "a lowercase RFC 1123 label must consist of"),
        (dns_label_error, "a.b", "must not contain dots"),
        (dns_label_error, 64 * "a", "must be no more than 63 characters"),
        (dns_subdomain_error, "a..b", "a lowercase RFC 1123 subdomain must consist of"),
        (dns_subdomain_error, 254 * "a", "must be no more than 253 characters"),
        (driver_name_error, "", "must be non-empty"),
        (driver_name_error, 64 * "a", "may not be more than 63 bytes"),
        (driver_name_error, "a_b", "a lowercase RFC 1123 subdomain must consist of"),
        (label_key_error, "", "name part must be non-empty"),
        (label_key_error, "/a", "prefix part must be non-empty"),
        (label_key_error, "A/a", "prefix part a lowercase RFC 1123 subdomain must consist of"),
        (label_key_error, "a/b/c", "a valid label key must consist of alphanumeric characters"),
        (label_key_error, "a b", "name part must consist of alphanumeric characters"),
        (label_key_error, 64 * "a", "name part must be no more than 63 bytes"),
        (label_value_error, "a b", "a valid label must be an empty string or consist of"),
        (label_value_error, 64 * "a", "must be no more than 63 bytes"),
        (label_value_error, 32 * "é", "must be no more than 63 bytes"),
        (c_identifier_error, "a-b", "a valid C identifier must start with alphabetic character"),
        (c_identifier_error, 33 * "a", "may not be more than 32 bytes"),
    ],
)
def test_bad_names(check: Check, bad: str, text: str) -> None:
    assert (check(bad) or "").startswith(text)
