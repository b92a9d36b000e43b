"""Random selectors, typed by a grammar and by the tables of functions, so that most of them compile and all functions get used."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from dra_driver.cel.checking import libraries, standard
from dra_driver.cel.checking.signatures import Overload, read
from dra_driver.cel.checking.types import Type

DOMAINS = ["gpu.nvidia.com", "dra.net", "resource.kubernetes.io", "unknown.example.com"]
ATTRIBUTES = {
    "string": ["type", "uuid", "empty", "uni", "mem", "ver", "ip", "re"],
    "int": ["index", "neg", "big", "zero", "one"],
    "bool": ["ecc", "off"],
    "Semver": ["driverVersion", "cuda", "pre"],
    "list": ["models", "ids", "flags", "vers", "none"],
    "missing": ["nope"],
}
CAPACITIES = ["memory", "sms", "milli", "frac", "neg", "huge", "exp", "nope"]

DEVICES: list[dict[str, Any]] = [
    {
        "driver": "gpu.nvidia.com",
        "allowMultipleAllocations": True,
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": "GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c"},
            "empty": {"string": ""},
            "uni": {"string": "héllo 😀"},
            "mem": {"string": "80Gi"},
            "ver": {"string": "1.2.3"},
            "ip": {"string": "10.1.2.3"},
            "re": {"string": "^g.u$"},
            "index": {"int": 3},
            "neg": {"int": -7},
            "big": {"int": 2**63 - 1},
            "zero": {"int": 0},
            "one": {"int": 1},
            "ecc": {"bool": True},
            "off": {"bool": False},
            "driverVersion": {"version": "575.57.8"},
            "cuda": {"version": "9.0.0"},
            "pre": {"version": "1.2.3-rc.1+build5"},
            "models": {"strings": ["a", "b", "c"]},
            "ids": {"ints": [1, 2, 3]},
            "flags": {"bools": [True, False]},
            "vers": {"versions": ["1.0.0", "2.0.0"]},
            "none": {"strings": []},
            "dra.net/index": {"int": 1},
            "dra.net/type": {"string": "x"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:17"},
        },
        "capacity": {
            "memory": "80Gi",
            "sms": "132",
            "milli": "1500m",
            "frac": "0.5",
            "neg": "-1Gi",
            "huge": "9223372036854775807",
            "exp": "1e3",
            "dra.net/memory": "400G",
        },
    },
    {"driver": "other.example.com", "attributes": {}, "capacity": {}},
    {
        "driver": "gpu.nvidia.com",
        "attributes": {
            "type": {"version": "1.2.3"},
            "index": {"string": "3"},
            "ecc": {"int": 1},
            "models": {"string": "a"},
            "driverVersion": {"string": "575.57.08"},
            "ids": {"bool": True},
            "zero": {"bool": False},
            "one": {"bool": True},
        },
        "capacity": {"memory": "1500m", "sms": "0"},
    },
]

# fmt: off
STRINGS = [
    "''", "'a'", "'gpu'", "'gpu.nvidia.com'", "'80Gi'", "'1.2.3'", "'x'", "'héllo'", "'10.0.0.1'", "'::1'", "'1h'", "'2024-02-29T13:14:15Z'",
    "'A-b_C'", "'a.b'", "t", "'true'", "'42'", "'-1'", "'1e3'", "'NaN'", "'http://u:p@h:8/p?q=1#f'", "'%s'", "'\\n'", "'\\u00e9'", "'h*'", "'['",
    "'(a)'", "'^g'", "'e$'", "'[a-z]+'", "'10.0.0.0/8'",
]
# fmt: on
FITTED = {
    "quantity": ["'40Gi'", "'1500m'", "'0'", "'1e3'", "'-1'", "'1Ki'", "'100E'", "'0.5Ki'", "'bogus'", "'9223372036854775807'", "'80Gi'"],
    "semver": ["'1.2.3'", "'1.0.0'", "'575.57.8'", "'1.2.3-rc.1'", "'v1.2'", "'01.2.3'", "'1.2.3+b'", "''"],
    "duration": ["'1h'", "'1.5s'", "'-2m'", "'1ns'", "'0'"],
    "timestamp": ["'2024-02-29T13:14:15Z'", "'1970-01-01T00:00:00.5Z'", "'2009-02-13T23:31:30+05:30'", "'0001-01-01T00:00:00Z'"],
    "matches": ["'.*gp.*'", "'^gpu.*'", "'u$'", "'.*\\\\.2'", "'^g'", "'[a-z]+'", "'h.*o'", "'^$'", "'(a|b)'", "'\\\\d+'", "'[0-9a-f-]{3}'"],
    "find": ["'^g'", "'[a-z]+'", "'h.*o'", "'^$'", "'(a|b)'", "'\\\\d+'", "''"],
    "findAll": ["'g'", "'[a-z]'", "'l*'", "''", "'\\\\b'"],
    "ip": ["'10.0.0.1'", "'::1'", "'fe80::1'", "'1.2.3'", "'2001:db8::1'", "'127.0.0.1'", "'224.0.0.1'", "'::ffff:1.2.3.4'"],
    "cidr": ["'10.0.0.0/8'", "'::/0'", "'10.1.2.3/16'", "'10.0.0.0/33'", "'2001:db8::/32'"],
    "url": ["'http://a.b/c?d=e&d=f'", "'/a/b%20c'", "'https://[::1]:80/'", "'a b'", "'http://u:p@h:x/'", "'mailto:a'"],
    "int": ["'42'", "'-7'", "'x'", "'9223372036854775808'"],
    "uint": ["'42'", "'-7'"],
    "double": ["'1.5'", "'1e400'", "'NaN'", "'-Infinity'", "'0x1p-2'"],
    "bool": ["'true'", "'T'", "'yes'"],
    "format.named": ["'dns1123Label'", "'uuid'", "'nope'"],
    "validate": ["'a-b'", "'A'", "'a.b/c'", "''", "'2024-02-30'", "'aGk='", "'4404041a-04cf-1ccf-9e70-f139a9b1e23c'"],
    "containsIP": ["'10.0.0.1'", "'::1'", "'x'"],
    "containsCIDR": ["'10.0.0.0/8'", "'10.1.0.0/16'", "'x'"],
    "getHours": ["'UTC'", "'Asia/Kathmandu'", "'+05:30'", "'-1:15'", "'bogus'"],
    "format": ["'%s'", "'%d'", "'%s %s'", "'%.2f'", "'%e'", "'%x'", "'%b%%'", "'%o'", "'%X'", "'%.3'", "'%s %d %f'"],
}
FITTED["isQuantity"] = FITTED["quantity"]
FITTED["isSemver"] = FITTED["semver"]
FITTED["isIP"] = FITTED["ip.isCanonical"] = FITTED["ip"]
FITTED["isCIDR"] = FITTED["cidr"]
FITTED["isURL"] = FITTED["url"]
for _name in ("getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate", "getDayOfWeek", "getMinutes", "getSeconds", "getMilliseconds"):
    FITTED[_name] = FITTED["getHours"]

INTS = ["0", "1", "2", "3", "-1", "7", "42", "9223372036854775807", "-9223372036854775808", "100"]
UINTS = ["0u", "1u", "3u", "18446744073709551615u", "0x10u"]
DOUBLES = ["0.0", "1.0", "1.5", "-2.25", "1e300", "3.0", "1000000.0", "0.1", "1e-7", "123456789.0"]
BYTES = ["b''", "b'a'", "b'\\xff\\x00'", "b'abc'"]
KEYS = {"dyn": ["int", "uint", "double", "string", "bool"]}
"""Kinds that are looked for among keys of other kinds."""
MESSAGES = {
    "bool": ["BoolValue"],
    "bytes": ["BytesValue"],
    "double": ["DoubleValue", "FloatValue"],
    "duration": ["Duration"],
    "dyn": ["Value", "Any", "Empty", "Struct.FieldsEntry", "ListValue", "Struct", "Int64Value"],
    "int": ["Int64Value", "Int32Value"],
    "list": ["ListValue"],
    "map": ["Struct"],
    "string": ["StringValue"],
    "timestamp": ["Timestamp"],
    "type": ["Empty"],
    "uint": ["UInt64Value", "UInt32Value"],
}
FIELDS = {
    **{f"{kind}Value": [["value:int"]] for kind in ("Int64", "Int32")},
    **{f"{kind}Value": [["value:uint"]] for kind in ("UInt64", "UInt32")},
    **{f"{kind}Value": [["value:double"]] for kind in ("Double", "Float")},
    **{f"{kind.title()}Value": [[f"value:{kind}"]] for kind in ("bool", "string", "bytes")},
    **{name: [["seconds:int"], ["seconds:int", "nanos:int"], ["nanos:int"]] for name in ("Duration", "Timestamp")},
    "ListValue": [["values:list(dyn)"], ["values:list(int)"], ["values:list(string)"]],
    "Struct": [["fields:map(dyn)"], ["fields:map(int)"], ["fields:map(list(int))"]],
    "Struct.FieldsEntry": [["key:string"], ["value:dyn"], ["key:string", "value:dyn"], ["key:string", "value:list(int)"]],
    "Value": [
        ["null_value:int"],
        ["number_value:double"],
        ["string_value:string"],
        ["bool_value:bool"],
        ["struct_value:map(int)"],
        ["list_value:list(int)"],
        ["list_value:list(dyn)"],
        ["list_value:map(list(int))"],
    ],
}
ANYS = [
    ("Int64Value", b"\x08\x07"),
    ("Int32Value", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    ("UInt32Value", b"\x08\x80\x80\x80\x80\x10"),
    ("UInt64Value", b"\x08\x01\x08\x02"),
    ("BoolValue", b"\x08\x01"),
    ("BytesValue", b"\x0a\x02ab"),
    ("StringValue", b"\x0a\x03h\xc3\xa9"),
    ("DoubleValue", b"\x09\x00\x00\x00\x00\x00\x00\xf8\x3f"),
    ("FloatValue", b"\x0d\x00\x00\xc0\x3f"),
    ("Duration", b"\x08\x05\x10\x07"),
    ("Timestamp", b"\x08\x80\xa0\x94\xcc\x0e"),
    ("Empty", b""),
    ("Empty", b"\x08\x01\x13\x14"),
    ("Value", b"\x1a\x01x"),
    ("Value", b"\x1a\x01x\x20\x01"),
    ("Value", b"2\x08\x0a\x02\x20\x01\x0a\x02\x08\x00"),
    ("Value", b"2\x04\x0a\x02\x20\x012\x04\x0a\x02\x20\x00"),
    ("ListValue", b"\x0a\x02\x20\x01\x0a\x03\x1a\x01x"),
    ("Struct", b"\x0a\x07\x0a\x01a\x12\x02\x08\x00\x0a\x03\x0a\x01b"),
    ("Struct", b"\x0a\x0b\x0a\x01a\x12\x02\x20\x01\x12\x02\x08\x00"),
    ("Any", b"\x0a\x1agoogle.protobuf.Int64Value\x12\x02\x08\x07"),
    ("Any", b"\x0a\x1bgoogle.protobuf.StringValue\x12\x03\x0a\x01x"),
    ("Any", b""),
    ("NullValue", b""),
    ("Struct.FieldsEntry", b""),
]
"""Names and contents of what an Any may carry."""
BINARY = {"_+_": "+", "_-_": "-", "_*_": "*", "_/_": "/", "_%_": "%", "_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">=", "@in": "in"}
COMPARABLE = ["int", "uint", "double", "bool", "string", "bytes", "duration", "timestamp"]
SCALARS = ["bool", "int", "uint", "double", "string", "bytes", "duration", "timestamp", "Quantity", "Semver", "dyn"]
_SKIPPED = {"_?_:_", "_&&_", "_||_", "!_", "@not_strictly_false", "_==_", "_!=_", "_[_]", "_[?_]", "_?._"}
_SKIPPED |= {"cel.@mapInsert", "@sortByAssociatedKeys", "-_"}


def _name_of(t: Type) -> str:
    return {"kubernetes.Quantity": "Quantity", "kubernetes.Semver": "Semver"}.get(t.name, t.kind if t.kind in ("duration", "timestamp") else t.name)


def _tables() -> dict[str, list[tuple[str, Overload]]]:
    found: dict[str, list[tuple[str, Overload]]] = {}
    names = {library.table for library in libraries.LIBRARIES if "authz" not in library.name}
    for table in [standard.TABLE, *sorted(names)]:
        for function, overload in read(table, standard.COMPARABLE):
            if function not in _SKIPPED:
                found.setdefault(_name_of(overload.result), []).append((function, overload))
    return found


_BY_RESULT = _tables()


class Generator:
    """Makes expressions; `wrong` is how often a part has another type than it should, `messages` how often it is a protobuf message."""

    def __init__(self, seed: int, wrong: float = 0.02, messages: float = 0.02) -> None:
        self.random = random.Random(seed)
        self._wrong = wrong
        self._messages = messages
        self._scopes: list[tuple[str, str]] = []
        self._names = 0

    def selector(self) -> str:
        """A whole expression, mostly a bool."""
        kind = "bool" if self.random.random() < 0.95 else self.random.choice(["dyn", "int", "string", "list(int)"])
        return self.of(kind, self.random.choice([1, 2, 2, 3, 3, 4]))

    def of(self, kind: str, depth: int) -> str:  # noqa: C901, PLR0912
        """An expression of a type: a scalar's name, `list(T)`, `map(T)` (text keys), `optional(T)` or `dyn`."""
        roll = self.random.random()
        if roll < self._wrong:
            kind = self.random.choice(SCALARS)
        fitting = [name for name, t in self._scopes if t == kind or (kind == "dyn" and self.random.random() < 0.3)]
        if fitting and self.random.random() < 0.4:
            return self.random.choice(fitting)
        if depth <= 0:
            return self._leaf(kind)
        roll = self.random.random()
        if roll < 0.07:
            return f"({self.of('bool', depth - 1)} ? {self.of(kind, depth - 1)} : {self.of(kind, depth - 1)})"
        if roll < 0.1:
            return self._bind(kind, depth)
        if roll < 0.15:
            return self._index(kind, depth)
        if roll < 0.19:
            return self._optional(kind, depth)
        if roll < 0.19 + self._messages and (message := self._message(kind, depth)):
            return message
        if kind == "bool" and roll < 0.6:
            return self._bool(depth)
        if kind.startswith("list(") and roll < 0.6:
            return self._list(kind[5:-1], depth)
        if kind.startswith("map("):
            return self._map(kind[4:-1], depth)
        if kind.startswith("optional("):
            return self._optional_value(kind[9:-1], depth)
        if roll < 0.85:
            return self._call(kind, depth)
        return self._leaf(kind)

    def _fresh(self) -> str:
        self._names += 1
        return self.random.choice(["x", "y", "k", "v", "i", f"n{self._names}"])

    def _leaf(self, kind: str) -> str:
        choice = self.random.choice
        if kind.startswith("list("):
            inner = kind[5:-1]
            return f"[{', '.join(self._leaf(inner) for _ in range(choice([0, 1, 2, 3])))}]"
        if kind.startswith("map("):
            inner = kind[4:-1]
            return "{" + ", ".join(f"{choice(STRINGS)}: {self._leaf(inner)}" for _ in range(choice([0, 1, 2]))) + "}"
        if kind.startswith("optional("):
            return choice(["optional.none()", f"optional.of({self._leaf(kind[9:-1])})"])
        leaves: dict[str, Callable[[], str]] = {
            "bool": lambda: choice(["true", "false", "device.allowMultipleAllocations", "true", "false"]),
            "int": lambda: choice(INTS),
            "uint": lambda: choice(UINTS),
            "double": lambda: choice(DOUBLES),
            "string": lambda: choice([*STRINGS, "device.driver"]),
            "bytes": lambda: choice(BYTES),
            "null": lambda: "null",
            "duration": lambda: f"duration({choice(FITTED['duration'])})",
            "timestamp": lambda: f"timestamp({choice(FITTED['timestamp'])})",
            "Quantity": lambda: choice([self._capacity(), f"quantity({choice(FITTED['quantity'])})"]),
            "Semver": lambda: f"semver({choice(FITTED['semver'])})",
            "dyn": lambda: choice([self.attribute(), self.attribute(), f"dyn({self._leaf(choice(SCALARS[:-1]))})"]),
            "type": lambda: choice(["int", "string", "type(1)", "list", "net.IP"]),
            "net.IP": lambda: f"ip({choice(FITTED['ip'])})",
            "net.CIDR": lambda: f"cidr({choice(FITTED['cidr'])})",
            "kubernetes.URL": lambda: f"url({choice(FITTED['url'])})",
            "kubernetes.NamedFormat": lambda: f"format.{choice(libraries.NAMED_FORMATS)}()",
        }
        return leaves.get(kind, leaves["dyn"])()

    def _domain(self) -> str:
        choice = self.random.choice
        return choice([DOMAINS[0], DOMAINS[0], DOMAINS[0], *DOMAINS])

    def attribute(self) -> str:
        """A look at one attribute."""
        choice = self.random.choice
        names = choice([*ATTRIBUTES.values(), ATTRIBUTES["string"], ATTRIBUTES["list"]])
        base = f"device.attributes['{self._domain()}']"
        name = choice(names)
        return choice([f"{base}.{name}"] * 2 + [f"{base}['{name}']", f"{base}.`{name}`", f"{base}.?{name}.orValue({self._leaf('string')})"])

    def _capacity(self) -> str:
        choice = self.random.choice
        return f"device.capacity['{self._domain()}']{choice(['.', '.?'])}{choice(CAPACITIES)}".replace(".?memory", ".?memory.orValue(quantity('0'))")

    def _bool(self, depth: int) -> str:
        choice = self.random.choice
        roll = self.random.random()
        if roll < 0.25:
            return f"({self.of('bool', depth - 1)} {choice(['&&', '||'])} {self.of('bool', depth - 1)})"
        if roll < 0.3:
            return f"!({self.of('bool', depth - 1)})"
        if roll < 0.5:
            kind = choice([*SCALARS, "list(int)", "list(string)", "map(int)", "optional(int)", "type", "net.IP", "kubernetes.URL", "list(dyn)"])
            other = kind if self.random.random() < 0.9 else "dyn"
            left, right = self.of(kind, depth - 1), self.of(other, depth - 1)
            return f"({left} {choice(['==', '==', '!='])} {right})"
        if roll < 0.6:
            name = choice([name for names in ATTRIBUTES.values() for name in names])
            return choice([f"has(device.attributes['{self._domain()}'].{name})", f"has(device.attributes.{name})", "has(device.driver)"])
        if roll < 0.63:
            return self._keyed(depth)
        if roll < 0.85:
            return self._quantified(depth)
        element = choice(COMPARABLE)
        return f"({self.of(element, depth - 1)} in {self.of(f'list({element})', depth - 1)})"

    def _keyed(self, depth: int) -> str:
        """A look into a map whose keys are of any type."""
        choice = self.random.choice
        kinds = [*SCALARS, "type", "net.IP", "net.CIDR", "kubernetes.URL", "optional(int)", "list(int)", "null"]
        kind = choice(kinds)
        keys = [self.of(choice(KEYS.get(kind, [kind])), depth - 1) for _ in range(choice([1, 2, 3]))]
        name = self._fresh()
        entries = "{" + ", ".join(f"{choice([key, name])}: {number}" for number, key in enumerate(keys)) + "}"
        looked = choice([name, name, self.of(kind, depth - 1)])
        body = choice(
            [
                f"({looked} in {entries})",
                f"({entries}[{looked}] == {choice(INTS)})",
                f"({entries}.size() == {choice(['1', '2'])})",
                f"({entries} == {entries})",
                f"{entries}[?{looked}].hasValue()",
                f"{entries}.exists(k, k == {looked})",
                f"{entries}.transformMapEntry(k, v, {{{choice(['k', name])}: v}}).all(k, k in {entries})",
                f"([{looked}, {keys[0]}, {name}].distinct().size() == 1)",
            ]
        )
        return f"cel.bind({name}, {keys[0]}, {body})"

    def _range(self, depth: int) -> tuple[str, str, str]:
        """Something to loop over, the type of its keys and of its values."""
        choice = self.random.choice
        roll = self.random.random()
        if roll < 0.25:
            return f"device.attributes['{self._domain()}'].{choice(ATTRIBUTES['list'])}", "dyn", "dyn"
        if roll < 0.4:
            return f"device.{choice(['attributes', 'capacity'])}['{choice(DOMAINS)}']", "string", "string"
        element = choice(["int", "string", "double", "dyn"])
        if roll < 0.5:
            return self.of(f"map({element})", depth - 1), "string", "string"
        return self.of(f"list({element})", depth - 1), element, element

    def _scoped(self, names: list[tuple[str, str]], kind: str, depth: int) -> str:
        self._scopes += names
        body = self.of(kind, depth)
        del self._scopes[-len(names) :]
        return body

    def _quantified(self, depth: int) -> str:
        choice = self.random.choice
        over, _, element = self._range(depth)
        macro = choice(["all", "exists", "exists_one"])
        first, second = self._fresh(), "w"
        if self.random.random() < 0.7:
            return f"{over}.{macro}({first}, {self._scoped([(first, element)], 'bool', depth - 1)})"
        body = self._scoped([(first, "int"), (second, element)], "bool", depth - 1)
        return f"{over}.{choice([macro, 'existsOne'])}({first}, {second}, {body})"

    def _list(self, element: str, depth: int) -> str:
        choice = self.random.choice
        roll = self.random.random()
        if roll < 0.4:
            return f"[{', '.join(self.of(element, depth - 1) for _ in range(choice([0, 1, 2, 3])))}]"
        if roll < 0.45:
            return f"[?{self.of(f'optional({element})', depth - 1)}, {self._leaf(element)}]"
        if roll < 0.55:
            return f"({self.of(f'list({element})', depth - 1)} + {self.of(f'list({element})', depth - 1)})"
        if roll < 0.65:
            name = self._fresh()
            key = self._scoped([(name, element)], choice(COMPARABLE), depth - 1)
            sorted_list = self.of(f"list({element})", depth - 1)
            if element in ("int", "dyn") and self.random.random() < 0.2:
                sorted_list = f"lists.range({self.random.randrange(100)})"
                key = f"{name} {choice(['%', '/'])} {choice(['2', '3', '7'])}"
            return f"{sorted_list}.sortBy({name}, {key})"
        over, _, source = self._range(depth)
        name = self._fresh()
        if roll < 0.75:
            predicate = self._scoped([(name, source)], "bool", depth - 1)
            return f"{over}.filter({name}, {predicate})" if source == element else f"{over}.map({name}, {predicate}, {self._leaf(element)})"
        if roll < 0.9:
            return f"{over}.map({name}, {self._scoped([(name, source)], element, depth - 1)})"
        body = self._scoped([(name, "int"), ("w", source)], element, depth - 1)
        return f"{over}.transformList({name}, w, {body})"

    def _map(self, value: str, depth: int) -> str:
        choice = self.random.choice
        roll = self.random.random()
        if roll < 0.6:
            return "{" + ", ".join(f"{choice(STRINGS)}: {self.of(value, depth - 1)}" for _ in range(choice([0, 1, 2]))) + "}"
        if roll < 0.7:
            return "{" + f"?'o': {self.of(f'optional({value})', depth - 1)}" + "}"
        name = self._fresh()
        source = self.of("map(int)", depth - 1)
        body = self._scoped([(name, "string"), ("w", "int")], value, depth - 1)
        if roll < 0.85:
            return f"{source}.transformMap({name}, w, {body})"
        return f"{self.of('list(int)', depth - 1)}.transformMapEntry({name}, w, {{string({name}): {body}}})"

    def _optional_value(self, inner: str, depth: int) -> str:
        choice = self.random.choice
        roll = self.random.random()
        if roll < 0.25:
            return f"optional.{choice(['of', 'ofNonZeroValue'])}({self.of(inner, depth - 1)})"
        if roll < 0.4:
            name = self._fresh()
            body = self._scoped([(name, "dyn")], inner, depth - 1)
            return f"device.attributes['{self._domain()}'].?{choice(ATTRIBUTES['string'])}.optMap({name}, {body})"
        if roll < 0.5:
            name = self._fresh()
            body = self._scoped([(name, inner)], f"optional({inner})", depth - 1)
            return f"{self.of(f'optional({inner})', depth - 1)}.optFlatMap({name}, {body})"
        if roll < 0.65:
            return f"{self.of(f'list({inner})', depth - 1)}{choice(['[?0]', '[?5]', '.first()', '.last()'])}"
        if roll < 0.8:
            return f"{self.of(f'map({inner})', depth - 1)}{choice(['.?a', '[?' + choice(STRINGS) + ']'])}"
        return f"{self.of(f'optional({inner})', depth - 1)}.or({self.of(f'optional({inner})', depth - 1)})"

    def _bind(self, kind: str, depth: int) -> str:
        bound = self.random.choice([*SCALARS, "list(int)", "map(string)"])
        name = self._fresh()
        value = self.of(bound, depth - 1)
        return f"cel.bind({name}, {value}, {self._scoped([(name, bound)], kind, depth - 1)})"

    def _message(self, kind: str, depth: int) -> str:
        """A protobuf message of a type, or nothing."""
        choice = self.random.choice
        name = choice(MESSAGES.get(kind.partition("(")[0], [""]))
        if name == "Any":
            return self._any()
        fields = [] if name == "Empty" else choice([[], *FIELDS[name], *FIELDS[name]]) if name else []
        parts = []
        for field in fields:
            field_name, _, field_kind = field.partition(":")
            value = self.of(field_kind if self.random.random() < 0.8 else "dyn", depth - 1)
            if self.random.random() < 0.06:
                field_name, value = f"?{field_name}", choice([f"optional.of({value})", "optional.none()", value])
            parts.append(f"{field_name if self.random.random() < 0.99 else 'nope'}: {value}")
        return f"google.protobuf.{name}{{{', '.join(parts)}}}" if name else ""

    def _any(self) -> str:
        choice = self.random.choice
        name, data = choice(ANYS)
        mutable = bytearray(data)
        if mutable and self.random.random() < 0.3:
            mutable[self.random.randrange(len(mutable))] = self.random.randrange(256)
        if self.random.random() < 0.1:
            mutable += bytes(self.random.randrange(256) for _ in range(self.random.randrange(4)))
        url = choice(["", "type.googleapis.com/", "x/y/"]) + (f"google.protobuf.{name}" if self.random.random() < 0.95 else choice(["", "x", "é\\t"]))
        return f"google.protobuf.Any{{type_url: '{url}', value: b'{''.join(f'{chr(92)}x{byte:02x}' for byte in mutable)}'}}"

    def _index(self, kind: str, depth: int) -> str:
        if self.random.random() < 0.5:
            return f"{self.of(f'list({kind})', depth - 1)}[{self.of('int', 0)}]"
        return f"{self.of(f'map({kind})', depth - 1)}[{self.of('string', 0)}]"

    def _optional(self, kind: str, depth: int) -> str:
        optional = self.of(f"optional({kind})", depth - 1)
        return self.random.choice([f"{optional}.orValue({self.of(kind, depth - 1)})", f"{optional}.value()"])

    def _argument(self, function: str, t: Type, depth: int, element: str) -> str:
        kind = self._kind(t, element)
        if kind == "string" and function in FITTED and self.random.random() < 0.85:
            return self.random.choice(FITTED[function])
        if self.random.random() < 0.12:
            kind = "dyn"
        return self.of(kind, depth)

    def _kind(self, t: Type, element: str) -> str:
        if t.kind == "param":
            return element
        if t.kind == "list":
            return f"list({self._kind(t.params[0], element)})"
        if t.kind == "map":
            return f"map({self._kind(t.params[1], element)})"
        if t.name == "optional_type":
            return f"optional({self._kind(t.params[0], element)})"
        return _name_of(t)

    def _call(self, kind: str, depth: int) -> str:
        outer = kind.partition("(")[0]
        name = {"optional": "optional_type"}.get(outer, outer)
        candidates = _BY_RESULT.get(name, [])
        if "(" in kind:
            inner = kind.partition("(")[2][:-1]
            candidates = [pair for pair in candidates if pair[1].result.params[0].kind == "param" or _name_of(pair[1].result.params[0]) == inner]
        if not candidates:
            return self._leaf(kind)
        function, overload = self.random.choice(candidates)
        element = kind.partition("(")[2][:-1] if "(" in kind else self.random.choice(["int", "string", "double", "dyn"])
        args = [self._argument(function, t, depth - 1, element) for t in overload.args]
        if function in BINARY:
            return f"({args[0]} {BINARY[function]} {args[1]})"
        if overload.member:
            receiver = args[0] if not args[0].startswith("-") else f"({args[0]})"
            if function == "format" and self.random.random() < 0.9:
                receiver = self.random.choice(FITTED["format"])
            return f"{receiver}.{function}({', '.join(args[1:])})"
        return f"{function}({', '.join(args)})"
