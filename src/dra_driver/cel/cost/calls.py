"""Static cost of the functions that Kubernetes and cel-go's list and set libraries add."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from dra_driver.cel.checking.types import Type
from dra_driver.cel.cost import ranges
from dra_driver.cel.cost.paths import NOWHERE, FieldPath
from dra_driver.cel.cost.ranges import LIMIT, NOTHING, ONE, UNKNOWN, Range, fixed
from dra_driver.cel.cost.rates import NEW_LIST, REGEX_FACTOR, STRING_FACTOR, UNIT_CALLS
from dra_driver.cel.syntax.tree import Literal, Node

_NEW_LIST = fixed(NEW_LIST)
_MAX_NAME_REGEX = 128
_MAX_FORMAT = 64
_ADDRESS = (4, 16)

PathSize = Callable[[tuple[str, ...]], int | None]


class CallEstimate(NamedTuple):
    """The cost of a call, without its operands, and the size of its result where it is known."""

    cost: Range
    result: Range | None = None


class Operand(NamedTuple):
    """A target or argument: where it stands in the device (if it does), its type, its size where it is known."""

    path: FieldPath
    type: Type
    node: Node | None
    size: Range | None

    @property
    def size_or_unknown(self) -> Range:
        return self.size or UNKNOWN

    def integer(self, otherwise: int) -> int:
        """The value of a literal int; a negative one counts as 0."""
        if isinstance(self.node, Literal) and type(self.node.value) is int:
            return max(self.node.value, 0)
        return otherwise


class _Call(NamedTuple):
    function: str
    overload: str
    target: Operand | None
    args: list[Operand]
    path_size: PathSize

    def size(self, operand: Operand) -> Range:
        """The size of an operand, asked for by its path where it is not computed."""
        if operand.size is not None:
            return operand.size
        most = self.path_size(operand.path.steps)
        return UNKNOWN if most is None else (0, most)

    @property
    def receiver(self) -> Operand:
        if self.target is None:
            raise TypeError("a member has a target")
        return self.target

    def element(self) -> Operand | None:
        """The elements of the target, if it is a list."""
        params = self.receiver.type.params
        steps = self.receiver.path.steps
        return Operand(FieldPath(*steps, "@items") if steps else NOWHERE, params[0], None, None) if params else None


def estimate_call(function: str, overload: str, target: Operand | None, args: list[Operand], path_size: PathSize) -> CallEstimate | None:
    """The estimate, or None for the functions of cel-go's core."""
    call = _Call(function, overload, target, args, path_size)
    if (by_overload := _BY_OVERLOAD.get(overload)) is not None:
        return by_overload(call)
    by_function = _BY_FUNCTION.get(function)
    return None if by_function is None else by_function(call)


# Kubernetes


def _unit(_call: _Call) -> CallEstimate:
    return CallEstimate(ONE)


def _first_argument(factor: float, *, keeps_size: bool = False) -> Callable[[_Call], CallEstimate | None]:
    def of(call: _Call) -> CallEstimate | None:
        if not call.args:
            return None
        size = call.size(call.args[0])
        return CallEstimate(ranges.scale(size, factor), size if keeps_size else None)

    return of


def _scan_target(call: _Call) -> CallEstimate:
    size = call.size(call.receiver)
    return CallEstimate(ranges.scale(size, STRING_FACTOR), size)


def _per_element(call: _Call) -> CallEstimate:
    size = call.size(call.receiver)
    element = call.element()
    if element is None:
        return CallEstimate(ranges.multiply(size, ONE) if call.function == "includes" else ranges.scale(size, STRING_FACTOR))
    each = ONE
    if element.type.kind in ("string", "bytes"):
        each = ranges.add(each, ranges.scale(call.size(element), STRING_FACTOR))
    return CallEstimate(ranges.multiply(size, each))


def _replace(call: _Call) -> CallEstimate:
    size = call.size(call.receiver)
    old, new = call.size(call.args[0]), call.size(call.args[1])
    if old[0] == 0:
        most, kept_most = min(size[1] + 1, LIMIT), size[1]
    elif new[1] <= old[0]:
        most, kept_most = 0, size[1]
    else:
        most, kept_most = ranges.whole(math.ceil(float(size[1]) / float(old[0]))), 0
    if old[1] == 0:
        least, kept_least = min(size[0] + 1, LIMIT), size[0]
    elif old[1] <= new[0]:
        least, kept_least = 0, size[0]
    else:
        least, kept_least = ranges.whole(math.ceil(float(size[0]) / float(old[1]))), 0
    result = ranges.add(ranges.multiply((least, most), new), (kept_least, kept_most))
    return CallEstimate(ranges.scale(size, 2 * STRING_FACTOR), result)


def _split(call: _Call) -> CallEstimate:
    size = call.size(call.receiver)
    most = size[1]
    if len(call.args) > 1 and isinstance(node := call.args[1].node, Literal) and type(node.value) is int:
        most = node.value % 2**64
    return CallEstimate(ranges.scale(size, 2 * STRING_FACTOR), (0, most))


def _join(call: _Call) -> CallEstimate:
    count = call.size(call.receiver)
    element = call.element()
    size = NOTHING if element is None else ranges.multiply(count, call.size(element))
    if call.args:
        separators = max(count[0] - 1, 0), max(count[1] - 1, 0)
        size = ranges.add(size, ranges.multiply(call.size(call.args[0]), separators))
    return CallEstimate(ranges.scale(size, STRING_FACTOR), size)


