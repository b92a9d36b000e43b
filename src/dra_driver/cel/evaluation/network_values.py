"""Addresses, networks and URLs as CEL values."""

from __future__ import annotations

from typing import Any

from dra_driver.cel.evaluation.values import Hashed, Value


class IpAddress(Hashed):
    """An IPv4 (`width` 32) or IPv6 (128) address as a number."""

    __slots__ = ("number", "width")
    type_name = "net.IP"
    go_name = "cel.IP"

    def __init__(self, width: int, number: int) -> None:
        self.width = width
        self.number = number

    @property
    def key(self) -> Any:
        return self.width, self.number

    def __str__(self) -> str:
        if self.width == 32:
            return ".".join(str(byte) for byte in self.number.to_bytes(4, "big"))
        groups = [self.number >> shift & 0xFFFF for shift in range(112, -1, -16)]
        start, length = _longest_zeroes(groups)
        if length < 2:
            return ":".join(f"{group:x}" for group in groups)
        left, right = (":".join(f"{group:x}" for group in part) for part in (groups[:start], groups[start + length :]))
        return f"{left}::{right}"


def _longest_zeroes(groups: list[int]) -> tuple[int, int]:
    """Start and length of the first longest run of zeroes."""
    best = (0, 0)
    start = 0
    for index, group in enumerate([*groups, 1]):
        if group:
            if index - start > best[1]:
                best = (start, index - start)
            start = index + 1
    return best


class Cidr(Hashed):
    """A network as written: an address and a prefix length."""

    __slots__ = ("address", "bits")
    type_name = "net.CIDR"
    go_name = "cel.CIDR"

    def __init__(self, address: IpAddress, bits: int) -> None:
        self.address = address
        self.bits = bits

    @property
    def key(self) -> Any:
        return *self.address.key, self.bits

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"


class Url(Value):
    """A parsed URL."""

    __slots__ = ("parts",)
    type_name = "kubernetes.URL"
    go_name = "cel.URL"

    def __init__(self, parts: Any) -> None:
        self.parts = parts
