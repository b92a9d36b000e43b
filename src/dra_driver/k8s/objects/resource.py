"""resource.k8s.io/v1: slices, claims and classes as the scheduler, the kubelet and we see them."""

from __future__ import annotations

from typing import Any

import msgspec

from dra_driver.k8s.objects.core import NodeSelector, Toleration
from dra_driver.k8s.objects.meta import Kind, Object, ObjectMeta, TopLevel, always

API_VERSION = "resource.k8s.io/v1"


# ResourceSlice ----------------------------------------------------------------------------------------------------


class DeviceAttribute(Object):
    """Exactly one field is set. `version` is a semantic version 2.0.0; the lists need the gate DRAListTypeAttributes."""

    int_: int | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None
    ints: list[int] | None = None
    bools: list[bool] | None = None
    strings: list[str] | None = None
    versions: list[str] | None = None


class CapacityRange(Object):
    """CapacityRequestPolicyRange; quantities as texts."""

    min: str | None = None
    max: str | None = None
    step: str | None = None


class CapacityRequestPolicy(Object):
    """How much of a capacity a request may consume (gate DRAConsumableCapacity)."""

    default: str | None = None
    valid_values: list[str] = []
    valid_range: CapacityRange | None = None


class DeviceCapacity(Object):
    """`value` is a Quantity as text."""

    value: str
    request_policy: CapacityRequestPolicy | None = None


class Counter(Object):
    """`value` is a Quantity as text."""

    value: str


class CounterSet(Object):
    """Counters that the devices of a pool share."""

    name: str
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(Object):
    """What one device takes from one counter set. `compatibility_groups` need the gate DRADeviceCompatibilityGroups."""

    counter_set: str
    counters: dict[str, Counter] = {}
    compatibility_groups: list[str] = []


class DeviceTaint(Object):
    """`effect` is None, NoSchedule or NoExecute."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class Device(Object):
    """One device of a slice."""

    name: str
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: list[DeviceCounterConsumption] = []
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[DeviceTaint] = []
    binds_to_node: bool | None = None
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []
    allow_multiple_allocations: bool | None = None


class ResourcePool(Object):
    """A pool is complete when `resource_slice_count` slices of its newest `generation` exist."""

    name: str
    resource_slice_count: int
    generation: int = msgspec.field(default_factory=int)


class ResourceSliceSpec(Object):
    """Either devices or shared counters, for one node, selected nodes or all.

    The last two fields need the gates DRAPartitionableDevicesType and DRAOptionalNodeOperations.
    """

    driver: str
    pool: ResourcePool
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: list[Device] = []
    shared_counters: list[CounterSet] = []
    partition_type_attribute: str | None = None
    skip_node_operations: list[str] = []


class ResourceSlice(TopLevel, kw_only=True):
    """Devices of one driver, published by it."""

    spec: ResourceSliceSpec
    api_version: str = always(API_VERSION)
    kind: str = always("ResourceSlice")


# Requests ---------------------------------------------------------------------------------------------------------


class CELDeviceSelector(Object):
    """A CEL expression over `device` that must be true."""

    expression: str


class DeviceSelector(Object):
    """Only `cel` exists; a selector without it is an error (KEP-4381)."""

    cel: CELDeviceSelector | None = None


class CapacityRequirements(Object):
    """Consumed capacity by name; quantities as texts (gate DRAConsumableCapacity)."""

    requests: dict[str, str] = {}


class ExactDeviceRequest(Object):
    """One request for `count` devices of a class. `allocation_mode` is ExactCount (default) or All."""

    device_class_name: str
    selectors: list[DeviceSelector] = []
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: list[Toleration] = []
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(Object):
    """One alternative of a prioritized list."""

    name: str
    device_class_name: str
    selectors: list[DeviceSelector] = []
    allocation_mode: str = ""
    count: int = 0
    tolerations: list[Toleration] = []
    capacity: CapacityRequirements | None = None


class DeviceRequest(Object):
    """Either `exactly` or `first_available`."""

    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] = []


class DeviceConstraint(Object):
    """What the devices of `requests` (empty = all) must have in common or must differ in."""

    requests: list[str] = []
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueDeviceConfiguration(Object):
    """Parameters for one driver: any JSON object."""

    driver: str
    parameters: Any = None


class DeviceClaimConfiguration(Object):
    """Configuration for `requests` (empty = all)."""

    requests: list[str] = []
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Object):
    """What a claim asks for."""

    requests: list[DeviceRequest] = []
    constraints: list[DeviceConstraint] = []
    config: list[DeviceClaimConfiguration] = []


class ResourceClaimSpec(Object):
    """Immutable."""

    devices: DeviceClaim = msgspec.field(default_factory=DeviceClaim)


# Allocation -------------------------------------------------------------------------------------------------------


class DeviceRequestAllocationResult(Object):
    """One device given to one request. `request` is `name` or `name/subrequest`."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: list[Toleration] = []
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, str] = {}


