"""`dra-driver`: one command for each program of this project.

The long-running programs are started straight from here, so that they never load what only people's commands need.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> None:
    """Ends the process with the command's exit status: 0, 1 when it failed, 2 when it was asked wrongly."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["node"]:
        with _loading():
            from dra_driver.node.main import main as node  # noqa: PLC0415  without rich and typer

        _exit(node(given[1:]))
    if given[:1] == ["controller"]:
        with _loading():
            from dra_driver.controller.main import main as controller  # noqa: PLC0415

        sys.exit(controller(given[1:]))
    from dra_driver.cli.people import app  # noqa: PLC0415  rich and typer cost a node program memory

    app(given, prog_name="dra-driver")


def _exit(status: int) -> NoReturn:
    """Ends the process now. An ordinary exit waits for every thread, also for one in a call of NVML or of the API server that never returns."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


@contextlib.contextmanager
def _loading() -> Iterator[None]:
    """Modules make next to no garbage and stay for ever: looking through them again and again takes a twentieth of the start."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()
