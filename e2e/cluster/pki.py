"""The cluster's certificates: a CA of its own, and for every component a client certificate of its own, as kubeadm lays them out.

The user and groups of a certificate are its CN and O; RBAC's built-in bindings and the Node authorizer know them by these names.
Private keys are EC P-256, written by the openssl program.
"""

from __future__ import annotations

import base64
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dra_driver.errors import HostError
from e2e.cluster.settings import SERVICES, Settings

DAYS = "365"
KUBECONFIGS = ("admin", "kube-controller-manager", "kube-scheduler", "kube-proxy")  # and each node
# Without a configuration of our own, openssl adds the host's default extensions to every certificate.
OPENSSL_CONFIGURATION = "[req]\ndistinguished_name = subject\n[subject]\n"

_AUTHORITY = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign", "subjectKeyIdentifier=hash")
_LEAF = ("basicConstraints=CA:FALSE", "keyUsage=critical,digitalSignature", "extendedKeyUsage=clientAuth,serverAuth")


def create(settings: Settings) -> None:
    """Write all keys, certificates and kubeconfigs into `settings.pki`. Raises HostError."""
    pki = settings.pki
    pki.mkdir(mode=0o700)
    (pki / "openssl.cnf").write_text(OPENSSL_CONFIGURATION)
    server_names = ["DNS:localhost", f"IP:{SERVICES[1]}", f"IP:{settings.control_plane_address}", "IP:127.0.0.1"]
    server_names += [f"DNS:kubernetes{suffix}" for suffix in ("", ".default", ".default.svc", ".default.svc.cluster.local")]
    leaves: dict[str, tuple[str, list[str], str]] = {
        "kube-apiserver": ("/CN=kube-apiserver", server_names, "ca"),
        "kube-apiserver-kubelet-client": ("/O=system:masters/CN=kube-apiserver-kubelet-client", [], "ca"),
        "front-proxy-client": ("/CN=front-proxy-client", [], "front-proxy-ca"),
        "admin": ("/O=system:masters/CN=admin", [], "ca"),
        **{name: (f"/CN=system:{name}", [], "ca") for name in KUBECONFIGS[1:]},
        **{node: (f"/O=system:nodes/CN=system:node:{node}", [f"DNS:{node}", f"IP:{settings.node_address(node)}"], "ca") for node in settings.nodes},
    }
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: _certificate(pki, name, f"/CN=e2e-{name}", _AUTHORITY), ("ca", "front-proxy-ca")))
        list(pool.map(lambda leaf: _signed(pki, leaf[0], *leaf[1]), leaves.items()))
    # The key pair of ServiceAccount tokens.
    _openssl(pki, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "sa.key")
    _openssl(pki, "pkey", "-in", "sa.key", "-pubout", "-out", "sa.pub")
    for name in (*KUBECONFIGS, *settings.nodes):
        path = pki / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(kubeconfig(settings.server, name, *(_read(pki, file) for file in ("ca.crt", f"{name}.crt", f"{name}.key")))))


def kubeconfig(server: str, user: str, authority: bytes, certificate: bytes, key: bytes) -> dict[str, Any]:
    """A kubeconfig that needs no other file. JSON is YAML, so every reader of kubeconfigs takes it."""
    authority_data, certificate_data, key_data = (base64.b64encode(pem).decode() for pem in (authority, certificate, key))
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": {"server": server, "certificate-authority-data": authority_data}}],
        "users": [{"name": user, "user": {"client-certificate-data": certificate_data, "client-key-data": key_data}}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user}}],
        "current-context": "e2e",
    }


def _read(pki: Path, name: str) -> bytes:
    return (pki / name).read_bytes()


def _signed(pki: Path, name: str, subject: str, alternative_names: list[str], authority: str) -> None:
    extensions = [*_LEAF, *([f"subjectAltName={','.join(alternative_names)}"] if alternative_names else [])]
    _certificate(pki, name, subject, extensions, "-CA", f"{authority}.crt", "-CAkey", f"{authority}.key")


def _certificate(pki: Path, name: str, subject: str, extensions: tuple[str, ...] | list[str], *authority: str) -> None:
    """A new key and its certificate; self-signed without an `authority`."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout", f"{name}.key")
    added = [word for extension in extensions for word in ("-addext", extension)]
    _openssl(pki, "req", "-x509", "-config", "openssl.cnf", *key, "-subj", subject, "-days", DAYS, *added, *authority, "-out", f"{name}.crt")


def _openssl(pki: Path, *arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], cwd=pki, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HostError(f"openssl {' '.join(arguments)} failed in {pki} with status {done.returncode}: {done.stderr.strip()}")
