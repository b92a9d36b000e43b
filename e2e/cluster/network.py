"""The network between the machines.

The control plane's namespace holds a bridge, which carries its address and one port for every node and for this host:

    host  dra-e2e .1 ──┐
    control plane br0 .10, ports host, node11, node12 ...
    node-a  eth0 .11 ──┤   pods 10.88.1.0/24 behind cni0
    node-b  eth0 .12 ──┘   pods 10.88.2.0/24

Static routes lead to each node's pods. Services are translated by kube-proxy on every machine, the control plane too, since
the API server dials webhooks there. Everything but the host's end of its cable vanishes with the machines.
"""

from __future__ import annotations

import json
import subprocess
from ipaddress import IPv4Network
from pathlib import Path

from dra_driver.errors import HostError
from e2e.cluster.machine import Machine
from e2e.cluster.settings import Settings

HOST_DEVICE = "dra-e2e"
# On a node, packets between two pods of one bridge pass kube-proxy's rules too; on the control plane's bridge they must not.
NODE_SYSCTLS = {"net/ipv4/ip_forward": "1", "net/bridge/bridge-nf-call-iptables": "1"}
CONTROL_PLANE_SYSCTLS = {"net/ipv4/ip_forward": "1", "net/bridge/bridge-nf-call-iptables": "0"}


def prepare_host(settings: Settings) -> None:
    """Load the bridge filter, where it is a module, and see that the network is free. Raises HostError."""
    if not Path("/proc/sys/net/bridge").exists():
        subprocess.run(["modprobe", "br_netfilter"], check=False, capture_output=True)
    routes = json.loads(_ip(["-json", "-4", "route", "show"]) or "[]")
    for route in routes:
        if route["dst"] != "default" and IPv4Network(route["dst"]).overlaps(settings.network):
            raise HostError(
                f"the cluster's network {settings.network} overlaps this host's route {route['dst']} dev {route.get('dev', '?')}; "
                "choose a free one with --network, such as 172.31.77.0/24"
            )


def build_switch(control_plane: Machine, settings: Settings) -> None:
    """Make the bridge with the control plane's address, and plug in this host."""
    prefix = settings.network.prefixlen
    _ip(["link", "add", HOST_DEVICE, "type", "veth", "peer", "name", "host", "netns", str(control_plane.pid)])
    _ip(["addr", "add", f"{settings.host_address}/{prefix}", "dev", HOST_DEVICE])
    _ip(["link", "set", HOST_DEVICE, "up"])
    _ip_inside(
        control_plane,
        "link set lo up",
        "link add br0 type bridge",
        f"addr add {settings.control_plane_address}/{prefix} dev br0",
        "link set br0 up",
        "link set host master br0 up",
        *_routes(settings, settings.nodes),
    )


def plug_in(node: Machine, control_plane: Machine, settings: Settings) -> None:
    """Join a node to the bridge."""
    address = settings.node_address(node.name)
    port = f"node{int(address) - int(settings.network.network_address)}"
    _ip(["link", "add", "eth0", "netns", str(node.pid), "type", "veth", "peer", "name", port, "netns", str(control_plane.pid)])
    _ip_inside(control_plane, f"link set {port} master br0 up")
    others = tuple(name for name in settings.nodes if name != node.name)
    _ip_inside(node, "link set lo up", f"addr add {address}/{settings.network.prefixlen} dev eth0", "link set eth0 up", *_routes(settings, others))


def unplug_host() -> None:
    """Remove the host's end. It would go with the control plane, but only when the kernel gets round to it."""
    subprocess.run(["ip", "link", "delete", HOST_DEVICE], check=False, capture_output=True)


def _routes(settings: Settings, nodes: tuple[str, ...]) -> list[str]:
    # The default route leads nowhere, but without one a process cannot even send to a Service's address, before that is translated.
    default = f"route add default via {settings.host_address}"
    return [default, *(f"route add {settings.node_pods(name)} via {settings.node_address(name)}" for name in nodes)]


def _ip(arguments: list[str], stdin: str = "") -> str:
    done = subprocess.run(["ip", *arguments], input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HostError(f"`ip {' '.join(arguments)}` failed with status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _ip_inside(machine: Machine, *commands: str) -> None:
    done = machine.exec(["ip", "-batch", "-"], stdin="\n".join(commands))
    if done.returncode:
        raise HostError(f"`ip -batch` failed in {machine.name}'s namespace with status {done.returncode}: {done.stderr.strip()}")
