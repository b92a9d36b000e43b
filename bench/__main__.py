"""`python -m bench`: run the rounds on the cluster of `make cluster-up`, print the table."""

from __future__ import annotations

import argparse
import compileall
import contextlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import dra_driver
from bench import claims, measures, report
from bench.contenders import AGAIN, CDI, OURS, SHIPPED, UNTHROTTLED, contenders, prepare_hardware
from bench.rounds import FEW, HELD, MANY, Bench
from dra_driver.errors import DraError
from e2e.cluster import Cluster, build
from e2e.cluster.progress import Progress
from e2e.cluster.settings import DEFAULT_STATE, default_cache
from e2e.kube import Kube

ROUNDS = 10
RBAC = Path(__file__).resolve().parent.parent / "manifests" / "rbac.yaml"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 also where an aim is missed: this is a measurement, not a test. 1 where it could not be made."""
    options = _parser().parse_args(arguments)
    progress = Progress()
    try:
        cluster = Cluster.load(options.state)
        compileall.compile_dir(Path(dra_driver.__file__).parent, quiet=1)  # as in an image; pip has compiled the other packages
        with contextlib.redirect_stdout(sys.stderr):
            peer = build.build_peer(options.cache.absolute(), progress)
            rounds = _run(cluster, peer, progress, count=options.rounds, noise=options.noise)
    except (DraError, AssertionError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    found = measures.rows(rounds, ours=OURS, aimed_at=UNTHROTTLED)
    print(report.as_json(found, rounds) if options.json else report.table(found, ours=OURS, against=[SHIPPED, UNTHROTTLED]))
    if options.noise and not options.json:
        print("\nThe machine's noise, the unthrottled peer against itself:\n")
        print(report.table(measures.rows(rounds, ours=AGAIN, aimed_at=""), ours=AGAIN, against=[UNTHROTTLED], aims=False))
    return 0


def _run(cluster: Cluster, peer: Path, progress: Progress, *, count: int, noise: bool) -> list[dict[str, dict[str, float]]]:
    node = cluster.nodes[0]
    kube = Kube(cluster.kubeconfig, str(cluster.settings.tools / "kubectl"))
    try:
        kube.apply_file(RBAC)
        claims.make_namespace(kube)
        competing = contenders(cluster, node, kube, peer, noise=noise)
        with progress.step("claims made"):
            prepare_hardware(node, FEW)
            devices = prepare_hardware(node, MANY)[:HELD]
            allocated = {one.name: claims.allocate(kube, one.driver, node.name, devices[: FEW if one.throttled else HELD]) for one in competing}
        bench = Bench(kube, node, competing, allocated)
        rounds = []
        for number in range(count):
            with progress.step(f"round {number + 1} of {count}"):
                rounds.append(bench.round(number))
        claims.remove_namespace(kube)
    finally:
        kube.close()
        shutil.rmtree(CDI, ignore_errors=True)
    return rounds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Our node program against a Go peer; see docs/dev/performance.md.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="a minute each; 1 or 2 only show that it works (default: %(default)s)")
    parser.add_argument("--noise", action="store_true", help="also measure the unthrottled peer against itself")
    parser.add_argument("--json", action="store_true", help="print JSON, with every round's figures")
    parser.add_argument("--state", type=Path, default=DEFAULT_STATE, help="the cluster's directory (default: %(default)s)")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where the compiled peer is kept (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
