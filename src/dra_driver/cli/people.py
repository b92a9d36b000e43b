"""The commands for people, as typer sees them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from dra_driver.daemon import logs

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)


@app.callback(epilog="The programs that run in a cluster have their own help: dra-driver node --help.")
def dra_driver() -> None:
    """Dynamic Resource Allocation driver for NVIDIA GPUs on Kubernetes."""


@app.command()
def demo(
    *,
    profile: Annotated[str, typer.Option(help="The simulated machine, such as h100-sxm-80gb or a100-sxm-40gb.")] = "h100-sxm-80gb",
    gpus: Annotated[int | None, typer.Option(min=0, max=64, help="How many GPUs the machine has instead of the profile's number.")] = None,
    manifests: Annotated[
        Path | None, typer.Option(help="Directory with deviceclass.yaml and resourceclaimtemplate.yaml; by default those of the source tree.")
    ] = None,
    selector: Annotated[
        str, typer.Option(help="CEL expression to select devices with, instead of the selectors of the template's requests.", metavar="EXPR")
    ] = "",
) -> None:
    """Follows one GPU from the driver into a container, without a cluster, a GPU or root."""
    # grpc's C core tells on stderr of every connection that ends.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from dra_driver.cli.demo import Options, run  # noqa: PLC0415  not for --help

    logs.configure("warning")
    raise typer.Exit(run(Options(profile=profile, gpus=gpus, manifests=manifests, selector=selector)))
