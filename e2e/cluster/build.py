"""The cluster's binaries, compiled from one Go module (`tools/`), so that every package they share is compiled once.

They lie in a directory of the cache named after everything that decides their content; a second clone, or a second run, finds them there.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from dra_driver.errors import HostError
from e2e.cluster.processes import last_lines
from e2e.cluster.progress import Progress

MODULE = Path(__file__).parent / "tools"
KUBERNETES_VERSION = "v1.37.2"
FLAGS = ("-trimpath", f"-ldflags=-s -w -X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}")

# Binary: the package it is compiled from.
BINARIES = {
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "containerd": "github.com/containerd/containerd/v2/cmd/containerd",
    "containerd-shim-runc-v2": "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
    "ctr": "github.com/containerd/containerd/v2/cmd/ctr",
    "etcd": "go.etcd.io/etcd/server/v3",
    "helm": "helm.sh/helm/v4/cmd/helm",
}
PEER = MODULE / "cmd" / "benchpeer"  # what bench/ measures our node program against
REPORT_EVERY = 10.0  # seconds between two lines about a build that runs

_PACKAGE = re.compile(r"[\w.~/-]+")  # a line of `go build -v` that is no message


def directory(cache: Path) -> Path:
    """Where the binaries of this module's present state lie, built or not."""
    return cache / f"tools-{_key(repr((FLAGS, BINARIES)).encode())}"


def build(cache: Path, progress: Progress) -> Path:
    """Compile what is not there yet and return the directory. Minutes the first time. Raises HostError."""
    ready = directory(cache)
    if ready.is_dir():
        return ready
    _check_go()
    partial = ready.with_suffix(".partial")
    partial.mkdir(parents=True, exist_ok=True)
    log = cache / "build.log"
    log.write_bytes(b"")
    progress.say(f"compiling {len(BINARIES)} programs into {ready} (some 5 minutes on two cores, the first time; log: {log})")
    with progress.step("programs compiled"):
        # `go build -o DIRECTORY/` names a binary after its package's last element, which is right for all but etcd.
        _go_build(partial, [package for name, package in BINARIES.items() if name != "etcd"], log, progress)
        _go_build(partial / "etcd", [BINARIES["etcd"]], log, progress)
    partial.rename(ready)
    return ready


def build_peer(cache: Path, progress: Progress) -> Path:
    """The benchmark peer, compiled as a release where it is not there yet. Raises HostError."""
    sources = [source.read_bytes() for source in sorted(PEER.glob("*.go"))]
    ready = cache / f"benchpeer-{_key(repr(FLAGS).encode(), *sources)}"
    if ready.is_file():
        return ready
    _check_go()
    cache.mkdir(parents=True, exist_ok=True)
    log = cache / "build-benchpeer.log"
    log.write_bytes(b"")
    partial = ready.with_suffix(".partial")
    with progress.step("benchmark peer compiled"):
        _go_build(partial, [f"./{PEER.relative_to(MODULE)}"], log, progress)
    partial.rename(ready)
    return ready


def _key(*contents: bytes) -> str:
    """Names what is compiled from the module's present state and these contents."""
    key = hashlib.sha256()
    for content in (*((MODULE / name).read_bytes() for name in ("go.mod", "go.sum")), *contents):
        key.update(hashlib.sha256(content).digest())
    return key.hexdigest()[:16]


def _check_go() -> None:
    if shutil.which("go") is None:
        raise HostError(f"missing on this machine: go, which compiles Kubernetes. Install Go {_go_version()} or later and put it on PATH")


def _go_version() -> str:
    match = re.search(r"^go (\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    return match[1] if match else ""


def _go_build(output: Path, packages: list[str], log: Path, progress: Progress) -> None:
    command = ["go", "build", "-v", *FLAGS, "-buildvcs=false", "-o", f"{output}/" if output.is_dir() else str(output), *packages]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    with log.open("a") as sink, subprocess.Popen(command, cwd=MODULE, env=environment, stdout=sink, stderr=subprocess.STDOUT) as go:
        while go.returncode is None:
            try:
                go.wait(REPORT_EVERY)
            except subprocess.TimeoutExpired:
                progress.say(f"  {_progress(log.read_text().splitlines())}")
    if go.returncode:
        raise HostError(f"the Go build failed with status {go.returncode}. Last lines of {log}:\n{last_lines(log)}")


def _progress(lines: list[str]) -> str:
    """What the output of `go build -v` so far says of its progress."""
    compiled = sum(_PACKAGE.fullmatch(line) is not None for line in lines)
    return f"{compiled} packages compiled, last: {lines[-1] if lines else 'none yet'}"
