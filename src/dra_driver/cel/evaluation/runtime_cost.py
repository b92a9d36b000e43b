"""What one call costs at run time, by the sizes of its operands: cel-go's rules, its list library's, and Kubernetes'."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dra_driver.cel.cost.ranges import whole
from dra_driver.cel.cost.rates import NEW_LIST, REGEX_FACTOR, STRING_FACTOR, UNIT_CALLS
from dra_driver.cel.evaluation.arithmetic import ADDABLE
from dra_driver.cel.evaluation.network_values import Cidr, IpAddress, Url
from dra_driver.cel.evaluation.type_names import go_name
from dra_driver.cel.evaluation.values import MAX_UINT, MIN_INT, Amount, ListValue, MapValue, NamedFormat, OptionalValue, PanicError, TextMap, Version
from dra_driver.k8s.quantity import Quantity

_SIZED = frozenset({str, bytes})
_UNIT_EQUALITY = frozenset({Amount, Quantity, IpAddress, Cidr, NamedFormat, Url, Version})


def actual_size(value: Any) -> int:
    """The size of a value; 1 for what has none."""
    if type(value) in _SIZED or isinstance(value, (ListValue, MapValue, TextMap)):
        return len(value)
    if type(value) is IpAddress:
        return value.width // 8
    return math.ceil(value.bits / 8) if type(value) is Cidr else 1


def _core_size(value: Any) -> int:
    """As `actual_size`, but looking into an optional."""
    return _core_size(value.value) if type(value) is OptionalValue and value.has_value else actual_size(value)


def _scaled(size: float, factor: float) -> int:
    return math.ceil(size * factor)


def _traversal(value: Any) -> int:
    if type(value) in _SIZED:
        length = len(value.encode(errors="surrogatepass")) if type(value) is str else len(value)
        return int(length * STRING_FACTOR)
    if isinstance(value, ListValue):
        return sum(map(_traversal, value))
    if isinstance(value, (MapValue, TextMap)):
        return sum(_traversal(key) + _traversal(inner) for key, inner in value.items())
    return 1


def _network(args: list[Any], overload: str, text_overload: str) -> int:
    cost = _scaled(2 * actual_size(args[0]), STRING_FACTOR)
    return cost + _scaled(actual_size(args[1]), STRING_FACTOR) if overload == text_overload else cost


def _contains_cidr(args: list[Any], overload: str) -> int:
    return _network(args, overload, "cidr_contains_cidr_string") + _scaled(actual_size(args[0]), STRING_FACTOR) + 1


def _regex(args: list[Any]) -> int:
    return _scaled(1.0 + actual_size(args[0]), STRING_FACTOR) * _scaled(actual_size(args[1]), REGEX_FACTOR)


def _validate(args: list[Any]) -> int | None:
    if type(args[0]) is not NamedFormat:
        return None
    return _scaled(1.0 + actual_size(args[1]), STRING_FACTOR) * _scaled(args[0].max_regex_size, REGEX_FACTOR)


def _per_character(factor: float) -> Callable[[list[Any], str, Any], int | None]:
    return lambda args, _overload, _result: _scaled(actual_size(args[0]), factor)


def _one(_args: list[Any], _overload: str, _result: Any) -> int:
    return 1


# Kubernetes' library, by function name


def _equals(args: list[Any], _overload: str, _result: Any) -> int | None:
    return 1 if type(args[0]) in _UNIT_EQUALITY else None


_BY_FUNCTION: dict[str, Callable[[list[Any], str, Any], int | None]] = {
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"),
        lambda args, _overload, _result: _traversal(args[0]) if args else 0,
    ),
    **dict.fromkeys(
        ["url", "lowerAscii", "upperAscii", "substring", "trim", "cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"],
        _per_character(STRING_FACTOR),
    ),
    **dict.fromkeys(("replace", "split"), _per_character(2 * STRING_FACTOR)),
    "join": lambda _args, _overload, result: _scaled(actual_size(result), 2 * STRING_FACTOR),
    **dict.fromkeys(("find", "findAll"), lambda args, _overload, _result: _regex(args)),
    "ip": lambda args, overload, _result: 1 if overload == "cidr_ip" else _scaled(actual_size(args[0]), STRING_FACTOR),
    "ip.isCanonical": _per_character(2 * STRING_FACTOR),
    **dict.fromkeys(
        UNIT_CALLS,
        _one,
    ),
    "containsIP": lambda args, overload, _result: _network(args, overload, "cidr_contains_ip_string"),
    "containsCIDR": lambda args, overload, _result: _contains_cidr(args, overload),
    "validate": lambda args, _overload, _result: _validate(args),
    "_==_": _equals,
}


# cel-go's libraries of lists and sets, by overload


def _list_cost(factor: float, size: int) -> int:
    return min(whole(float(size) * (1.0 if factor < 0 else factor)) + 1 + NEW_LIST, MAX_UINT)


def _self_compare(elements: Any) -> int:
    """cel-go takes the operand for a list without asking: an error or other value in its place is a panic."""
    if not isinstance(elements, ListValue):
        missing = "Contains" if type(elements) in ADDABLE else "Add"
        raise PanicError(f"interface conversion: {go_name(elements)} is not traits.Lister: missing method {missing}")
    factor = 2.0 + (STRING_FACTOR if elements and type(elements[0]) in _SIZED else 0)
    return _list_cost(factor, len(elements) ** 2)


def _flatten(args: list[Any], _result: Any) -> int:
    if len(args) == 2 and type(args[1]) is not int:
        raise PanicError(f"interface conversion: ref.Val is {go_name(args[1])}, not types.Int")
    return _list_cost(float(args[1]) if len(args) == 2 else 1.0, actual_size(args[0]))


def _unclamped_flatten(args: list[Any], _result: Any) -> int:
    """A negative depth makes cel-go 0.26 convert a negative double to an unsigned integer, as the processor does."""
    if type(args[1]) is not int or args[1] >= 0:
        return _flatten(args, _result)
    product = int(float(actual_size(args[0])) * float(args[1]))
    return (max(product, MIN_INT) + 1 + NEW_LIST) % 2**64


def _output(_args: list[Any], result: Any) -> int:
    return _list_cost(1.0, actual_size(result))


def _sets(factor: float) -> Callable[[list[Any], Any], int]:
    return lambda args, _result: 1 + int(float(actual_size(args[0]) * actual_size(args[1])) * factor)


_BY_OVERLOAD: dict[str, Callable[[list[Any], Any], int]] = {
    "dra_includes_dyn_dyn": lambda _args, _result: 1,
    **dict.fromkeys(("list_slice", "lists_range", "lists_range_unlimited", "list_reverse"), _output),
    **dict.fromkeys(("list_flatten", "list_flatten_int"), _flatten),
    "list_flatten_int_unclamped": _unclamped_flatten,
    "list_distinct": lambda args, _result: _self_compare(args[0]),
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
}
for _type in ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"):
    _BY_OVERLOAD[f"list_{_type}_sort"] = lambda args, _result: _self_compare(args[0])
    _BY_OVERLOAD[f"list_{_type}_sortByAssociatedKeys"] = lambda args, _result: _self_compare(args[1])

_BY_TEXT = frozenset(
    ["string_to_bytes", "bytes_to_string", "strings_quote", "string_format", "starts_with_string_by_text", "ends_with_string_by_text"]
)
_ORDER_OVERLOADS = frozenset(f"{name}_{kind}" for name in ("less", "greater", "less_equals", "greater_equals") for kind in ("string", "bytes"))


def _core(overload: str, args: list[Any]) -> int:
    """cel-go's own rules."""
    if overload in ("starts_with_string", "ends_with_string"):
        return _scaled(_core_size(args[1]), STRING_FACTOR)
    if overload in _BY_TEXT:
        return _scaled(_core_size(args[0]), STRING_FACTOR)
    if overload == "in_list":
        return _core_size(args[1])
    if overload in _ORDER_OVERLOADS or overload in ("equals", "not_equals"):
        return _scaled(min(_core_size(args[0]), _core_size(args[1])), STRING_FACTOR)
    if overload in ("add_string", "add_bytes"):
        return _scaled(_core_size(args[0]) + _core_size(args[1]), STRING_FACTOR)
    if overload in ("matches", "matches_string"):
        return _scaled(1.0 + _core_size(args[0]), STRING_FACTOR) * _scaled(_core_size(args[1]), REGEX_FACTOR)
    if overload == "contains_string":
        return _scaled(_core_size(args[0]), STRING_FACTOR) * _scaled(_core_size(args[1]), STRING_FACTOR)
    return 1


def call_cost(function: str, overload: str, args: list[Any], result: Any) -> int:
    """The cost of one call."""
    if (by_overload := _BY_OVERLOAD.get(overload)) is not None:
        return by_overload(args, result)
    if (by_function := _BY_FUNCTION.get(function)) is not None and (cost := by_function(args, overload, result)) is not None:
        return cost
    return _core(overload, args)
