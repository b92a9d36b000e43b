"""The Kubernetes CEL of device selectors: what the API server admits and what the scheduler will say, exactly.

::

    environment = Environment(kubernetes="1.37", stored=True)
    selector = environment.compile("device.driver == 'gpu.nvidia.com'")
    selector.matches(Device.from_api("gpu.nvidia.com", {"attributes": {"type": {"string": "gpu"}}}))
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
