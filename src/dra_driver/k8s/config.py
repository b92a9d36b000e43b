"""How to reach the API server: address, trust and credentials.

Three ways lead to a `Connection`: the service account of a pod, an explicit address with files, or a kubeconfig. Only the last one imports the
official `kubernetes` package, which knows exec plugins and OIDC; it costs 14 MiB, so nothing else here touches it.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from dra_driver.errors import SettingsError

log = logging.getLogger(__name__)

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Credentials(Protocol):
    """Where the Authorization header comes from. Thread-safe."""

    def header(self) -> str:
        """The current value, "" for none."""
        ...

    def renew(self) -> None:
        """The server answered 401: the next `header` must not come from a cache."""
        ...


class Connection(msgspec.Struct, frozen=True):
    """All that a client needs. `server` may have a path (a proxy in front of clusters); `namespace` is the one to use where a person names none."""

    server: str
    credentials: Credentials | None = None
    ca_file: Path | None = None
    client_certificate: Path | None = None
    client_key: Path | None = None
    verify: bool = True
    tls_server_name: str = ""
    proxy: str = ""
    namespace: str = "default"

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.server)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # brackets, or a port out of range
            usable = False
        if not usable:
            raise SettingsError(f"API server address {self.server!r}: need http(s)://host[:port], for example https://10.96.0.1:443")

    def ssl_context(self) -> ssl.SSLContext | None:
        """None for http. Raises SettingsError when a certificate file cannot be used."""
        if not self.server.startswith("https:"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"CA file {self.ca_file} of API server {self.server}: {error}; need a readable file of PEM certificates") from error
        # Many clusters' CAs lack the extensions that Python 3.13's default insists on.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.client_certificate:
            try:
                context.load_cert_chain(self.client_certificate, self.client_key)
            except (OSError, ssl.SSLError) as error:
                raise SettingsError(
                    f"client certificate {self.client_certificate}, key {self.client_key}: {error}; need a matching PEM pair"
                ) from error
        return context


class TokenFile:
    """A bearer token that someone else rotates, as the kubelet does. Read again when the file has changed and after a 401.

    Raises SettingsError when there is no token at the start; a file that vanishes later leaves the last token in use.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._token = ""
        self._read()

    def header(self) -> str:
        """`Bearer …` with the newest token."""
        with self._lock:
            try:
                if self._stamp() != self._seen:
                    self._read()
            except (OSError, SettingsError) as error:
                log.warning("token file unreadable, last token stays in use", extra={"path": str(self._path), "error": str(error)})
            return f"Bearer {self._token}"

    def renew(self) -> None:
        """Forgets what was read."""
        with self._lock:
            self._seen = None

    def _stamp(self) -> tuple[int, int, int]:
        found = self._path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> None:
        try:
            stamp = self._stamp()
            token = self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"token file {self._path}: {error}; need a readable file with one bearer token") from error
        if not token:
            raise SettingsError(f"token file {self._path}: is empty, need a bearer token")
        self._token, self._seen = token, stamp


def in_cluster(environ: Mapping[str, str] = os.environ, directory: Path = SERVICE_ACCOUNT_DIRECTORY) -> Connection:
    """The service account of this pod. Raises SettingsError outside of a pod."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise SettingsError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: not in a pod; give a server address or a kubeconfig")
    namespace_file = directory / "namespace"
    return explicit(
        f"https://{f'[{host}]' if ':' in host else host}:{port}",
        ca_file=directory / "ca.crt",
        token_file=directory / "token",
        namespace=namespace_file.read_text(encoding="utf-8").strip() if namespace_file.exists() else "default",
    )


def explicit(server: str, *, ca_file: Path | None = None, token_file: Path | None = None, namespace: str = "default") -> Connection:
    """An address with files. Without `ca_file` the system's certificates are trusted."""
    return Connection(server.rstrip("/"), TokenFile(token_file) if token_file else None, ca_file, namespace=namespace)


def kubeconfig(path: str = "", context: str = "") -> Connection:
    """The current context, or `context`, of a kubeconfig; `path` may be a list as in KUBECONFIG, "" is the user's own."""
    from kubernetes import config as official  # noqa: PLC0415 - heavy, and only for people's commands
    from kubernetes.client import Configuration  # noqa: PLC0415

    # The package looks at KUBECONFIG only once, when it is imported.
    path = path or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if not any(Path(one).expanduser().exists() for one in path.split(os.pathsep)):
        raise SettingsError(f"kubeconfig {path}: there is no such file; give another one by --kubeconfig (KUBECONFIG)")
    configuration = Configuration()
    try:
        official.load_kube_config(path, context or None, configuration)
        contexts, current = official.list_kube_config_contexts(path)
    except Exception as error:  # YAML, base64, exec plugins and the package's own errors have no common base
        where = f"kubeconfig {path}, context {context or '(current)'}"
        raise SettingsError(f"{where}: {error}; check with `kubectl config view`") from error
    chosen = next((one for one in contexts if one["name"] == context), current)
    return Connection(
        configuration.host.rstrip("/"),
        _KubeconfigCredentials(configuration),
        Path(configuration.ssl_ca_cert) if configuration.ssl_ca_cert else None,
        Path(configuration.cert_file) if configuration.cert_file else None,
        Path(configuration.key_file) if configuration.key_file else None,
        verify=configuration.verify_ssl,
        tls_server_name=configuration.tls_server_name or "",
        proxy=configuration.proxy or "",
        namespace=chosen["context"].get("namespace") or "default",
    )


class _KubeconfigCredentials:
    """The package's own refreshing; it is not thread-safe."""

    def __init__(self, configuration: Any) -> None:
        self._configuration = configuration
        self._lock = threading.Lock()

    def header(self) -> str:
        with self._lock:
            return self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization") or ""

    def renew(self) -> None:
        """The package looks at the expiry by itself."""


def find(
    *, server: str = "", ca_file: Path | None = None, token_file: Path | None = None, kubeconfig_path: str = "", context: str = ""
) -> Connection:
    """What is given wins: an address, then a kubeconfig (also by KUBECONFIG), then the pod's service account, then the user's own."""
    if server:
        return explicit(server, ca_file=ca_file, token_file=token_file)
    if kubeconfig_path or context or os.environ.get("KUBECONFIG"):
        return kubeconfig(kubeconfig_path, context)
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return in_cluster()
    if (Path.home() / ".kube" / "config").exists():
        return kubeconfig()
    raise SettingsError("no API server: give --api-server (API_SERVER) or --kubeconfig (KUBECONFIG), or run in a pod with a service account")