def _find(call: _Call) -> CallEstimate:
    size = call.size(call.receiver)
    scanned = ranges.scale(ranges.add(size, ONE), STRING_FACTOR)
    return CallEstimate(ranges.multiply(scanned, ranges.scale(call.size(call.args[0]), REGEX_FACTOR)), (0, size[1]))


def _ip(call: _Call) -> CallEstimate | None:
    return CallEstimate(ONE) if call.overload == "cidr_ip" else _first_argument(STRING_FACTOR)(call)


def _contains_address(call: _Call) -> CallEstimate:
    cost = ranges.scale(ranges.add(_ADDRESS, _ADDRESS), STRING_FACTOR)
    if call.function == "containsCIDR":
        cost = ranges.add(cost, ranges.scale(_ADDRESS, STRING_FACTOR), ONE)
    if call.overload in ("cidr_contains_ip_string", "cidr_contains_cidr_string"):
        cost = ranges.add(cost, ranges.scale(call.size(call.args[0]), STRING_FACTOR))
    return CallEstimate(cost)


def _validate(call: _Call) -> CallEstimate:
    scanned = ranges.scale(call.size(call.args[0]), STRING_FACTOR)
    return CallEstimate(ranges.scale(scanned, _MAX_NAME_REGEX * REGEX_FACTOR))


_CHEAP_EQUALITY = frozenset({"kubernetes.Quantity", "kubernetes.Semver", "net.IP", "net.CIDR"})


def _equals(call: _Call) -> CallEstimate | None:
    left, right = call.args
    name = left.type.name
    if name != right.type.name or left.type.kind not in ("opaque", "struct"):
        return None
    if name in _CHEAP_EQUALITY or name.startswith("kubernetes.authorization."):
        return CallEstimate(ONE)
    if name == "kubernetes.NamedFormat":
        return CallEstimate(ranges.scale((1, _MAX_FORMAT), STRING_FACTOR))
    if name == "kubernetes.URL":
        return CallEstimate(ranges.scale((1, (right.size or ONE)[1]), STRING_FACTOR))
    return None


def _selector(call: _Call) -> CallEstimate:
    size = call.size(call.args[0])
    requirements = ranges.scale(ranges.scale(size, 0.5), 50.0)
    return CallEstimate(ranges.add(_NEW_LIST, ranges.scale(size, STRING_FACTOR), requirements))


_BY_FUNCTION: dict[str, Callable[[_Call], CallEstimate | None]] = {
    "check": lambda _call: CallEstimate(fixed(350_000)),
    **dict.fromkeys(("fieldSelector", "labelSelector"), _selector),
    **dict.fromkeys(["isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"], _per_element),
    "url": _first_argument(STRING_FACTOR, keeps_size=True),
    **dict.fromkeys(["lowerAscii", "upperAscii", "substring", "trim"], _scan_target),
    "replace": _replace,
    "split": _split,
    "join": _join,
    **dict.fromkeys(("find", "findAll"), _find),
    **dict.fromkeys(["cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"], _first_argument(STRING_FACTOR)),
    "ip": _ip,
    "ip.isCanonical": _first_argument(2 * STRING_FACTOR),
    **dict.fromkeys(("containsIP", "containsCIDR"), _contains_address),
    "validate": _validate,
    "_==_": _equals,
    **dict.fromkeys(
        UNIT_CALLS,
        _unit,
    ),
}


# cel-go's lists and sets


def _new_list(factor: float, size: Range) -> CallEstimate:
    return CallEstimate(ranges.add(ranges.scale(size, factor), ONE, _NEW_LIST), size)


def _slice(call: _Call) -> CallEstimate:
    start = call.args[0].integer(0)
    end = call.args[1].integer(call.size(call.receiver)[1])
    return _new_list(1, fixed((end - start) % 2**64))


def _flatten(call: _Call) -> CallEstimate:
    depth = call.args[0].integer(LIMIT) if call.args else 1
    return _new_list(float(depth), call.size(call.receiver))


def _sorting(kind: str, *, by_keys: bool) -> Callable[[_Call], CallEstimate]:
    factor = 2.0 + (STRING_FACTOR if kind in ("string", "bytes") else 0)

    def of(call: _Call) -> CallEstimate:
        size = call.size(call.args[0] if by_keys else call.receiver)
        return _new_list(factor, ranges.multiply(size, size))

    return of


def _distinct(call: _Call) -> CallEstimate:
    size = call.size(call.receiver)
    return _new_list(2.0, ranges.multiply(size, size))


def _sets(factor: float) -> Callable[[_Call], CallEstimate]:
    def of(call: _Call) -> CallEstimate:
        product = ranges.multiply(call.size(call.args[0]), call.size(call.args[1]))
        return CallEstimate(ranges.add(ranges.scale(product, factor), ONE))

    return of


_BY_OVERLOAD: dict[str, Callable[[_Call], CallEstimate]] = {
    "dra_includes_dyn_dyn": lambda _call: CallEstimate(ranges.multiply((0, 48), ONE)),
    "list_slice": _slice,
    "list_flatten": _flatten,
    **dict.fromkeys(("list_flatten_int", "list_flatten_int_unclamped"), _flatten),
    **dict.fromkeys(("lists_range", "lists_range_unlimited"), lambda call: _new_list(1, fixed(call.args[0].integer(LIMIT)))),
    "list_reverse": lambda call: _new_list(1, call.size(call.receiver)),
    "list_distinct": _distinct,
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
}
for _kind in ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"):
    _BY_OVERLOAD[f"list_{_kind}_sort"] = _sorting(_kind, by_keys=False)
    _BY_OVERLOAD[f"list_{_kind}_sortByAssociatedKeys"] = _sorting(_kind, by_keys=True)
