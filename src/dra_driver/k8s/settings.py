"""How an admin tells a program which API server to use: the same settings for every program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dra_driver.daemon.settings import Settings, setting
from dra_driver.k8s import config

_KUBECONFIG = "kubeconfig file; without it and --api-server the pod's service account is used, outside of a pod ~/.kube/config"


@dataclass(frozen=True, kw_only=True)
class ApiServerSettings(Settings):
    """An address with files, a kubeconfig, or the pod's own service account."""

    kubeconfig: str = setting(_KUBECONFIG, str, "")
    api_server: str = setting("address of the API server, such as https://10.0.0.1:6443", str, "")
    ca_file: Path | None = setting("file with the CA certificates that the API server's certificate is checked against", Path, None)
    token_file: Path | None = setting("file with the bearer token; it is read again when it changes", Path, None)

    def __post_init__(self) -> None:
        if self.api_server and self.kubeconfig:
            raise ValueError("--api-server and --kubeconfig are two ways to the API server; give one of them")
        if (self.ca_file or self.token_file) and not self.api_server:
            raise ValueError("--ca-file and --token-file belong to --api-server; give its address too")

    def connection(self) -> config.Connection:
        """The connection that the settings mean. SettingsError when a file cannot be used."""
        return config.find(server=self.api_server, ca_file=self.ca_file, token_file=self.token_file, kubeconfig_path=self.kubeconfig)
