"""What the API server would refuse of a capacity: its amount, and the policy of what a request may consume of it. See slice_rules."""

from __future__ import annotations

from collections.abc import Iterator

from dra_driver.errors import ParseError
from dra_driver.k8s.field_errors import FieldError, duplicate, forbidden, invalid, required, too_many
from dra_driver.k8s.objects.resource import CapacityRange, CapacityRequestPolicy, DeviceCapacity
from dra_driver.k8s.quantity import Quantity

MAX_VALID_VALUES = 10

_LARGEST = Quantity.parse(str(2**63 - 1))
_ZERO = Quantity.parse("0")


def quantity(text: str, where: str) -> Iterator[FieldError]:
    """A text that is no Quantity."""
    try:
        Quantity.parse(text)
    except ParseError as error:
        yield invalid(where, text, str(error))


def unreadable(one: DeviceCapacity, where: str) -> Iterator[FieldError]:
    """Texts that are no Quantity."""
    yield from quantity(one.value, f"{where}.value")
    if (policy := one.request_policy) is None:
        return
    at = f"{where}.requestPolicy"
    if policy.default is not None:
        yield from quantity(policy.default, f"{at}.default")
    for index, text in enumerate(policy.valid_values):
        yield from quantity(text, f"{at}.validValues[{index}]")
    for name, value in _bounds(policy.valid_range).items():
        yield from quantity(value, f"{at}.validRange.{name}")


def capacity(one: DeviceCapacity, where: str, *, shared: bool) -> Iterator[FieldError]:
    """A capacity that can be read. `shared`: the device may be allocated more than once."""
    policy = one.request_policy
    if policy is not None and not shared:
        yield forbidden(f"{where}.requestPolicy", "allowMultipleAllocations must be true")
    elif policy is not None:
        yield from _policy(policy, Quantity.parse(one.value), f"{where}.requestPolicy")


def _bounds(valid_range: CapacityRange | None) -> dict[str, str]:
    """Those that are given."""
    found = {} if valid_range is None else {"min": valid_range.min, "max": valid_range.max, "step": valid_range.step}
    return {name: value for name, value in found.items() if value is not None}


def _policy(policy: CapacityRequestPolicy, most: Quantity, where: str) -> Iterator[FieldError]:
    both = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
    default = None if policy.default is None else Quantity.parse(policy.default)
    if policy.valid_values and policy.valid_range is not None:
        yield forbidden(where, both)
    elif policy.valid_values:
        if default is None:
            yield required(f"{where}.default", "required when validValues is defined")
        else:
            yield from _valid_values([Quantity.parse(text) for text in policy.valid_values], default, most, f"{where}.validValues")
    elif policy.valid_range is not None:
        if default is None:
            yield required(f"{where}.default", "required when validRange is defined")
        else:
            bounds = {name: Quantity.parse(text) for name, text in _bounds(policy.valid_range).items()}
            yield from _valid_range(bounds, default, most, f"{where}.validRange")


def _valid_values(values: list[Quantity], default: Quantity, most: Quantity, where: str) -> Iterator[FieldError]:
    for index in range(1, len(values)):
        if values[index - 1] > values[index]:
            yield invalid(f"{where}[{index}]", str(values[index]), "values must be sorted in ascending order")
    if len(values) > MAX_VALID_VALUES:
        yield too_many(where, len(values), MAX_VALID_VALUES)
    else:
        seen: set[int] = set()
        for index, value in enumerate(values):
            if value > most:
                yield invalid(f"{where}[{index}]", str(value), f"option is larger than capacity value: {most}")
            whole = value.rounded_up()
            if whole in seen:
                yield duplicate(f"{where}[{index}]", str(whole))
            elif whole is not None:
                seen.add(whole)
    if len(values) > MAX_VALID_VALUES or default not in values:
        yield invalid(where, str(default), "default value is not valid according to the requestPolicy")


def _valid_range(bounds: dict[str, Quantity], default: Quantity, most: Quantity, where: str) -> Iterator[FieldError]:
    least, limit = bounds.get("min"), bounds.get("max")
    if least is None:
        yield required(f"{where}.min", "required when validRange is defined")
        return
    if least > most:
        yield invalid(f"{where}.min", str(least), f"min is larger than capacity value: {most}")
    if default < least:
        yield invalid(f"{where}.default", str(default), f"default is less than min: {least}")
    if limit is not None:
        if least > limit:
            yield invalid(f"{where}.max", str(least), f"min is larger than max: {limit}")
        if limit > most:
            yield invalid(f"{where}.max", str(limit), f"max is larger than capacity value: {most}")
        if default > limit:
            yield invalid(f"{where}.default", str(default), f"default is more than max: {limit}")
    if "step" in bounds:
        yield from _step(bounds, least, default, most, where)


def _step(bounds: dict[str, Quantity], least: Quantity, default: Quantity, most: Quantity, where: str) -> Iterator[FieldError]:
    step = bounds["step"]
    if step.sign() <= 0:
        yield invalid(f"{where}.step", str(step), "must be greater than zero")
        return
    yield from _first_step(least, step, most, where)
    beyond = [error for name, value in ({"default": default} | bounds).items() for error in _beyond(value, f"{where}.{name}")]
    yield from beyond
    if beyond:
        return
    distance = step.rounded_up() or 1
    for value in (default, bounds.get("max")):
        if value is not None and ((value.rounded_up() or 0) - (least.rounded_up() or 0)) % distance:
            yield invalid(f"{where}.step", str(value), f"value is not a multiple of a given step ({step}) from ({least})")


def _first_step(least: Quantity, step: Quantity, most: Quantity, where: str) -> Iterator[FieldError]:
    try:
        second = least.add(step)
    except OverflowError:  # numbers whose sum has more digits than memory; they are refused by themselves
        return
    if second > most:
        yield invalid(f"{where}.step", str(step), f"one step {second} is larger than capacity value: {most}")


def _beyond(value: Quantity, where: str) -> Iterator[FieldError]:
    if value < _ZERO:
        yield invalid(where, str(value), "must be greater than or equal to 0")
    elif value > _LARGEST:
        yield invalid(where, str(value), f"must not be larger than {2**63 - 1}")
