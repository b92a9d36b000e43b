"""The Kubernetes CEL of device selectors: what the API server admits and what the scheduler will say, exactly."""

from dra_driver.cel.device import Device
from dra_driver.cel.environment import Environment, Finding
from dra_driver.cel.selector import Outcome, Selector
from dra_driver.errors import CompileError, EvaluationError

__all__ = ["CompileError", "Device", "Environment", "EvaluationError", "Finding", "Outcome", "Selector"]
