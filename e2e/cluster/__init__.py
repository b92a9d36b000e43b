"""A real Kubernetes cluster on this machine, without containers around it, an image registry or a virtual machine.

Every component is a process of the host, started from binaries that `build` compiles. The control plane and each node are *machines*: a
network, mount, pid and uts namespace whose pid 1 is ours (`machine`). The control plane's network namespace holds the bridge that joins
all machines. Namespaces, mounts and network devices have no life of their own: they hang on the processes, so whoever ends those has cleaned up.

Proved on cgroup v1 (also in its hybrid form with v2). Hosts with systemd and cgroup v2 are best effort: the controllers are enabled in a
subtree of our own, and pods are placed there without asking systemd (`cgroups`).

    from e2e.cluster import Cluster

    cluster = Cluster.load()
    cluster.kubectl("get", "nodes")
    cluster.node("node-a").exec(["ctr", "-n", "k8s.io", "images", "ls"])
"""

from __future__ import annotations

from e2e.cluster.cluster import Cluster
from e2e.cluster.node import Node
from e2e.cluster.processes import PartError
from e2e.cluster.settings import Settings

__all__ = ["Cluster", "Node", "PartError", "Settings"]
