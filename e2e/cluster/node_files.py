"""The configuration files of a node, as values. JSON serves wherever Kubernetes reads YAML."""

from __future__ import annotations

import json
from typing import Any

from e2e.cluster import cgroups
from e2e.cluster.images import PAUSE
from e2e.cluster.requirements import CNI_DIRECTORIES
from e2e.cluster.settings import PODS, Settings


def containerd_configuration() -> str:
    """TOML, version 3 of containerd 2. CDI is on by itself and reads /etc/cdi and /var/run/cdi."""
    plugins = json.dumps([str(directory) for directory in CNI_DIRECTORIES])
    return f"""\
version = 3

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true  # lowering one needs CAP_SYS_RESOURCE, which root of a sandbox lacks
cni.bin_dirs = {plugins}
containerd.runtimes.runc.runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE}"
"""


def cni_configuration(settings: Settings, node: str) -> dict[str, Any]:
    addresses = {"type": "host-local", "ranges": [[{"subnet": str(settings.node_pods(node))}]]}
    return {
        "cniVersion": "1.0.0",
        "name": "e2e",
        "plugins": [
            # A pod reaches Services through its default gateway, and itself through its Service by hairpin mode.
            {"type": "bridge", "bridge": "cni0", "isDefaultGateway": True, "hairpinMode": True, "ipam": addresses},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet_configuration(settings: Settings, node: str, resolver: str) -> dict[str, Any]:
    """`resolver` is the node's resolv.conf."""
    pki = settings.pki
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": str(pki / "ca.crt")}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki / f"{node}.crt"),
        "tlsPrivateKeyFile": str(pki / f"{node}.key"),
        "clusterDomain": "cluster.local",
        "resolvConf": resolver,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroups.path(node),
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,  # lowering it needs CAP_SYS_RESOURCE
        # The disk is the host's; a test cluster does not clean it up.
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "50Mi"},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "4s",
        "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},  # tests kill programs often
        "featureGates": dict(settings.feature_gates),
    }


def kube_proxy_configuration(settings: Settings, node: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": str(PODS),
        "hostnameOverride": node,
        "clientConnection": {"kubeconfig": str(settings.pki / "kube-proxy.kubeconfig")},
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},  # the host's, not a namespace's to set
        "oomScoreAdj": 0,
    }
