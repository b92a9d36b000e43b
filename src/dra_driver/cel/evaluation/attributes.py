"""Paths such as `device.attributes['d'].?name`: a start and a chain of qualifiers, resolved together because `?` makes the rest optional."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dra_driver.cel.evaluation.frames import Frame
from dra_driver.cel.evaluation.go_text import show
from dra_driver.cel.evaluation.type_names import go_name, type_name
from dra_driver.cel.evaluation.values import (
    MISSING,
    NO_OVERLOAD,
    NONE,
    Err,
    ListValue,
    MapValue,
    Message,
    OptionalValue,
    TextMap,
    Uint,
    double_to_int,
)
from dra_driver.cel.messages.descriptors import MESSAGES

_KEYS = frozenset({str, int, Uint, bool, float})


class Evaluable(Protocol):
    """A planned expression."""

    @property
    def id(self) -> int:
        """Its number."""

    def exec(self, frame: Frame) -> Any:
        """The value, or an Err."""


class Qualifier(Protocol):
    """One step of a path."""

    @property
    def id(self) -> int:
        """Its number."""

    @property
    def optional(self) -> bool:
        """Whether it was written with `?`."""

    def qualify(self, frame: Frame, obj: Any) -> Any:
        """The value behind the step, or an Err."""

    def find(self, frame: Frame, obj: Any, *, presence_only: bool) -> tuple[Any, bool] | Err:
        """The value and whether it is present; what cannot be looked into has nothing."""


class Attribute(Protocol):
    """A path."""

    @property
    def id(self) -> int:
        """The number of its last step."""

    def add(self, qualifier: Qualifier) -> None:
        """Prolongs the path."""

    def resolve(self, frame: Frame) -> Any:
        """The value, or an Err."""


def index_of(key: Any) -> int | Err:
    """A list index; doubles and unsigned integers count when they are whole."""
    kind = type(key)
    if kind is int:
        return int(key)
    if kind is float or kind is Uint:
        whole = double_to_int(key) if kind is float else int(key) if key < 2**63 else None
        return Err(f"unsupported index value {show(key)} in list") if whole is None else whole
    return Err(f"unsupported index type '{type_name(key)}' in list")


def look_up(obj: Any, key: Any, *, presence_test: bool) -> tuple[Any, bool] | Err:
    """One step into a map or list."""
    if isinstance(obj, (TextMap, MapValue)):
        value = obj.find(key)
        if value is not MISSING:
            return value, True
    elif isinstance(obj, ListValue):
        index = index_of(key)
        if isinstance(index, Err):
            return index
        if 0 <= index < len(obj):
            return obj[index], True
        if not presence_test:
            return Err(f"index out of bounds: {show(key)}")
    elif type(obj) is Message:
        return _message_field(obj, key, presence_test=presence_test)
    return (None, False) if presence_test else Err(f"no such key: {show(key)}")


def _message_field(message: Message, key: Any, *, presence_test: bool) -> tuple[Any, bool] | Err:
    if type(key) is not str:
        return NO_OVERLOAD
    if key not in MESSAGES[message.type_name]:
        return Err(f"no such field '{key}'")
    return (message.get(key), True) if not presence_test or message.has(key) else (None, False)


class KeyQualifier:
    """A constant key."""

    __slots__ = ("id", "key", "optional")

    def __init__(self, node_id: int, key: Any, *, optional: bool) -> None:
        self.id = node_id
        self.key = key
        self.optional = optional

    def qualify(self, _frame: Frame, obj: Any) -> Any:
        found = look_up(obj, self.key, presence_test=False)
        return found if isinstance(found, Err) else found[0]

    def find(self, _frame: Frame, obj: Any, *, presence_only: bool) -> tuple[Any, bool] | Err:  # noqa: ARG002
        return look_up(obj, self.key, presence_test=True)


class FieldQualifier(KeyQualifier):
    """A field of a message whose type is known; where null stands for the message, Go says so."""

    __slots__ = ()

    def qualify(self, frame: Frame, obj: Any) -> Any:
        return super().qualify(frame, obj) if type(obj) is Message else Err("unsupported field selection target: (structpb.NullValue)NULL_VALUE")


def key_qualifier(node_id: int, key: Any, *, optional: bool) -> KeyQualifier | Err:
    """A constant key, if it is of a kind that can be one."""
    return KeyQualifier(node_id, key, optional=optional) if type(key) in _KEYS else Err(f"invalid qualifier type: {go_name(key)}")


class PresenceQualifier:
    """The last step of `has()`: gives whether the key is there."""

    __slots__ = ("_inner", "id", "optional")

    def __init__(self, inner: KeyQualifier) -> None:
        self._inner = inner
        self.id = inner.id
        self.optional = False

    def qualify(self, frame: Frame, obj: Any) -> Any:
        found = self._inner.find(frame, obj, presence_only=True)
        return found if isinstance(found, Err) else found[1]

    def find(self, frame: Frame, obj: Any, *, presence_only: bool) -> tuple[Any, bool] | Err:  # noqa: ARG002
        return self._inner.find(frame, obj, presence_only=True)


class PathQualifier:
    """A key that is computed: another path or any expression."""

    __slots__ = ("_path", "id", "is_path", "optional")

    def __init__(self, node_id: int, path: Attribute, *, optional: bool, is_path: bool) -> None:
        self.id = node_id
        self.optional = optional
        self.is_path = is_path
        self._path = path

    def _key(self, frame: Frame) -> KeyQualifier | Err:
        key = self._path.resolve(frame)
        return key if isinstance(key, Err) else key_qualifier(self.id, key, optional=self.optional)

    def qualify(self, frame: Frame, obj: Any) -> Any:
        key = self._key(frame)
        return key if isinstance(key, Err) else key.qualify(frame, obj)

    def find(self, frame: Frame, obj: Any, *, presence_only: bool) -> tuple[Any, bool] | Err:
        key = self._key(frame)
        return key if isinstance(key, Err) else key.find(frame, obj, presence_only=presence_only)


Opener = Callable[[Any], Any]
"""How a path takes the value out of an optional that it starts from."""


def _follow(frame: Frame, obj: Any, qualifiers: list[Qualifier], opener: Opener | None) -> Any:
    """Walks the path. From the first optional step (or start) on, what is absent gives `optional.none()`."""
    optional = type(obj) is OptionalValue
    if optional:
        if not obj.has_value:
            return obj
        obj = obj.value if opener is None else opener(obj.value)
        if isinstance(obj, Err) and qualifiers:
            return obj
    for qualifier in qualifiers:
        optional = optional or qualifier.optional
        if optional:
            found = qualifier.find(frame, obj, presence_only=False)
            if isinstance(found, Err):
                return found
            obj, present = found
            if not present:
                return NONE
        else:
            obj = qualifier.qualify(frame, obj)
            if isinstance(obj, Err):
                return obj
    return OptionalValue(obj) if optional else obj


class Variable:
    """A path from a variable. With `outermost` it is looked up outside of all loops."""

    __slots__ = ("_id", "_opener", "name", "outermost", "qualifiers")

    def __init__(self, node_id: int, name: str, opener: Opener | None) -> None:
        self._id = node_id
        self._opener = opener
        self.outermost = name.startswith(".")
        self.name = name.removeprefix(".")
        self.qualifiers: list[Qualifier] = []

    @property
    def id(self) -> int:
        return self.qualifiers[-1].id if self.qualifiers else self._id

    def add(self, qualifier: Qualifier) -> None:
        self.qualifiers.append(qualifier)

    def resolve(self, frame: Frame) -> Any:
        obj = (frame.outermost() if self.outermost else frame).resolve(self.name)
        if obj is MISSING:
            return Err(f"no such attribute(s): {self.name}")
        return obj if isinstance(obj, Err) else _follow(frame, obj, self.qualifiers, self._opener)


class Derived:
    """A path from the value of an expression."""

    __slots__ = ("_id", "_opener", "_operand", "qualifiers")

    def __init__(self, node_id: int, operand: Evaluable, opener: Opener | None) -> None:
        self._id = node_id
        self._opener = opener
        self._operand = operand
        self.qualifiers: list[Qualifier] = []

    @property
    def id(self) -> int:
        return self.qualifiers[-1].id if self.qualifiers else self._id

    def add(self, qualifier: Qualifier) -> None:
        self.qualifiers.append(qualifier)

    def resolve(self, frame: Frame) -> Any:
        obj = self._operand.exec(frame)
        return obj if isinstance(obj, Err) else _follow(frame, obj, self.qualifiers, self._opener)


class Either:
    """`condition ? path : path`, which steps prolong on both sides."""

    __slots__ = ("_id", "condition", "when_false", "when_true")

    def __init__(self, node_id: int, condition: Evaluable, when_true: Attribute, when_false: Attribute) -> None:
        self._id = node_id
        self.condition = condition
        self.when_true = when_true
        self.when_false = when_false

    @property
    def id(self) -> int:
        return self.when_true.id if self.when_true.id == self.when_false.id else self._id

    def add(self, qualifier: Qualifier) -> None:
        self.when_true.add(qualifier)
        self.when_false.add(qualifier)

    def resolve(self, frame: Frame) -> Any:
        chosen = self.condition.exec(frame)
        if chosen is True:
            return self.when_true.resolve(frame)
        if chosen is False:
            return self.when_false.resolve(frame)
        return chosen if isinstance(chosen, Err) else NO_OVERLOAD
