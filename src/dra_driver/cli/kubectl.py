"""`kubectl dra`, a kubectl plugin: kubectl runs `kubectl-dra` when it is on the PATH."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dra_driver.cli.kubectl_classes import Options, Output
from dra_driver.cli.kubectl_classes import run as run_classes
from dra_driver.daemon import logs

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Ends the process with the command's exit status."""
    app(arguments, prog_name="kubectl dra")


@app.callback()
def kubectl_dra() -> None:
    """Explains Dynamic Resource Allocation: DeviceClasses and the devices behind them."""
    logs.configure("warning")


@app.command()
def classes(
    *,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="DeviceClasses to report on; all by default.")] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "-f",
            "--filename",
            metavar="FILE",
            help="Manifest with DeviceClasses and ResourceSlices to read instead of asking a cluster; may be repeated, - is stdin.",
        ),
    ] = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="wide explains every failure.")] = Output.TABLE,
    kubeconfig: Annotated[str, typer.Option(help="The kubeconfig file; by default as kubectl does.", metavar="FILE")] = "",
    context: Annotated[str, typer.Option(help="The kubeconfig's context.", metavar="NAME")] = "",
) -> None:
    """Tells what each DeviceClass's selectors make of the published devices.

    Exit status: 0, 1 when a class does not compile or fails on devices, 2 for wrong input or when the API server gives no answer.
    """
    raise typer.Exit(run_classes(Options(files or (), names or (), output, kubeconfig, context)))
