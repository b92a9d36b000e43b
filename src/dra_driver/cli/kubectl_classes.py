"""`kubectl dra classes`: the controller's report on DeviceClasses, for people and for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from dra_driver.cli.kubectl_files import Manifests
from dra_driver.controller.deviceclasses import Judge
from dra_driver.controller.report import ClassReport, Failure, Problem, State
from dra_driver.errors import ApiError, SettingsError
from dra_driver.k8s import config
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import DEVICE_CLASSES, RESOURCE_SLICES, DeviceClass, ResourceSlice

USER_AGENT = "kubectl-dra"
_PIPE_WIDTH = 200
_COLOURS = {State.MATCHES: "green", State.UNMATCHED: "yellow", State.UNSUPPORTED: "yellow", State.FAILS: "red", State.INVALID: "red"}


class Output(StrEnum):
    """Values of -o."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True)
class Options:
    """With `files` no cluster is asked; `names` empty is all classes."""

    files: Sequence[Path] = ()
    names: Sequence[str] = ()
    output: Output = Output.TABLE
    kubeconfig: str = ""
    context: str = ""


def run(options: Options, console: Console | None = None) -> int:
    """Exit status: 0, 1 when a class does not compile or fails on devices, 2 when there is no answer."""
    try:
        classes, slices = _from_files(options.files) if options.files else _from_cluster(options)
        chosen = _chosen(classes, options.names)
    except (SettingsError, ApiError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    reports = list(_judged(chosen, slices))
    _print(reports, options.output, console or Console(highlight=False))
    return int(any(report.state in (State.INVALID, State.FAILS) for report in reports))


def _from_files(paths: Sequence[Path]) -> tuple[list[DeviceClass], list[ResourceSlice]]:
    manifests = Manifests(paths)
    classes = manifests.of(DEVICE_CLASSES)
    if not classes:
        raise SettingsError(f"{', '.join(map(str, paths))}: no DeviceClass in them")
    return classes, manifests.of(RESOURCE_SLICES)


def _from_cluster(options: Options) -> tuple[list[DeviceClass], list[ResourceSlice]]:
    client = Client(config.find(kubeconfig_path=options.kubeconfig, context=options.context), USER_AGENT)
    try:
        return client.list(DEVICE_CLASSES).items, client.list(RESOURCE_SLICES).items
    finally:
        client.close()


def _chosen(classes: list[DeviceClass], names: Sequence[str]) -> list[DeviceClass]:
    by_name = {one.metadata.name: one for one in classes}
    if missing := [name for name in names if name not in by_name]:
        raise SettingsError(f"DeviceClass {missing[0]}: not found; there are: {', '.join(sorted(by_name)) or 'none'}")
    return sorted((by_name[name] for name in set(names)) if names else classes, key=lambda one: one.metadata.name)


def _judged(classes: list[DeviceClass], slices: list[ResourceSlice]) -> Iterator[ClassReport]:
    progress = Console(stderr=True)
    reports = Judge().judge(classes, slices)
    return iter(track(reports, "evaluating selectors", len(classes), console=progress, transient=True, disable=not progress.is_terminal))


def _print(reports: list[ClassReport], output: Output, console: Console) -> None:
    match output:
        case Output.JSON:
            console.file.write(json.dumps({"classes": [_data(report) for report in reports]}, indent=2, ensure_ascii=False) + "\n")
        case Output.YAML:
            yaml.safe_dump({"classes": [_data(report) for report in reports]}, console.file, sort_keys=False, allow_unicode=True, width=_PIPE_WIDTH)
        case _:
            if not console.is_terminal:
                console = Console(file=console.file, width=_PIPE_WIDTH, highlight=False, color_system=None)
            _tell(reports, console, wide=output is Output.WIDE)


def _tell(reports: list[ClassReport], console: Console, *, wide: bool) -> None:
    if not reports:
        console.print("No DeviceClasses found.")
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("CLASS", no_wrap=True)
    table.add_column("STATE", no_wrap=True)
    for heading in ("DEVICES", "NODES", "FAILING"):
        table.add_column(heading, justify="right")
    for report in reports:
        numbers = ["-"] * 3 if report.problems else [f"{report.matching}/{report.devices}", str(report.nodes), str(report.failing)]
        table.add_row(report.name, Text(report.state, _COLOURS[report.state]), *numbers)
    console.print(table)
    for report in reports if wide else ():
        troubles: list[Problem | Failure] = [*report.problems, *report.failures]
        for trouble in troubles:
            console.print(Text("\n".join(["", *_explained(report.name, trouble)])), soft_wrap=True)
        if report.state is State.UNMATCHED:
            console.print(Text(f"\n{report.name}: {report.note}"), soft_wrap=True)
        if report.shared:
            console.print(Text(f"\n{report.name}: {report.shared} of the chosen devices name no node: several nodes can reach them."), soft_wrap=True)


def _explained(name: str, trouble: Problem | Failure) -> Iterator[str]:
    expression = trouble.expression.strip().splitlines() or ["(none)"]
    yield f"{name}: selector #{trouble.selector}: {expression[0]}"
    yield from (f"    {line}" for line in expression[1:])
    if isinstance(trouble, Problem):
        yield "  this version cannot judge it:" if trouble.unsupported else "  does not compile:"
        yield from (f"    {line}" for line in trouble.text.splitlines())
        return
    devices = "1 device" if trouble.devices == 1 else f"{trouble.devices} devices"
    yield f"  fails on {devices}: {trouble.text}"
    yield from (f"    {device}" for device in trouble.sample)
    if trouble.devices > len(trouble.sample):
        yield f"    and {trouble.devices - len(trouble.sample)} more"
    if trouble.advice:
        yield f"  {trouble.advice}"


def _data(report: ClassReport) -> dict[str, Any]:
    return {
        "name": report.name,
        "state": str(report.state),
        "note": report.note,
        "devices": report.devices,
        "matchingDevices": report.matching,
        "matchingNodes": report.nodes,
        "matchingDevicesOfSeveralNodes": report.shared,
        "failingDevices": report.failing,
        "problems": [
            {"selector": one.selector, "expression": one.expression, "text": one.text, "unsupported": one.unsupported} for one in report.problems
        ],
        "failures": [
            {
                "selector": one.selector,
                "expression": one.expression,
                "text": one.text,
                "devices": one.devices,
                "sample": list(one.sample),
            }
            for one in report.failures
        ],
    }
