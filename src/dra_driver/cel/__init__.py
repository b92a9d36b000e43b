"""The Kubernetes CEL of device selectors: what the API server admits and what the scheduler will say, exactly.

>>> device = Device.from_api("gpu.nvidia.com", {"attributes": {"type": {"string": "gpu"}}, "capacity": {"memory": {"value": "80Gi"}}})
>>> selector = Environment(kubernetes="1.37", stored=True).compile("device.attributes['gpu.nvidia.com'].type == 'gpu'")
>>> selector.matches(device)
True
>>> Environment().compile("device.attributes['gpu.nvidia.com'].memory == '80Gi'").matches(device)
Traceback (most recent call last):
dra_driver.errors.EvaluationError: no such key: memory

In the last line `memory` is a capacity, not an attribute: the API server accepts such a selector, and then the scheduler stops at the first device.
"""

from dra_driver.cel.device import Device
from dra_driver.cel.environment import Environment, Finding
from dra_driver.cel.explain import Explanation, Part, Term
from dra_driver.cel.index import Failure, Index
from dra_driver.cel.lint import Catalogue, SelectorWarning
from dra_driver.cel.reads import Read
from dra_driver.cel.selector import Outcome, Selector
from dra_driver.cel.syntax.source import Diagnostic
from dra_driver.errors import CompileError, EvaluationError

__all__ = [
    "Catalogue",
    "CompileError",
    "Device",
    "Diagnostic",
    "Environment",
    "EvaluationError",
    "Explanation",
    "Failure",
    "Finding",
    "Index",
    "Outcome",
    "Part",
    "Read",
    "Selector",
    "SelectorWarning",
    "Term",
]
