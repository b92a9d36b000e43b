"""Which types fit which, while type parameters get bound: cel-go's unification."""

from __future__ import annotations

from collections.abc import Sequence

from dra_driver.cel.checking.types import DYN, Type, is_dyn, type_of

_NULLABLE_KINDS = frozenset({"opaque", "struct", "any", "duration", "timestamp"})
_SIMPLE_KINDS = frozenset({"bool", "bytes", "double", "int", "string", "uint", "any", "duration", "timestamp", "struct"})
_ABSORBING = frozenset({"dyn", "any", "error"})


_FLEXIBLE = frozenset({"any", "dyn", "error", "null", "param"})


def may_agree(left: Type, right: Type) -> bool:
    """Whether a closer look is worth it: types of two fixed kinds never agree."""
    return left.kind == right.kind or left.kind in _FLEXIBLE or right.kind in _FLEXIBLE


class Bindings:
    """What the type parameters of one expression stand for."""

    def __init__(self, bound: dict[str, Type] | None = None) -> None:
        self._bound = {} if bound is None else bound

    def assignable(self, left: Type, right: Type) -> bool:
        """Whether the types agree; binds parameters only when they do."""
        return self.all_assignable((left,), (right,))

    def all_assignable(self, left: Sequence[Type], right: Sequence[Type]) -> bool:
        """As `assignable`, for all pairs together."""
        if not any(t.generic for t in left) and not any(t.generic for t in right):
            return self._pairs(left, right)
        before = self._bound.copy()
        if self._pairs(left, right):
            return True
        self._bound = before
        return False

    def substitute(self, t: Type, *, unbound_to_dyn: bool = False) -> Type:
        """The type with its bound parameters replaced."""
        if not t.generic:
            return t
        if t.kind == "param":
            bound = self._bound.get(t.name)
            if bound is not None:
                return self.substitute(bound, unbound_to_dyn=unbound_to_dyn)
            return DYN if unbound_to_dyn else t
        params = tuple(self.substitute(param, unbound_to_dyn=unbound_to_dyn) for param in t.params)
        return type_of(params[0]) if t.kind == "type" else Type(t.kind, t.name, params)

    def _pairs(self, left: Sequence[Type], right: Sequence[Type]) -> bool:
        return len(left) == len(right) and all(self._assignable(a, b) for a, b in zip(left, right, strict=True))

    def _assignable(self, left: Type, right: Type) -> bool:
        if right.kind == "param":
            valid, bound = self._bind(left, right)
            if valid:
                return True
            if bound:
                return False
        if left.kind == "param":
            return self._bind(right, left)[0]
        if left.kind in _ABSORBING or right.kind in _ABSORBING:
            return True
        if left.kind == "null":
            return _nullable(right)
        if right.kind == "null":
            return _nullable(left)
        if left.kind in _SIMPLE_KINDS:
            return right.accepts(left)
        if left.kind == "type":
            return right.kind == "type"
        return left.kind == right.kind and left.name == right.name and self._pairs(left.params, right.params)

    def _bind(self, t: Type, param: Type) -> tuple[bool, bool]:
        """Whether `t` may be what `param` stands for, and whether it stood for something already."""
        if t.kind == "param" and t.name == param.name:
            return True, True
        bound = self._bound.get(param.name)
        if bound is not None:
            if t.kind == bound.kind and t.same(bound):
                return True, True
            if self._assignable(t, bound):
                general = most_general(t, bound)
                if self._absent(param, general):
                    self._bound[param.name] = general
                return True, True
            return False, True
        if self._absent(param, t):
            self._bound[param.name] = t
            return True, False
        return False, False

    def _absent(self, param: Type, within: Type) -> bool:
        """The occurs check."""
        if within.kind == "param":
            if within.name == param.name:
                return False
            bound = self._bound.get(within.name)
            return bound is None or self._absent(param, bound)
        return not within.generic or all(self._absent(param, inner) for inner in within.params)


def _nullable(t: Type) -> bool:
    return t.kind in _NULLABLE_KINDS or t.nullable or t.kind == "null"


def most_general(left: Type, right: Type) -> Type:
    """The less specific of two types that agree."""
    return left if _less_specific(left, right) else right


def _less_specific(left: Type, right: Type) -> bool:
    if is_dyn(left) or left.kind == "param":
        return True
    if is_dyn(right) or right.kind == "param" or left.kind != right.kind:
        return False
    if left.kind == "type":
        return True
    if left.kind in ("opaque", "list", "map"):
        return (
            left.name == right.name
            and len(left.params) == len(right.params)
            and all(_less_specific(a, b) for a, b in zip(left.params, right.params, strict=True))
        )
    return left.same(right)
