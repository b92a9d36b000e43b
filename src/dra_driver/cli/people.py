"""The commands for people, as typer sees them."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import redirect_stdout
from importlib import metadata
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from dra_driver.daemon import logs

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)

_PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True}


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dra-driver {metadata.version('dra-driver')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def dra_driver(
    context: typer.Context,
    *,
    _version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """Dynamic Resource Allocation driver for NVIDIA GPUs on Kubernetes."""
    if context.invoked_subcommand is None:
        with redirect_stdout(sys.stderr):
            context.get_help()
        raise typer.Exit(2)


# The programs of a cluster are listed here for --help only: `cli.main` starts them before typer is loaded.


@app.command(context_settings=_PASSED_ON, add_help_option=False)
def node(context: typer.Context) -> None:
    """The program of every GPU node: publishes its GPUs and prepares them for pods. See dra-driver node --help."""
    from dra_driver.node.main import main  # noqa: PLC0415

    raise typer.Exit(main(context.args))


@app.command(context_settings=_PASSED_ON, add_help_option=False)
def controller(context: typer.Context) -> None:
    """The program of the cluster: says what is wrong with DeviceClasses. See dra-driver controller --help."""
    from dra_driver.controller.main import main  # noqa: PLC0415

    raise typer.Exit(main(context.args))


@app.command()
def demo(
    *,
    profile: Annotated[str, typer.Option(help="The simulated machine, such as h100-sxm-80gb or a100-sxm-40gb.")] = "h100-sxm-80gb",
    gpus: Annotated[int | None, typer.Option(help="How many GPUs the machine has instead of the profile's number.")] = None,
    manifests: Annotated[
        Path | None, typer.Option(help="Directory with deviceclass.yaml and resourceclaimtemplate.yaml; by default those of the source tree.")
    ] = None,
    selector: Annotated[
        str | None, typer.Option(help="CEL expression to select devices with, instead of the selectors of the template's requests.", metavar="EXPR")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print every file that is mounted into the container, too.")] = False,
) -> None:
    """Follows one GPU from the driver into a container, without a cluster, a GPU or root."""
    # grpc's C core tells on stderr of every connection that ends.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from dra_driver.cli.demo import Options, run  # noqa: PLC0415  not for --help

    logs.configure("warning")
    signal.signal(signal.SIGTERM, _end)
    raise typer.Exit(run(Options(profile=profile, gpus=gpus, manifests=manifests, selector=selector, full=full)))


def _end(number: int, _frame: object) -> NoReturn:
    """Ends the process as an exception does, so that nothing is left on disk. Further signals do not disturb that."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)
