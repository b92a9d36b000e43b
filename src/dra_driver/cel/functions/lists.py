"""Lists and sets: sorting, searching, sums, slices. Lists of mixed types are handled as cel-go handles them, errors included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dra_driver.cel.evaluation import arithmetic, equality
from dra_driver.cel.evaluation.go_text import show
from dra_driver.cel.evaluation.type_names import shown_type
from dra_driver.cel.evaluation.values import MISSING, NO_OVERLOAD, Duration, Err, GrowingList, ListValue, MapValue, Uint
from dra_driver.cel.functions.go_sort import sort_like_go

_MAX_RANGE = 1_000_000
_MAX_ATTRIBUTE_VALUES = 48
_TOO_COSTLY_TO_SORT = 1000
"""Sorting costs more than twice the square of the length: above this the evaluation is cancelled whatever the result."""

_LISTS = frozenset({ListValue, GrowingList})


def _is_sorted(elements: ListValue) -> Any:
    previous: Any = MISSING
    for element in elements:
        if type(element) not in equality.ORDERED:
            return NO_OVERLOAD
        if previous is not MISSING and equality.compare(previous, element) == 1:
            return False
        previous = element
    return True


def _sum(zero: Any) -> Callable[[ListValue], Any]:
    def total(elements: ListValue) -> Any:
        result = zero
        for element in elements:
            if type(element) not in arithmetic.ADDABLE:
                return NO_OVERLOAD
            result = arithmetic.add(result, element)
            if isinstance(result, Err):
                return result
        return result

    return total


def _extreme(name: str, replaced_when: int) -> Callable[[ListValue], Any]:
    def find(elements: ListValue) -> Any:
        result: Any = MISSING
        for element in elements:
            if type(element) not in equality.ORDERED:
                return NO_OVERLOAD
            if result is MISSING or equality.compare(result, element) == replaced_when:
                result = element
        return Err(f"{name} called on empty list") if result is MISSING else result

    return find


def _index_of(elements: ListValue, item: Any) -> int:
    return next((index for index, element in enumerate(elements) if equality.same(element, item) is True), -1)


def _last_index_of(elements: ListValue, item: Any) -> int:
    return next((index for index in range(len(elements) - 1, -1, -1) if equality.same(elements[index], item) is True), -1)


def _includes(target: Any, item: Any) -> bool:
    if isinstance(target, ListValue):
        return any(equality.same(element, item) is True for element in target)
    return equality.same(target, item) is True


def _includes_in_short(target: Any, item: Any) -> Any:
    if not isinstance(target, ListValue):
        return equality.same(target, item) is True
    if any(equality.same(element, item) is True for element in target[:_MAX_ATTRIBUTE_VALUES]):
        return True
    if len(target) > _MAX_ATTRIBUTE_VALUES:
        return Err(f"'includes' function cannot be applied to lists longer than {_MAX_ATTRIBUTE_VALUES} values")
    return False


def _slice(elements: ListValue, start: int, end: int) -> Any:
    if start < 0 or end < 0:
        return Err(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        return Err(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(elements) < end:
        return Err(f"cannot slice({start}, {end}), list is length {len(elements)}")
    return ListValue(elements[start:end])


def _flatten(elements: Any, depth: Any = 1) -> Any:
    if not isinstance(elements, ListValue) or type(depth) is not int:
        signature = "" if depth == 1 and type(depth) is int else shown_type(depth)
        return Err(f"no such overload: {shown_type(elements)}.flatten({signature})")
    return Err("level must be non-negative") if depth < 0 else ListValue(_flat(elements, depth))


def _flatten_by(elements: Any, depth: Any) -> Any:
    if not isinstance(elements, ListValue) or type(depth) is not int:
        return Err(f"no such overload: {shown_type(elements)}.flatten({shown_type(depth)})")
    return _flatten(elements, depth)


def _flat(elements: ListValue, depth: int) -> list[Any]:
    flat: list[Any] = []
    for element in elements:
        if isinstance(element, ListValue) and depth > 0:
            flat += _flat(element, depth - 1)
        else:
            flat.append(element)
    return flat


def _sort(elements: ListValue) -> Any:
    return _sort_by_keys(elements, elements)


def _sort_by_keys(elements: ListValue, keys: ListValue) -> Any:
    if len(elements) != len(keys):
        counts = f"{len(elements)} and {len(keys)}"
        return Err(f"@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {counts} elements respectively")
    if not elements:
        return elements
    kind = type(keys[0])
    if kind not in equality.ORDERED:
        return Err("list elements must be comparable")
    if any(type(key) is not kind for key in keys):
        return Err("list elements must have the same type")
    if len(keys) > _TOO_COSTLY_TO_SORT:
        return elements
    order = sort_like_go(len(keys), lambda left, right: equality.compare(keys[left], keys[right]) == -1)
    return ListValue(elements[index] for index in order)


def _range(count: int) -> Any:
    if count < 0:
        return Err(f"lists.range: size must be non-negative, got {show(count)}")
    if count > _MAX_RANGE:
        return Err(f"lists.range: size {show(count)} exceeds maximum allowed ({_MAX_RANGE})")
    return ListValue(range(count))


def _unlimited_range(count: int) -> ListValue:
    """Old versions try any length; the evaluation is cancelled for what exceeds the limit."""
    return ListValue(range(min(count, _MAX_RANGE + 1)))


def _distinct(elements: ListValue) -> ListValue:
    unique = ListValue()
    for element in elements:
        if not any(equality.same(element, other) is True for other in unique):
            unique.append(element)
    return unique


def _sets_contain(elements: ListValue, others: ListValue) -> bool:
    return all(equality.contains(elements, other) is True for other in others)


OVERLOADS: dict[str, Callable[..., Any]] = {
    "list_int_sum_int": _sum(0),
    "list_uint_sum_uint": _sum(Uint(0)),
    "list_double_sum_double": _sum(0.0),
    "list_duration_sum_duration": _sum(Duration(0)),
    "list_a_index_of_int": _index_of,
    "list_a_last_index_of_int": _last_index_of,
    "list_includes_dyn_dyn": _includes,
    "dra_includes_dyn_dyn": _includes_in_short,
    "list_slice": _slice,
    "list_flatten": _flatten,
    **dict.fromkeys(("list_flatten_int", "list_flatten_int_unclamped"), _flatten_by),
    "lists_range": _range,
    "lists_range_unlimited": _unlimited_range,
    "list_reverse": lambda elements: ListValue(reversed(elements)),
    "list_distinct": _distinct,
    "list_sets_contains_list": _sets_contain,
    "list_sets_equivalent_list": lambda left, right: _sets_contain(left, right) and _sets_contain(right, left),
    "list_sets_intersects_list": lambda left, right: any(equality.contains(right, element) is True for element in left),
    "@mapInsert_map_key_value": lambda entries, key, value: _insert(entries, [(key, value)]),
    "@mapInsert_map_map": lambda entries, more: _insert(entries, more.items()),
}
for _kind in ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"):
    OVERLOADS[f"list_{_kind}_is_sorted_bool"] = _is_sorted
    OVERLOADS[f"list_{_kind}_max_{_kind}"] = _extreme("max", -1)
    OVERLOADS[f"list_{_kind}_min_{_kind}"] = _extreme("min", 1)


def _insert(entries: MapValue, pairs: list[tuple[Any, Any]]) -> Any:
    """Adds to the accumulator of a map comprehension."""
    for key, value in pairs:
        if entries.has(key):
            return Err(f"insert failed: key {show(key)} already exists")
        entries.set(key, value)
    return entries


FUNCTIONS: dict[str, tuple[Callable[..., Any], frozenset[type] | None]] = {
    "sort": (_sort, _LISTS),
    "@sortByAssociatedKeys": (_sort_by_keys, _LISTS),
}
