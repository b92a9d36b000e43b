"""etcd and the Kubernetes servers, on a machine of their own."""

from __future__ import annotations

import json
from pathlib import Path

from e2e.cluster import network
from e2e.cluster.api import Api
from e2e.cluster.machine import Machine
from e2e.cluster.node_files import kube_proxy_configuration
from e2e.cluster.processes import Parts
from e2e.cluster.settings import SERVICES, Settings, format_switches

MACHINE = "control-plane"
PARTS = (MACHINE, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
ETCD_URL = "http://127.0.0.1:2379"


class ControlPlane:
    def __init__(self, settings: Settings, parts: Parts) -> None:
        self.settings = settings
        self.parts = parts
        self.machine = Machine(MACHINE, parts, sysctls=network.CONTROL_PLANE_SYSCTLS)

    def boot(self) -> None:
        """Make the machine and the switch that the nodes are plugged into."""
        self.machine.start()
        network.build_switch(self.machine, self.settings)

    def start(self) -> None:
        """Start all servers; returns when the API server is ready. Raises PartError."""
        self._start("etcd", etcd_flags(self.settings))
        self._start("kube-apiserver", apiserver_flags(self.settings))
        self.parts.wait("kube-apiserver", Api(self.settings).ready, needs=["etcd"])
        self._start("kube-controller-manager", controller_manager_flags(self.settings))
        self._start("kube-scheduler", scheduler_flags(self.settings))
        # kube-proxy waits for the Node object of its name, and this machine has none: it goes by the first node's.
        configuration = self.settings.state / "kube-proxy.json"
        configuration.write_text(json.dumps(kube_proxy_configuration(self.settings, self.settings.nodes[0])))
        self._start("kube-proxy", [f"--config={configuration}"])

    def _start(self, name: str, flags: list[str]) -> None:
        self.machine.start_part(name, [str(self.settings.tools / name), *flags])


def etcd_flags(settings: Settings) -> list[str]:
    return [
        f"--data-dir={settings.state / 'etcd'}",
        f"--listen-client-urls={ETCD_URL}",
        f"--advertise-client-urls={ETCD_URL}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=default=http://127.0.0.1:2380",
        "--unsafe-no-fsync",  # a cluster of minutes need not survive a power failure
    ]


def apiserver_flags(settings: Settings) -> list[str]:
    pki = settings.pki
    flags = [
        f"--etcd-servers={ETCD_URL}",
        f"--advertise-address={settings.control_plane_address}",
        "--secure-port=6443",
        f"--service-cluster-ip-range={SERVICES}",
        f"--tls-cert-file={pki / 'kube-apiserver.crt'}",
        f"--tls-private-key-file={pki / 'kube-apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={pki / 'kube-apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kube-apiserver-kubelet-client.key'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        # The aggregation layer. Without it, controller manager and scheduler log a missing CA bundle for ever.
        f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki / 'front-proxy-client.crt'}",
        f"--proxy-client-key-file={pki / 'front-proxy-client.key'}",
        *_feature_gates(settings),
    ]
    if settings.runtime_config:
        flags.append(f"--runtime-config={format_switches(dict(settings.runtime_config))}")
    return flags


def controller_manager_flags(settings: Settings) -> list[str]:
    pki = settings.pki
    return [
        *_client_flags(pki / "kube-controller-manager.kubeconfig"),
        f"--service-account-private-key-file={pki / 'sa.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        "--use-service-account-credentials=true",
        "--controllers=*",
        "--kube-api-qps=500",  # the default 20 makes tests with many claims wait
        "--kube-api-burst=1000",
        *_feature_gates(settings),
    ]


def scheduler_flags(settings: Settings) -> list[str]:
    return [*_client_flags(settings.pki / "kube-scheduler.kubeconfig"), *_feature_gates(settings)]


def _client_flags(kubeconfig: Path) -> list[str]:
    flags = [f"--{use}kubeconfig={kubeconfig}" for use in ("", "authentication-", "authorization-")]
    return [*flags, "--leader-elect=false"]


def _feature_gates(settings: Settings) -> list[str]:
    return [f"--feature-gates={format_switches(dict(settings.feature_gates))}"] if settings.feature_gates else []
