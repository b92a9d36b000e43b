"""What a cluster is made of: its nodes, gates and addresses, and where its state lies.

`Settings` is written into the state directory before anything else happens there, so that every later command knows what was started,
and so that only a directory which carries it is ever deleted.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from dra_driver.errors import HostError, SettingsError

DEFAULT_STATE = Path("/var/lib/dra-driver-e2e")
DEFAULT_NODES = ("node-a", "node-b")
DEFAULT_NETWORK = IPv4Network("172.30.0.0/24")
SERVICES = IPv4Network("10.96.0.0/16")
PODS = IPv4Network("10.88.0.0/16")  # node number i has 10.88.i.0/24
FIRST_NODE = 11  # host number of the first node in the network: .1 is this host, .10 the control plane
MAX_NODES = 200

_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")


def default_cache() -> Path:
    """Where binaries are kept between clusters: `$XDG_CACHE_HOME/dra-driver-e2e`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dra-driver-e2e"


def parse_nodes(text: str) -> tuple[str, ...]:
    """`node-a,node-b` as node names. Raises SettingsError."""
    names = tuple(text.split(","))
    for name in names:
        if not _NODE_NAME.fullmatch(name):
            raise SettingsError(
                f"--nodes: {name!r} is not a node name; allowed are up to 42 of a-z, 0-9 and '-', with a letter or digit at both ends"
            )
    if len(set(names)) < len(names):
        raise SettingsError(f"--nodes: {text!r} names a node twice")
    if "control-plane" in names:
        raise SettingsError("--nodes: 'control-plane' is the name of the control plane's own namespaces; choose another")
    if len(names) > MAX_NODES:
        raise SettingsError(f"--nodes: {len(names)} nodes, at most {MAX_NODES} have an address")
    return names


def parse_network(text: str) -> IPv4Network:
    """`172.30.0.0/24` as the network of host and machines. Raises SettingsError."""
    try:
        network = IPv4Network(text)
    except ValueError as error:
        raise SettingsError(f"--network: {error}; an example is {DEFAULT_NETWORK}") from error
    if network.prefixlen != 24:
        raise SettingsError(f"--network: {network} is not a /24; an example is {DEFAULT_NETWORK}")
    for use, other in (("pods", PODS), ("Services", SERVICES)):
        if network.overlaps(other):
            raise SettingsError(f"--network: {network} overlaps {other}, which is for {use} inside the cluster")
    return network


def parse_switches(option: str, text: str) -> dict[str, bool]:
    """`A=true,B=false` as a dictionary, for feature gates and runtime-config. Raises SettingsError."""
    switches = {}
    for item in filter(None, text.split(",")):
        name, separator, value = item.partition("=")
        if not name or not separator or value not in {"true", "false"}:
            raise SettingsError(f"{option}: {item!r} is not NAME=true or NAME=false")
        switches[name] = value == "true"
    return switches


def format_switches(switches: dict[str, bool]) -> str:
    """The form that Kubernetes programs take on their command line."""
    return ",".join(f"{name}={str(value).lower()}" for name, value in switches.items())


def check_ours(state: Path) -> None:
    """Raises SettingsError where the directory holds anything but a cluster's state: it is deleted in the end."""
    if state.exists() and any(state.iterdir()) and not (state / "settings.json").exists():
        raise SettingsError(f"--state: {state} is not empty and not the state of a cluster; name another directory")


@dataclass(frozen=True)
class Settings:
    """One cluster. Two with equal settings are the same cluster."""

    state: Path
    tools: Path
    nodes: tuple[str, ...] = DEFAULT_NODES
    feature_gates: tuple[tuple[str, bool], ...] = ()
    runtime_config: tuple[tuple[str, bool], ...] = ()
    network: IPv4Network = DEFAULT_NETWORK

    @property
    def file(self) -> Path:
        return self.state / "settings.json"

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def log(self) -> Path:
        return self.state / "log"

    @property
    def made_directories(self) -> Path:
        return self.state / "made-directories"

    @property
    def images(self) -> Path:
        return self.state / "images.tar"

    @property
    def kubeconfig(self) -> Path:
        return self.pki / "admin.kubeconfig"

    @property
    def host_address(self) -> IPv4Address:
        return self.network[1]

    @property
    def control_plane_address(self) -> IPv4Address:
        return self.network[10]

    @property
    def server(self) -> str:
        return f"https://{self.control_plane_address}:6443"

    def node_address(self, name: str) -> IPv4Address:
        return self.network[FIRST_NODE + self.nodes.index(name)]

    def node_pods(self, name: str) -> IPv4Network:
        """The subnet that the node's pods get their addresses from."""
        return list(PODS.subnets(new_prefix=24))[1 + self.nodes.index(name)]

    def save(self) -> None:
        """Claim the state directory. Raises SettingsError where it holds something else, HostError where it cannot carry device nodes."""
        check_ours(self.state)
        self.state.mkdir(parents=True, exist_ok=True)
        if os.statvfs(self.state).f_flag & os.ST_NODEV:
            raise HostError(f"{self.state} is mounted nodev, so no device node would work on the nodes; name another directory with --state")
        self.file.write_text(
            json.dumps(
                {
                    "tools": str(self.tools),
                    "nodes": self.nodes,
                    "featureGates": dict(self.feature_gates),
                    "runtimeConfig": dict(self.runtime_config),
                    "network": str(self.network),
                },
                indent=2,
            )
        )

    @classmethod
    def load(cls, state: Path) -> Settings:
        """The settings of the cluster whose state lies in `state`. Raises SettingsError where there is none."""
        try:
            saved = json.loads((state / "settings.json").read_text())
        except FileNotFoundError:
            raise SettingsError(f"there is no cluster in {state}: start one with `python -m e2e.cluster up --state {state}`") from None
        except json.JSONDecodeError as error:
            raise SettingsError(f"{state / 'settings.json'} is not complete; `python -m e2e.cluster down --state {state}` removes it") from error
        return cls(
            state=state,
            tools=Path(saved["tools"]),
            nodes=tuple(saved["nodes"]),
            feature_gates=tuple(saved["featureGates"].items()),
            runtime_config=tuple(saved["runtimeConfig"].items()),
            network=IPv4Network(saved["network"]),
        )
