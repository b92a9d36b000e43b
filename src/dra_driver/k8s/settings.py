"""How an admin tells a program which API server to use: the same settings for every program."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from dra_driver.daemon.settings import Settings
from dra_driver.k8s import config

_KUBECONFIG = "kubeconfig file; without it and --api-server the pod's service account is used, outside of a pod ~/.kube/config"


class ApiServerSettings(Settings):
    """An address with files, a kubeconfig, or the pod's own service account."""

    kubeconfig: str = Field(default="", description=_KUBECONFIG)
    api_server: str = Field(default="", description="address of the API server, such as https://10.0.0.1:6443")
    ca_file: Path | None = Field(default=None, description="file with the CA certificates that the API server's certificate is checked against")
    token_file: Path | None = Field(default=None, description="file with the bearer token; it is read again when it changes")

    @model_validator(mode="after")
    def _one_way(self) -> ApiServerSettings:
        if self.api_server and self.kubeconfig:
            raise ValueError("--api-server and --kubeconfig are two ways to the API server; give one of them")
        if (self.ca_file or self.token_file) and not self.api_server:
            raise ValueError("--ca-file and --token-file belong to --api-server; give its address too")
        return self

    def connection(self) -> config.Connection:
        """The connection that the settings mean. SettingsError when a file cannot be used."""
        return config.find(server=self.api_server, ca_file=self.ca_file, token_file=self.token_file, kubeconfig_path=self.kubeconfig)
