"""One broken claim must not break the others: a step's error, or its bug, becomes that claim's outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from dra_driver.errors import ClaimRetryError, DraError

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")


def attempt(claim: object, step: Callable[[T], R], argument: T) -> R | DraError:
    """The step's result or its error; `claim` is what the claim is called in it."""
    try:
        return step(argument)
    except DraError as error:
        return error
    except Exception as error:
        log.exception("internal error", extra={"claim": str(claim)})
        return ClaimRetryError(f"claim {claim}: internal error, please report it: {type(error).__name__}: {error}")