class NetworkDeviceData(Object):
    """What is known about a network device: the interface's name in the pod, its addresses in CIDR notation, its hardware address."""

    interface_name: str = ""
    ips: list[str] = []
    hardware_address: str = ""


class DeviceAllocationConfiguration(Object):
    """`source` is FromClass or FromClaim."""

    source: str
    requests: list[str] = []
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(Object):
    """All devices of a claim and the configuration that goes with them."""

    results: list[DeviceRequestAllocationResult] = []
    config: list[DeviceAllocationConfiguration] = []


class AllocationResult(Object):
    """Written by the scheduler; immutable until cleared."""

    devices: DeviceAllocationResult = msgspec.field(default_factory=DeviceAllocationResult)
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(Object):
    """Who may use the claim: a pod, or a PodGroup."""

    resource: str
    name: str
    uid: str
    api_group: str = ""


class ResourceClaimStatus(Object):
    """Not allocated while `allocation` is None."""

    allocation: AllocationResult | None = None
    reserved_for: list[ResourceClaimConsumerReference] = []


class ResourceClaim(TopLevel):
    """A request for devices and, once allocated, the answer."""

    api_version: str = always(API_VERSION)
    kind: str = always("ResourceClaim")
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)


class ResourceClaimTemplateSpec(Object):
    """Labels and annotations of `metadata` go to the claims."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)


class ResourceClaimTemplate(TopLevel):
    """From which one claim per pod is made."""

    api_version: str = always(API_VERSION)
    kind: str = always("ResourceClaimTemplate")
    spec: ResourceClaimTemplateSpec = msgspec.field(default_factory=ResourceClaimTemplateSpec)


# DeviceClass ------------------------------------------------------------------------------------------------------


class DeviceClassConfiguration(Object):
    """Configuration for every device that is allocated through the class."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Object):
    """All selectors must be true of a device."""

    selectors: list[DeviceSelector] = []
    config: list[DeviceClassConfiguration] = []
    extended_resource_name: str | None = None


class DeviceClass(TopLevel):
    """What cluster admins install for requests to name."""

    api_version: str = always(API_VERSION)
    kind: str = always("DeviceClass")
    spec: DeviceClassSpec = msgspec.field(default_factory=DeviceClassSpec)


RESOURCE_SLICES = Kind(ResourceSlice, API_VERSION, "ResourceSlice", "resourceslices", namespaced=False)
RESOURCE_CLAIMS = Kind(ResourceClaim, API_VERSION, "ResourceClaim", "resourceclaims")
RESOURCE_CLAIM_TEMPLATES = Kind(ResourceClaimTemplate, API_VERSION, "ResourceClaimTemplate", "resourceclaimtemplates")
DEVICE_CLASSES = Kind(DeviceClass, API_VERSION, "DeviceClass", "deviceclasses", namespaced=False)
