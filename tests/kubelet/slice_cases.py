"""ResourceSlices of every kind, right and wrong: a seed makes a valid slice and changes a few things in it, some of them for the worse.

Used against our rules alone and, with the same seeds, against a real API server.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

from dra_driver.k8s.objects.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import (
    CapacityRange,
    CapacityRequestPolicy,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)

OFF_BY_DEFAULT = frozenset(
    {"DRAListTypeAttributes", "DRADeviceCompatibilityGroups", "DRAPartitionableDevicesType", "DRAOptionalNodeOperations"}
)  # of what we write, in 1.37

Mutation = Callable[[random.Random, ResourceSlice], None]

LABELS = ("a", "gpu-0", "0", "set-1", 63 * "a")
BAD_LABELS = ("", "GPU", "-a", "a-", "a.b", "a_b", 64 * "a", 64 * "A", "a b", "ä", "a\n", '"', "<&>")
SUBDOMAINS = ("node-a", "a.b", "0.1.example.com", 253 * "a")
BAD_SUBDOMAINS = ("", "A", "a..b", ".a", "a_b", 254 * "a", 254 * "A", "a/b")
DOMAINS = ("example.com", "GPU.example.com", 63 * "a")
BAD_DOMAINS = ("", "a..b", 64 * "a", "-", 64 * "_")
IDENTIFIERS = ("model", "_x", "A1", 32 * "a")
BAD_IDENTIFIERS = ("", "9a", "a-b", "a.b", 33 * "a", 33 * "-", "ä")
LABEL_KEYS = ("a", "A_b.c", "example.com/broken", f"{253 * 'a'}/{63 * 'b'}")
BAD_LABEL_KEYS = ("", "/a", "a/", "a/b/c", "A/a", "a b", 64 * "a", 64 * " ", f"{254 * 'a'}/b", f"{254 * '_'}/{64 * '-'}", "-")
LABEL_VALUES = ("", "a", "A_b.c-1", 63 * "a")
BAD_LABEL_VALUES = ("a b", 64 * "a", "-a", 32 * "é", 64 * " ")
TEXTS = ("", "H200", 64 * "x", "a\tb", 32 * "é", '<"\\>')
BAD_TEXTS = (65 * "x", 33 * "é")
VERSIONS = ("1.2.3", "0.0.0", "1.0.0-alpha.1", "1.0.0-0a+b.01", "1.0.0+" + 58 * "b")
BAD_VERSIONS = ("", "1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3+" + 64 * "b", "1.2.3 ", "\u0661.2.3")
QUANTITIES = ("0", "1", "80Gi", "1500m", "1e3", "1024Mi", "3", "100M", "-1", "0.5", "9223372036854775807", "12Ei", "1n")
BAD_QUANTITIES = ("", "x", "1 Gi", "1Q", "--1")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def slice_of(seed: int, driver: str = "gpu.example.com") -> ResourceSlice:
    """The same one for the same seed."""
    rng = random.Random(seed)
    one = _valid(rng, driver)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 4, 8))):
        rng.choice(MUTATIONS)(rng, one)
    return one


def without(one: ResourceSlice, gates: frozenset[str]) -> ResourceSlice:
    """What an API server whose `gates` are off reads from this slice."""
    spec = msgspec.json.decode(msgspec.json.encode(one.spec), type=ResourceSliceSpec)
    if "DRAPartitionableDevicesType" in gates:
        spec.partition_type_attribute = None
    if "DRAOptionalNodeOperations" in gates:
        spec.skip_node_operations = []
    for device in spec.devices:
        if "DRAListTypeAttributes" in gates:
            for attribute in device.attributes.values():
                attribute.ints = attribute.bools = attribute.strings = attribute.versions = None
        if "DRADeviceCompatibilityGroups" in gates:
            for consumption in device.consumes_counters:
                consumption.compatibility_groups = []
    return msgspec.structs.replace(one, spec=spec)


def _name(rng: random.Random, good: Sequence[str], bad: Sequence[str]) -> str:
    return rng.choice(good if rng.random() < 0.5 else bad)


def _valid(rng: random.Random, driver: str) -> ResourceSlice:
    pool = ResourcePool(rng.choice(("node-a", "a/b.c/d", 253 * "a")), rng.choice((1, 2, 1000)), rng.choice((0, 1, 2**62)))
    spec = ResourceSliceSpec(driver=driver, pool=pool, node_name="node-a")
    if rng.random() < 0.25:
        spec.shared_counters = [_counter_set(rng, index) for index in range(rng.randint(1, 8))]
    else:
        advanced = rng.random() < 0.5
        count = rng.choice((0, 1, 1, 2, 3, 3, 64, 64 if advanced else 128))
        spec.devices = [_device(rng, index, advanced=advanced, rich=count < 10) for index in range(count)]
    return ResourceSlice(metadata=ObjectMeta(generate_name=f"00000-{driver}-node-a-"), spec=spec)


def _counter_set(rng: random.Random, index: int) -> CounterSet:
    return CounterSet(f"set-{index}", _counters(rng))


def _counters(rng: random.Random) -> dict[str, Counter]:
    return {f"c-{number}": Counter(rng.choice(QUANTITIES)) for number in range(rng.choice((1, 1, 2, 32)))}


def _device(rng: random.Random, index: int, *, advanced: bool, rich: bool) -> Device:
    device = Device(f"gpu-{index}")
    if not rich:
        return device
    device.attributes = {_attribute_name(rng): _attribute(rng) for _ in range(rng.randint(0, 4))}
    device.capacity = {"memory": DeviceCapacity(rng.choice(QUANTITIES))} if rng.random() < 0.5 else {}
    if advanced and rng.random() < 0.5:
        device.taints = [_taint(rng) for _ in range(rng.choice((1, 2, 16)))]
    if advanced and rng.random() < 0.5:
        device.consumes_counters = [DeviceCounterConsumption(f"set-{number}", _counters(rng)) for number in range(rng.randint(1, 2))]
    if rng.random() < 0.2:
        device.binding_conditions, device.binding_failure_conditions = ["example.com/ready", "b"], ["failed"]
        device.binds_to_node = rng.choice((None, True, False))
    if rng.random() < 0.3:
        device.allow_multiple_allocations = rng.choice((True, True, False))
        if device.allow_multiple_allocations:
            device.capacity["shares"] = DeviceCapacity("10", CapacityRequestPolicy("2", valid_range=CapacityRange("0", "8", "2")))
    return device


def _attribute_name(rng: random.Random) -> str:
    identifier = rng.choice(IDENTIFIERS)
    return identifier if rng.random() < 0.7 else f"{rng.choice(DOMAINS)}/{identifier}"


def _attribute(rng: random.Random) -> DeviceAttribute:
    return rng.choice(
        (
            DeviceAttribute(int_=rng.choice((0, -(2**63), 2**63 - 1))),
            DeviceAttribute(bool_=rng.random() < 0.5),
            DeviceAttribute(string=rng.choice(TEXTS)),
            DeviceAttribute(version=rng.choice(VERSIONS)),
        )
    )


def _taint(rng: random.Random) -> DeviceTaint:
    effect = rng.choice(("None", "NoSchedule", "NoExecute"))
    return DeviceTaint(rng.choice(LABEL_KEYS), effect, rng.choice(LABEL_VALUES), rng.choice((None, "2026-01-02T03:04:05Z")))


# Mutations: each changes one thing; where it finds nothing to change, it does nothing.


def _some_device(rng: random.Random, one: ResourceSlice) -> Device:
    if not one.spec.devices:
        one.spec.devices = [Device("gpu-0")]
    return one.spec.devices[rng.randrange(min(3, len(one.spec.devices)))]


def driver(rng: random.Random, one: ResourceSlice) -> None:
    one.spec.driver = _name(rng, DOMAINS, BAD_DOMAINS)


def object_name(rng: random.Random, one: ResourceSlice) -> None:
    one.metadata = (
        ObjectMeta(name=rng.choice(BAD_SUBDOMAINS), generate_name="")
        if rng.random() < 0.5
        else ObjectMeta(generate_name=rng.choice(("A-", ".-", "A.b-", 70 * "a", f"{57 * 'a'}.-")))
    )


def pool(rng: random.Random, one: ResourceSlice) -> None:
    one.spec.pool.name = _name(rng, ("a/b", *SUBDOMAINS), ("a//b", "A/b", "/", 200 * "a" + "/" + 200 * "A", *BAD_SUBDOMAINS))


def pool_numbers(rng: random.Random, one: ResourceSlice) -> None:
    one.spec.pool.resource_slice_count = rng.choice((-1, 0, 1))
    one.spec.pool.generation = rng.choice((-1, 0, 5))


def slice_nodes(rng: random.Random, one: ResourceSlice) -> None:
    spec = one.spec
    spec.node_name = rng.choice((None, None, "", "node-a", _name(rng, SUBDOMAINS, BAD_SUBDOMAINS)))
    spec.node_selector = rng.choice((None, None, _selector(rng)))
    spec.all_nodes = rng.choice((None, None, None, True, False))
    spec.per_device_node_selection = rng.choice((None, None, True, False))


def device_nodes(rng: random.Random, one: ResourceSlice) -> None:
    if rng.random() < 0.8:
        one.spec.node_name, one.spec.per_device_node_selection = None, True
    device = _some_device(rng, one)
    device.node_name = rng.choice((None, "", "node-a", _name(rng, SUBDOMAINS, BAD_SUBDOMAINS)))
    device.node_selector = rng.choice((None, None, _selector(rng)))
    device.all_nodes = rng.choice((None, None, True, False))


def _selector(rng: random.Random) -> NodeSelector:
    terms = [
        NodeSelectorTerm(
            [_expression(rng) for _ in range(rng.choice((0, 1, 2)))],
            [_field_requirement(rng) for _ in range(rng.choice((0, 0, 1)))],
        )
        for _ in range(rng.choice((0, 1, 1, 1, 2)))
    ]
    return NodeSelector(terms)


def _expression(rng: random.Random) -> NodeSelectorRequirement:
    values = [rng.choice((*LABEL_VALUES, *LABEL_VALUES, *BAD_LABEL_VALUES)) for _ in range(rng.choice((0, 1, 1, 2)))]
    return NodeSelectorRequirement(rng.choice((*LABEL_KEYS, *LABEL_KEYS, *BAD_LABEL_KEYS)), rng.choice((*OPERATORS, "Like", "")), values)


def _field_requirement(rng: random.Random) -> NodeSelectorRequirement:
    values = [rng.choice((*SUBDOMAINS, *BAD_SUBDOMAINS)) for _ in range(rng.choice((0, 1, 1, 2)))]
    return NodeSelectorRequirement(
        rng.choice(("metadata.name", "metadata.name", "metadata.uid", "")), rng.choice(("In", "In", "NotIn", "Exists")), values
    )


def number_of_devices(rng: random.Random, one: ResourceSlice) -> None:
    count = rng.choice((63, 65, 128, 129, 130))
    del one.spec.devices[count:]
    one.spec.devices += [Device(f"x-{number}") for number in range(count - len(one.spec.devices))]


def device_name(rng: random.Random, one: ResourceSlice) -> None:
    _some_device(rng, one).name = _name(rng, LABELS, BAD_LABELS)


def same_device(rng: random.Random, one: ResourceSlice) -> None:
    one.spec.devices += [msgspec.structs.replace(_some_device(rng, one)) for _ in range(rng.choice((1, 2)))]


def attribute_name(rng: random.Random, one: ResourceSlice) -> None:
    name = _name(rng, IDENTIFIERS, BAD_IDENTIFIERS)
    prefix = rng.choice(("", "", f"{_name(rng, DOMAINS, BAD_DOMAINS)}/", "a/b/", "/"))
    _some_device(rng, one).attributes[prefix + name] = _attribute(rng)


def attribute_value(rng: random.Random, one: ResourceSlice) -> None:
    value = rng.choice(
        (
            DeviceAttribute(),
            DeviceAttribute(string=rng.choice(BAD_TEXTS)),
            DeviceAttribute(version=rng.choice(BAD_VERSIONS)),
            DeviceAttribute(int_=1, string="x"),
            DeviceAttribute(int_=2**63),
            DeviceAttribute(bool_=False, version=rng.choice(BAD_VERSIONS), int_=0, string=""),
        )
    )
    _some_device(rng, one).attributes[rng.choice(("model", "a/b/c", 40 * "<" + 60 * "b", "example.com/x"))] = value


def attribute_list(rng: random.Random, one: ResourceSlice) -> None:
    value = rng.choice(
        (
            DeviceAttribute(ints=[1, 2**62]),
            DeviceAttribute(bools=rng.choice(([True], [False] * 48, [True] * 49))),
            DeviceAttribute(strings=rng.choice((["a"], [*TEXTS, *BAD_TEXTS], [""] * 47))),
            DeviceAttribute(versions=[rng.choice((*VERSIONS, *BAD_VERSIONS)) for _ in range(2)]),
            DeviceAttribute(ints=[]),
            DeviceAttribute(ints=[], int_=1),
            DeviceAttribute(ints=[], strings=[]),
            DeviceAttribute(ints=[], strings=["x"]),
            DeviceAttribute(ints=[1], strings=["x"]),
            DeviceAttribute(ints=[2**63]),
        )
    )
    _some_device(rng, one).attributes[rng.choice(("numa", "example.com/list"))] = value


def many_entries(rng: random.Random, one: ResourceSlice) -> None:
    device = _some_device(rng, one)
    for number in range(rng.choice((16, 32, 33, 50))):
        if rng.random() < 0.7:
            device.attributes[f"a{number}"] = DeviceAttribute(int_=number)
        else:
            device.capacity[f"c{number}"] = DeviceCapacity("1")


def capacity(rng: random.Random, one: ResourceSlice) -> None:
    name = rng.choice(("memory", "a/b/c", f"{_name(rng, DOMAINS, BAD_DOMAINS)}/x", _name(rng, IDENTIFIERS, BAD_IDENTIFIERS), 100 * "c"))
    _some_device(rng, one).capacity[name] = DeviceCapacity(rng.choice((*QUANTITIES, *QUANTITIES, *BAD_QUANTITIES)))


def request_policy(rng: random.Random, one: ResourceSlice) -> None:
    device = _some_device(rng, one)
    if rng.random() < 0.9:
        device.allow_multiple_allocations = True
    amounts = (*QUANTITIES, "2", "4", "5", "6", "8", "10", "16", "0", "1", "3")
    policy = CapacityRequestPolicy()
    if rng.random() < 0.9:
        policy.default = rng.choice(amounts)
    if rng.random() < 0.45:
        policy.valid_values = [rng.choice(amounts) for _ in range(rng.choice((1, 2, 3, 10, 11)))]
        if rng.random() < 0.7:
            policy.valid_values.sort(key=lambda text: QUANTITIES.index(text) if text in QUANTITIES else float(text))
    if rng.random() < 0.6:
        some = [rng.choice((None, *amounts[-12:], *amounts)) for _ in range(3)]
        policy.valid_range = CapacityRange(*some)
    device.capacity["shares"] = DeviceCapacity(rng.choice(("10", "16", "100", *amounts)), policy)


def range_with_steps(rng: random.Random, one: ResourceSlice) -> None:
    device = _some_device(rng, one)
    device.allow_multiple_allocations = True
    numbers = ("0", "1", "2", "3", "4", "6", "8", "1500m", "0.5", "9223372036854775808", "1e30", "-2")
    bounds = CapacityRange(rng.choice(numbers[:8]), rng.choice((None, *numbers)), rng.choice(("0", "-1", *numbers)))
    policy = CapacityRequestPolicy(rng.choice(numbers), valid_range=bounds)
    device.capacity["shares"] = DeviceCapacity(rng.choice(("8", "100", "1e40")), policy)


def many_taints(rng: random.Random, one: ResourceSlice) -> None:
    _some_device(rng, one).taints = [_taint(rng) for _ in range(rng.choice((16, 17)))]
    taint(rng, one)


def taint(rng: random.Random, one: ResourceSlice) -> None:
    effect = rng.choice(("", "Nope", "None", "NoExecute", "PreferNoSchedule"))
    found = DeviceTaint(_name(rng, LABEL_KEYS, BAD_LABEL_KEYS), effect, _name(rng, LABEL_VALUES, BAD_LABEL_VALUES))
    _some_device(rng, one).taints.append(found)


def counter_sets(rng: random.Random, one: ResourceSlice) -> None:
    if rng.random() < 0.8:
        one.spec.devices = []
    found = [_counter_set(rng, index) for index in range(rng.choice((1, 8, 9)))]
    found[-1].name = _name(rng, LABELS, BAD_LABELS)
    if rng.random() < 0.5:
        found[0].counters = rng.choice(({}, {_name(rng, LABELS, BAD_LABELS): Counter(rng.choice((*QUANTITIES, *BAD_QUANTITIES)))}, _many_counters()))
    if rng.random() < 0.3:
        found.append(msgspec.structs.replace(rng.choice(found)))
    one.spec.shared_counters = found


def consumption(rng: random.Random, one: ResourceSlice) -> None:
    found = [DeviceCounterConsumption(f"set-{number}", _counters(rng)) for number in range(rng.choice((1, 2, 2, 3)))]
    found[0].counter_set = _name(rng, LABELS, BAD_LABELS)
    if rng.random() < 0.5:
        found[-1].counters = rng.choice(({}, {_name(rng, LABELS, BAD_LABELS): Counter(rng.choice((*QUANTITIES, *BAD_QUANTITIES)))}, _many_counters()))
    if rng.random() < 0.3:
        found[-1].counter_set = found[0].counter_set
    if rng.random() < 0.3:
        found[0].compatibility_groups = [_name(rng, LABELS, BAD_LABELS) for _ in range(rng.choice((1, 2, 2, 3)))]
    _some_device(rng, one).consumes_counters = found


def _many_counters() -> dict[str, Counter]:
    return {f"c-{number}": Counter("1") for number in range(33)} | {"Bad": Counter("1")}


def binding_conditions(rng: random.Random, one: ResourceSlice) -> None:
    device = _some_device(rng, one)
    names = ("a", "b", "c", *LABEL_KEYS, *BAD_LABEL_KEYS)
    device.binding_conditions = [rng.choice(names) for _ in range(rng.choice((0, 1, 2, 4, 5)))]
    device.binding_failure_conditions = [rng.choice(names) for _ in range(rng.choice((0, 1, 2, 4, 5)))]


def partition_type(rng: random.Random, one: ResourceSlice) -> None:
    driver = one.spec.driver
    names = ("example.com/kind", f"{driver}/kind", "kind", "", "/kind", "example.com/", f"{64 * 'a'}/9", "a/b/c", "-/-", f"{driver}/other")
    one.spec.partition_type_attribute = rng.choice(names)
    device = _some_device(rng, one)
    if rng.random() < 0.8:
        device.consumes_counters = [DeviceCounterConsumption("set-0", {"c": Counter("1")})]
    if rng.random() < 0.6:
        device.attributes["kind"] = rng.choice((DeviceAttribute(string="mig"), DeviceAttribute(int_=7)))


def skipped_operations(rng: random.Random, one: ResourceSlice) -> None:
    operations = ("*", "NodePrepareResources", "NodeUnprepareResources", "NodePrepareResources", "Nope", "")
    one.spec.skip_node_operations = [rng.choice(operations) for _ in range(rng.choice((1, 1, 2, 3)))]


MUTATIONS: tuple[Mutation, ...] = (
    driver,
    object_name,
    pool,
    pool_numbers,
    slice_nodes,
    slice_nodes,
    device_nodes,
    device_nodes,
    number_of_devices,
    device_name,
    same_device,
    attribute_name,
    attribute_value,
    attribute_list,
    many_entries,
    capacity,
    request_policy,
    request_policy,
    range_with_steps,
    range_with_steps,
    many_taints,
    taint,
    counter_sets,
    counter_sets,
    consumption,
    consumption,
    binding_conditions,
    partition_type,
    skipped_operations,
)
