"""IP addresses and networks, read by the rules and with the error texts of Go's net/netip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dra_driver.cel.evaluation.go_text import quote
from dra_driver.cel.evaluation.network_values import Cidr, IpAddress
from dra_driver.cel.evaluation.values import NO_OVERLOAD, Err
from dra_driver.errors import ParseError

_HEX = "0123456789abcdefABCDEF"
_DIGITS = "0123456789"


def parse_address(text: str) -> tuple[IpAddress, str]:
    """An address and its zone. Raises ParseError with Go's text."""
    for char in text:
        if char == ".":
            return IpAddress(32, int.from_bytes(_ipv4(text, text), "big")), ""
        if char == ":":
            return _ipv6(text)
        if char == "%":
            raise _bad(text, "missing IPv6 address")
    raise _bad(text, "unable to parse IP")


def _bad(text: str, message: str, at: str = "") -> ParseError:
    return ParseError(f"ParseAddr({quote(text)}): {message}{f' (at {quote(at)})' if at else ''}")


def _ipv4(whole: str, text: str) -> bytes:
    fields: list[int] = []
    value = digits = 0
    for index, char in enumerate(text):
        if char in _DIGITS:
            if digits == 1 and value == 0:
                raise _bad(whole, "IPv4 field has octet with leading zero")
            value = value * 10 + int(char)
            digits += 1
            if value > 255:
                raise _bad(whole, "IPv4 field has value >255")
        elif char != ".":
            raise _bad(whole, "unexpected character", text[index:])
        else:
            if index in (0, len(text) - 1) or text[index - 1] == ".":
                raise _bad(whole, "IPv4 field must have at least one digit", text[index:])
            if len(fields) == 3:
                raise _bad(whole, "IPv4 address too long")
            fields.append(value)
            value = digits = 0
    if len(fields) < 3:
        raise _bad(whole, "IPv4 address too short")
    return bytes([*fields, value])


def _ipv6(whole: str) -> tuple[IpAddress, str]:
    text, percent, zone = whole.partition("%")
    if percent and not zone:
        raise _bad(whole, "zone must be a non-empty string")
    number = bytearray()
    ellipsis = -1
    if text.startswith("::"):
        ellipsis = 0
        text = text[2:]
        if not text:
            return IpAddress(128, 0), zone
    while len(number) < 16:
        width = _group_width(whole, text)
        if text[width : width + 1] == ".":
            _check_embedded(whole, text, number, ellipsis)
            number += _ipv4(whole, text)
            text = ""
            break
        number += int(text[:width], 16).to_bytes(2, "big")
        text = text[width:]
        if not text:
            break
        if text[0] != ":":
            raise _bad(whole, "unexpected character, want colon", text)
        if len(text) == 1:
            raise _bad(whole, "colon must be followed by more characters", text)
        text = text[1:]
        if text[0] == ":":
            if ellipsis >= 0:
                raise _bad(whole, "multiple :: in address", text)
            ellipsis = len(number)
            text = text[1:]
            if not text:
                break
    if text:
        raise _bad(whole, "trailing garbage after address", text)
    if len(number) < 16:
        if ellipsis < 0:
            raise _bad(whole, "address string too short")
        number[ellipsis:ellipsis] = bytes(16 - len(number))
    elif ellipsis >= 0:
        raise _bad(whole, "the :: must expand to at least one field of zeros")
    return IpAddress(128, int.from_bytes(number, "big")), zone


def _group_width(whole: str, text: str) -> int:
    width = 0
    while width < len(text) and text[width] in _HEX:
        if width > 3:
            raise _bad(whole, "each group must have 4 or less digits", text)
        width += 1
    if not width:
        raise _bad(whole, "each colon-separated field must have at least one digit", text)
    return width


def _check_embedded(whole: str, text: str, number: bytearray, ellipsis: int) -> None:
    if ellipsis < 0 and len(number) != 12:
        raise _bad(whole, "embedded IPv4 address must replace the final 2 fields of the address", text)
    if len(number) + 4 > 16:
        raise _bad(whole, "too many hex fields to fit an embedded IPv4 at the end of the address", text)


def _is_mapped(address: IpAddress) -> bool:
    return address.width == 128 and address.number >> 32 == 0xFFFF


