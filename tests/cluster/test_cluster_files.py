from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from e2e.cluster import build, cgroups, host_directories, pki
from e2e.cluster.control_plane import apiserver_flags, controller_manager_flags, scheduler_flags
from e2e.cluster.node import Node
from e2e.cluster.node_files import cni_configuration, containerd_configuration, kubelet_configuration
from e2e.cluster.processes import Parts
from e2e.cluster.settings import Settings

PLAIN = Settings(state=Path("/state"), tools=Path("/tools"))
GATED = Settings(state=Path("/state"), tools=Path("/tools"), feature_gates=(("A", True), ("B", False)), runtime_config=(("g/v1", True),))


def test_feature_gates_reach_every_component() -> None:
    for flags in (apiserver_flags, controller_manager_flags, scheduler_flags):
        assert "--feature-gates=A=true,B=false" in flags(GATED)
        assert not any("feature-gates" in flag for flag in flags(PLAIN))
    assert kubelet_configuration(GATED, "node-a", "/r")["featureGates"] == {"A": True, "B": False}


def test_runtime_config_is_the_api_servers() -> None:
    assert "--runtime-config=g/v1=true" in apiserver_flags(GATED)
    assert not any("runtime-config" in flag for flag in apiserver_flags(PLAIN))


def test_kubelets_are_held_to_their_own_node() -> None:
    flags = apiserver_flags(PLAIN)
    assert "--authorization-mode=Node,RBAC" in flags
    assert "--enable-admission-plugins=NodeRestriction" in flags


def test_nodes_differ_in_their_pods_addresses_and_cgroups() -> None:
    subnets = {str(cni_configuration(PLAIN, node)["plugins"][0]["ipam"]) for node in PLAIN.nodes}
    roots = {kubelet_configuration(PLAIN, node, "/r")["cgroupRoot"] for node in PLAIN.nodes}
    assert len(subnets) == len(roots) == 2


def test_containerd_takes_the_pause_image_of_our_own() -> None:
    configuration = tomllib.loads(containerd_configuration())
    assert configuration["plugins"]["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"] == "localhost/pause:e2e"


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("/var/lib/kubelet/plugins", "/state/nodes/node-a/kubelet/plugins"),
        ("/run/nvidia/driver", "/state/nodes/node-a/run/nvidia/driver"),
        ("/var/run/cdi", "/state/nodes/node-a/run/cdi"),
        ("/var/run", "/state/nodes/node-a/run"),
        ("/etc/cdi", "/state/nodes/node-a/cdi"),
        ("/etc/hosts", "/etc/hosts"),
        ("/running", "/running"),
    ],
)
def test_the_host_sees_a_nodes_own_directories_below_the_state(inside: str, outside: str) -> None:
    assert Node("node-a", PLAIN, Parts(PLAIN.state, PLAIN.tools)).host_path(inside) == Path(outside)


def test_directories_made_on_the_host_are_removed_and_those_in_use_stay(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    record = tmp_path / "record"
    host_directories.create([tmp_path / "there", tmp_path / "a/b/c", tmp_path / "used"], record)
    assert (tmp_path / "a/b/c").is_dir()
    (tmp_path / "used/file").touch()
    host_directories.remove(record)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["record", "there", "used"]


def test_every_v1_hierarchy_gets_the_nodes_cgroup_once(tmp_path: Path) -> None:
    (tmp_path / "cpu,cpuacct").mkdir()
    (tmp_path / "memory").mkdir()
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    cgroups.create("node-a", tmp_path)
    assert (tmp_path / "memory" / cgroups.path("node-a").lstrip("/")).is_dir()
    assert (tmp_path / "cpu,cpuacct" / cgroups.path("node-a").lstrip("/")).is_dir()
    (tmp_path / "memory" / cgroups.path("node-a").lstrip("/") / "kubepods/pod1").mkdir(parents=True)
    cgroups.remove(tmp_path)
    assert {entry.name for entry in tmp_path.rglob("*")} == {"cpu", "cpu,cpuacct", "memory"}


def test_binaries_of_another_module_lie_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build.directory(Path("/cache"))
    assert before == build.directory(Path("/cache"))
    shutil.copy(build.MODULE / "go.mod", tmp_path)
    (tmp_path / "go.sum").write_text("")
    monkeypatch.setattr(build, "MODULE", tmp_path)
    assert build.directory(Path("/cache")) != before


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl program")
def test_certificates_carry_the_names_that_kubernetes_knows_and_chain_to_the_ca(tmp_path: Path) -> None:
    settings = Settings(state=tmp_path, tools=Path("/tools"))
    pki.create(settings)

    def openssl(*arguments: str) -> str:
        return subprocess.run(["openssl", *arguments], cwd=settings.pki, check=True, capture_output=True, text=True).stdout

    for name in ("admin", "kube-apiserver", "kube-scheduler", "node-a", "node-b"):
        openssl("verify", "-x509_strict", "-CAfile", "ca.crt", f"{name}.crt")
    openssl("verify", "-CAfile", "front-proxy-ca.crt", "front-proxy-client.crt")
    node = openssl("x509", "-in", "node-a.crt", "-noout", "-subject", "-ext", "subjectAltName,basicConstraints")
    assert "O = system:nodes, CN = system:node:node-a" in node
    assert "IP Address:172.30.0.11" in node
    assert "CA:FALSE" in node
    assert "IP Address:10.96.0.1" in openssl("x509", "-in", "kube-apiserver.crt", "-noout", "-ext", "subjectAltName")
    assert settings.kubeconfig.stat().st_mode & 0o077 == 0
