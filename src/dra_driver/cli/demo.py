"""`dra-driver demo`: one claim, from the GPU's driver to a container's environment and back, told step by step.

All parts are real but the API server, the kubelet, the container runtime and the GPUs, which the sandbox stands in for.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import dra_driver
from dra_driver.cel import Environment
from dra_driver.cli.demo_steps import MANIFESTS, NODE, STEPS, Demo
from dra_driver.cli.screen import Screen
from dra_driver.errors import CompileError, DraError, SettingsError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.meta import TopLevel
from dra_driver.k8s.objects.resource import CELDeviceSelector, DeviceClass, DeviceSelector, ResourceClaimTemplate
from dra_driver.sandbox import manifests
from dra_driver.sandbox.apiserver import ApiServer
from dra_driver.sandbox.node import SimulatedNode


@dataclass(frozen=True)
class Options:
    """What a person can choose. `gpus` None is the profile's number, `manifests` None the source tree's, `selector` None the template's.

    `full` prints what else is only counted.
    """

    profile: str
    gpus: int | None = None
    manifests: Path | None = None
    selector: str | None = None
    full: bool = False


def run(options: Options, screen: Screen | None = None) -> int:
    """Exit status: 0, 1 when no device matches or a part fails, 2 when an option is wrong."""
    screen = screen or Screen(STEPS)
    try:
        objects = _read_manifests(options)
        with ExitStack() as stack:
            api = stack.enter_context(ApiServer())
            client = Client(api.connection, "dra-driver-demo")
            stack.callback(client.close)
            began = time.monotonic()
            node = stack.enter_context(SimulatedNode(client, NODE, profile=options.profile, gpus=options.gpus))
            matched = Demo(screen, client, node, full=options.full).tell(options.profile, objects)
            if matched:
                screen.lines("", f"Done in {time.monotonic() - began:.1f} s.")
            return 0 if matched else 1
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    except DraError as error:
        screen.failure(f"The demo cannot go on: {error}")
        return 1


def _read_manifests(options: Options) -> list[TopLevel]:
    directory = options.manifests or Path(dra_driver.__file__).parents[2] / "manifests"
    objects = [obj for name in MANIFESTS for obj in manifests.read(directory / name)]
    for kind in (DeviceClass, ResourceClaimTemplate):
        if not any(isinstance(obj, kind) for obj in objects):
            raise SettingsError(f"manifests in {directory}: found no {kind.__name__} in {' and '.join(MANIFESTS)}, one is needed")
    if options.selector is not None:
        try:
            Environment().compile(options.selector)
        except CompileError as error:
            raise SettingsError(f"--selector {options.selector!r}: the API server would refuse it: {error}") from error
        for template in (obj for obj in objects if isinstance(obj, ResourceClaimTemplate)):
            for request in template.spec.spec.devices.requests:
                if request.exactly:
                    request.exactly.selectors = [DeviceSelector(CELDeviceSelector(options.selector))]
    return objects