def _address(text: str) -> IpAddress:
    try:
        address, zone = parse_address(text)
    except ParseError as error:
        raise ParseError(f"IP Address {quote(text)} parse error during conversion from string: {error}") from None
    if zone:
        raise ParseError(f"IP address {quote(text)} with zone value is not allowed")
    if _is_mapped(address):
        raise ParseError(f"IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return address


def _network(text: str) -> Cidr:
    head, slash, bits = text.rpartition("/")
    problem = ""
    if not slash:
        problem = "no '/'"
    else:
        try:
            address, zone = parse_address(head)
        except ParseError as error:
            problem = str(error)
        else:
            problem = _prefix_problem(address, zone, bits)
    if problem:
        raise ParseError(f"network address parse error during conversion from string: netip.ParsePrefix({quote(text)}): {problem}")
    if _is_mapped(address):
        raise ParseError(f"IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return Cidr(address, int(bits))


def _prefix_problem(address: IpAddress, zone: str, bits: str) -> str:
    if zone:
        return "IPv6 zones cannot be present in a prefix"
    if not bits or any(char not in _DIGITS for char in bits) or (len(bits) > 1 and bits[0] == "0"):
        return f"bad bits after slash: {quote(bits)}"
    if len(bits) > 18:
        return f"bad bits after slash: {quote(bits)}"
    return "prefix length out of range" if int(bits) > address.width else ""


def _or_error(read: Callable[[str], Any], prefix: str = "") -> Callable[[str], Any]:
    def of(text: str) -> Any:
        try:
            return read(text)
        except ParseError as error:
            return Err(f"{prefix}{error}")

    return of


_ip = _or_error(_address)
_cidr = _or_error(_network, "network address parse error during conversion from string: ")


def _parses(read: Callable[[str], Any]) -> Callable[[str], bool]:
    return lambda text: not isinstance(read(text), Err)


def _is_canonical(text: str) -> Any:
    address = _ip(text)
    return address if isinstance(address, Err) else str(address) == text


def _top(address: IpAddress, bits: int) -> int:
    return address.number >> (address.width - bits)


def _is_loopback(address: IpAddress) -> bool:
    return _top(address, 8) == 127 if address.width == 32 else address.number == 1


def _is_multicast(address: IpAddress) -> bool:
    return _top(address, 4) == 0xE if address.width == 32 else _top(address, 8) == 0xFF


def _is_link_local_multicast(address: IpAddress) -> bool:
    return _top(address, 24) == 0xE00000 if address.width == 32 else _top(address, 16) & 0xFF0F == 0xFF02


def _is_link_local_unicast(address: IpAddress) -> bool:
    return _top(address, 16) == 0xA9FE if address.width == 32 else _top(address, 10) == 0xFE80 >> 6


def _is_global_unicast(address: IpAddress) -> bool:
    if address.number == 0 or (address.width == 32 and address.number == 0xFFFFFFFF):
        return False
    return not (_is_loopback(address) or _is_multicast(address) or _is_link_local_unicast(address))


def _masked(network: Cidr) -> Cidr:
    host = network.address.width - network.bits
    return Cidr(IpAddress(network.address.width, network.address.number >> host << host), network.bits)


def _contains_ip(network: Cidr, address: Any) -> Any:
    if isinstance(address, Err):
        return NO_OVERLOAD  # Kubernetes looks at the network once more, not at the address that failed
    return network.address.width == address.width and _top(network.address, network.bits) == _top(address, network.bits)


def _contains_cidr(network: Cidr, other: Any) -> Any:
    if isinstance(other, Err):
        return other
    bits = min(network.bits, other.bits)
    overlaps = network.address.width == other.address.width and _top(network.address, bits) == _top(other.address, bits)
    return overlaps and network.bits <= other.bits


OVERLOADS: dict[str, Callable[..., Any]] = {
    "string_to_ip": _ip,
    "is_ip": _parses(_ip),
    "ip_is_canonical": _is_canonical,
    "ip_to_string": str,
    "ip_family": lambda address: 4 if address.width == 32 else 6,
    "ip_is_unspecified": lambda address: address.number == 0,
    "ip_is_loopback": _is_loopback,
    "ip_is_link_local_multicast": _is_link_local_multicast,
    "ip_is_link_local_unicast": _is_link_local_unicast,
    "ip_is_global_unicast": _is_global_unicast,
    "string_to_cidr": _cidr,
    "is_cidr": _parses(_cidr),
    "cidr_to_string": str,
    "cidr_contains_ip_string": lambda network, text: _contains_ip(network, _ip(text)),
    "cidr_contains_ip_ip": _contains_ip,
    "cidr_contains_cidr_string": lambda network, text: _contains_cidr(network, _cidr(text)),
    "cidr_contains_cidr": _contains_cidr,
    "cidr_ip": lambda network: network.address,
    "cidr_prefix_length": lambda network: network.bits,
    "cidr_masked": _masked,
}
