"""The CEL expressions that choose devices in DeviceClasses and ResourceClaims, evaluated as the scheduler does.

>>> device = Device.from_api("gpu.nvidia.com", {"attributes": {"type": {"string": "gpu"}}, "capacity": {"memory": {"value": "80Gi"}}})
>>> selector = Environment().compile("device.attributes['gpu.nvidia.com'].type == 'gpu'")
>>> selector.matches(device)
True
>>> Environment().compile("device.attributes['gpu.nvidia.com'].memory == '80Gi'").matches(device)
Traceback (most recent call last):
dra_driver.errors.EvaluationError: no such key: memory

In the last line `memory` is a capacity, not an attribute: the API server accepts such a selector, and then the scheduler stops at the first device.
"""

from __future__ import annotations

from dra_driver.cel.device import AttributeValue, Device
from dra_driver.cel.selector import Environment, Selector
from dra_driver.errors import CompileError, EvaluationError

__all__ = ["AttributeValue", "CompileError", "Device", "Environment", "EvaluationError", "Selector"]
