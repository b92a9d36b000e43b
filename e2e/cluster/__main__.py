"""`python -m e2e.cluster`: start, end and look at the local cluster."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from dra_driver.errors import DraError, HostError, SettingsError
from e2e.cluster import build, driver_image, lifecycle, requirements
from e2e.cluster.cluster import Cluster
from e2e.cluster.processes import PartError
from e2e.cluster.progress import Progress
from e2e.cluster.settings import DEFAULT_NETWORK, DEFAULT_NODES, DEFAULT_STATE, Settings, default_cache, parse_network, parse_nodes, parse_switches


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status: 0 as wanted, 1 not so, 2 for wrong options, 130 when interrupted."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except DraError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; `python -m e2e.cluster down` removes what is there", file=sys.stderr)
        return 130
    return status


def _up(options: argparse.Namespace) -> int:
    settings = Settings(
        state=options.state.absolute(),
        tools=build.directory(options.cache.absolute()),
        nodes=parse_nodes(options.nodes),
        feature_gates=tuple(parse_switches("--feature-gates", options.feature_gates).items()),
        runtime_config=tuple(parse_switches("--runtime-config", options.runtime_config).items()),
        network=parse_network(options.network),
    )
    try:
        cluster = lifecycle.up(settings, options.cache.absolute(), Progress())
    except PartError as error:
        raise HostError(f"{error}\nThe rest is left as it is, for a look; `python -m e2e.cluster down` removes it") from error
    print(f"\n{_node_table(cluster)}\n\nexport KUBECONFIG={cluster.kubeconfig} PATH={settings.tools}:$PATH")
    return 0


def _down(options: argparse.Namespace) -> int:
    lifecycle.down(options.state.absolute(), Progress(), options.keep_logs)
    return 0


def _status(options: argparse.Namespace) -> int:
    requirements.check_root()
    cluster = Cluster.load(options.state.absolute())
    rows = [("PART", "PID", "STATE", "SINCE", "LOG")]
    for part in cluster.parts():
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(part.since)) if part.since else "-"
        rows.append((part.name, str(part.pid or "-"), part.state, since, str(part.log)))
    print(_table(rows))
    try:
        readiness = cluster.node_readiness()
    except OSError as error:
        print(f"\nthe API server does not answer: {error}")
        return 1
    print(f"\n{_node_table(cluster)}")
    return 0 if cluster.runs() and all(ready for ready, _ in readiness.values()) else 1


def _build(options: argparse.Namespace) -> int:
    print(build.build(options.cache.absolute(), Progress()))
    return 0


def _image(options: argparse.Namespace) -> int:
    progress = Progress()
    image = driver_image.build(options.cache.absolute(), progress)
    print(image)
    if options.state.exists():
        with progress.step(f"{driver_image.IMAGE} imported into every node"):
            driver_image.give(Cluster.load(options.state.absolute()), image)
    return 0


def _exec(options: argparse.Namespace) -> int:
    requirements.check_root()
    cluster = Cluster.load(options.state.absolute())
    if options.node not in cluster.settings.nodes:
        raise SettingsError(f"there is no node {options.node!r}; there are {', '.join(cluster.settings.nodes)}")
    return cluster.node(options.node).machine.attach(options.command)


def _node_table(cluster: Cluster) -> str:
    readiness = cluster.node_readiness()
    rows = [("NODE", "ADDRESS", "READY", "REASON")]
    rows += [(node.name, str(node.address), str(readiness[node.name][0]), readiness[node.name][1]) for node in cluster.nodes]
    return _table(rows)


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.cluster", description="A real Kubernetes cluster on this machine; see e2e/cluster/README.md."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    state = argparse.ArgumentParser(add_help=False)
    state.add_argument("--state", type=Path, default=DEFAULT_STATE, help="directory of all that the cluster writes (default: %(default)s)")
    cache = argparse.ArgumentParser(add_help=False)
    cache.add_argument("--cache", type=Path, default=default_cache(), help="directory where binaries are kept (default: %(default)s)")

    up = commands.add_parser("up", parents=[state, cache], help="compile what is missing and start the cluster")
    up.add_argument("--nodes", default=",".join(DEFAULT_NODES), metavar="NAMES", help="node names (default: %(default)s)")
    up.add_argument("--feature-gates", default="", metavar="A=true,B=false", help="for every component")
    up.add_argument("--runtime-config", default="", metavar="GROUP/VERSION=true", help="API versions that kube-apiserver serves")
    up.add_argument("--network", default=str(DEFAULT_NETWORK), help="addresses of host and machines, a /24 (default: %(default)s)")
    up.set_defaults(run=_up)

    down = commands.add_parser("down", parents=[state], help="end the cluster and remove all it wrote; also what a killed run left")
    down.add_argument("--keep-logs", type=Path, metavar="DIR", help="copy the logs of parts and pods there first")
    down.set_defaults(run=_down)

    commands.add_parser("status", parents=[state], help="show every part and node; succeeds only if all is up").set_defaults(run=_status)
    commands.add_parser("build", parents=[cache], help="compile only, and print the directory of the binaries").set_defaults(run=_build)

    image = commands.add_parser("image", parents=[state, cache], help="build the driver's image, and give it to the nodes where a cluster runs")
    image.set_defaults(run=_image)

    inside = commands.add_parser("exec", parents=[state], help="run a command on a node: exec node-a -- ctr -n k8s.io containers ls")
    inside.add_argument("node")
    inside.add_argument("command", nargs="+")
    inside.set_defaults(run=_exec)
    return parser


if __name__ == "__main__":
    sys.exit(main())
