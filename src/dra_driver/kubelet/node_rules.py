"""What the API server would refuse of the choice of nodes, of a slice or of a device. See slice_rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dra_driver.k8s import names
from dra_driver.k8s.field_errors import FieldError, forbidden, invalid, required
from dra_driver.k8s.objects.core import NodeSelector, NodeSelectorRequirement
from dra_driver.k8s.objects.resource import Device, ResourceSliceSpec

_SET_TO_TRUE = "must be either unset or set to true"
_OF_SLICE = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_OF_DEVICE = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)
_NOT_OF_DEVICE = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"


def slice_choice(spec: ResourceSliceSpec) -> Iterator[FieldError]:
    """Exactly one of four."""
    if spec.node_name == "":
        yield invalid("spec.nodeName", "", "must be either unset or set to a non-empty string")
    elif spec.node_name:
        yield from _node_name(spec.node_name, "spec.nodeName")
    if spec.node_selector is not None:
        terms = spec.node_selector.node_selector_terms
        yield from _selector(spec.node_selector, "spec.nodeSelector")
        if len(terms) != 1:
            yield invalid("spec.nodeSelector.nodeSelectorTerms", _internal(spec.node_selector), "must have exactly one node selector term")
    if spec.all_nodes is False:
        yield invalid("spec.allNodes", value=False, detail=_SET_TO_TRUE)
    if spec.per_device_node_selection is False:
        yield invalid("spec.perDeviceNodeSelection", value=False, detail=_SET_TO_TRUE)
    chosen = _chosen(
        nodeName=spec.node_name,
        nodeSelector=spec.node_selector is not None,
        allNodes=spec.all_nodes,
        perDeviceNodeSelection=spec.per_device_node_selection,
    )
    if not chosen:
        yield required("spec", _OF_SLICE)
    elif len(chosen) > 1:
        yield invalid("spec", f"{{{', '.join(chosen)}}}", f"{_OF_SLICE}, but multiple fields are set")


def device_choice(device: Device, where: str, *, per_device: bool) -> Iterator[FieldError]:
    """Exactly one of three where the slice leaves it to its devices, else none."""
    if not per_device:
        if device.node_name is not None or device.node_selector is not None or device.all_nodes is not None:
            yield invalid(where, None, _NOT_OF_DEVICE)
        return
    if device.node_name == "":
        yield invalid(f"{where}.nodeName", "", "must not be empty")
    elif device.node_name:
        yield from _node_name(device.node_name, f"{where}.nodeName")
    if device.node_selector is not None:
        yield from _selector(device.node_selector, f"{where}.nodeSelector")
    if device.all_nodes is False:
        yield invalid(f"{where}.allNodes", value=False, detail=_SET_TO_TRUE)
    chosen = _chosen(nodeName=device.node_name, nodeSelector=device.node_selector is not None, allNodes=device.all_nodes)
    if not chosen:
        yield required(where, _OF_DEVICE)
    elif len(chosen) > 1:
        yield invalid(where, f"{{{', '.join(chosen)}}}", _OF_DEVICE)


def _chosen(**fields: object) -> list[str]:
    return [f"`{name}`" for name, value in fields.items() if value]


def _node_name(name: str, where: str) -> Iterator[FieldError]:
    yield from (invalid(where, name, text) for text in names.dns_subdomain_errors(name))


def _selector(selector: NodeSelector, where: str) -> Iterator[FieldError]:
    if not selector.node_selector_terms:
        yield required(f"{where}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(selector.node_selector_terms):
        at = f"{where}.nodeSelectorTerms[{index}]"
        for number, one in enumerate(term.match_expressions):
            yield from _expression(one, f"{at}.matchExpressions[{number}]")
        for number, one in enumerate(term.match_fields):
            yield from _field(one, f"{at}.matchFields[{number}]")


def _expression(one: NodeSelectorRequirement, where: str) -> Iterator[FieldError]:
    if one.operator in ("In", "NotIn"):
        if not one.values:
            yield required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif one.operator in ("Exists", "DoesNotExist"):
        if one.values:
            yield forbidden(f"{where}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif one.operator in ("Gt", "Lt"):
        if len(one.values) != 1:
            yield required(f"{where}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield invalid(f"{where}.operator", one.operator, "not a valid selector operator")
    yield from (invalid(f"{where}.key", one.key, text) for text in names.label_key_errors(one.key))
    for index, value in enumerate(one.values):
        yield from (invalid(f"{where}.values[{index}]", value, text) for text in names.label_value_errors(value))


def _field(one: NodeSelectorRequirement, where: str) -> Iterator[FieldError]:
    if one.operator not in ("In", "NotIn"):
        yield invalid(f"{where}.operator", one.operator, "not a valid selector operator")
    elif len(one.values) != 1:
        yield required(f"{where}.values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
    if one.key != "metadata.name":
        yield invalid(f"{where}.key", one.key, "not a valid field selector key")
        return
    for index, value in enumerate(one.values):
        yield from _node_name(value, f"{where}.values[{index}]")


def _internal(selector: NodeSelector) -> list[dict[str, Any]] | None:
    """The terms in the JSON of the server's internal type, which has no lower-case names and writes null for an empty list."""

    def shown(requirements: list[NodeSelectorRequirement]) -> list[dict[str, Any]] | None:
        return [{"Key": one.key, "Operator": one.operator, "Values": one.values or None} for one in requirements] or None

    terms = selector.node_selector_terms
    return [{"MatchExpressions": shown(one.match_expressions), "MatchFields": shown(one.match_fields)} for one in terms] or None
