"""Ways to the API server, and tokens that change on the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dra_driver.errors import ApiDeniedError, SettingsError
from dra_driver.k8s import config
from dra_driver.k8s.client import Client
from dra_driver.k8s.config import Connection, TokenFile
from dra_driver.k8s.objects.core import NODES
from dra_driver.sandbox.apiserver import ApiServer


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    found = tmp_path / "token"
    found.write_text("first\n")
    return found


def test_a_new_token_is_used_as_soon_as_it_is_written(api: ApiServer, token_file: Path) -> None:
    client = Client(config.explicit(api.url, token_file=token_file), "test")
    api.tokens = {"first"}
    client.list(NODES)
    token_file.write_text("a second one\n")
    api.tokens = {"a second one"}
    client.list(NODES)
    assert len(api.requests()) == 2
    client.close()


def test_a_401_makes_the_client_read_the_token_again(api: ApiServer, token_file: Path) -> None:
    client = Client(config.explicit(api.url, token_file=token_file), "test")
    api.tokens = {"first"}
    client.list(NODES)
    before = token_file.stat()
    with token_file.open("r+") as file:
        file.write("secnd")
    os.utime(token_file, ns=(before.st_atime_ns, before.st_mtime_ns))
    api.tokens = {"secnd"}
    client.list(NODES)
    assert len(api.requests()) == 3
    api.tokens = {"another"}
    with pytest.raises(ApiDeniedError, match="Unauthorized"):
        client.list(NODES)
    with pytest.raises(ApiDeniedError):
        client.watch(NODES, "1")
    client.close()


def test_a_token_that_vanishes_stays_in_use(token_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    token = TokenFile(token_file)
    token_file.unlink()
    assert token.header() == "Bearer first"
    assert "last token stays in use" in caplog.text


def test_a_pod_finds_its_service_account(tmp_path: Path) -> None:
    for name, content in (("token", "secret"), ("ca.crt", "PEM"), ("namespace", "gpu-system\n")):
        (tmp_path / name).write_text(content)
    found = config.in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path)
    assert found.server == "https://[fd00::1]:443"
    assert found.namespace == "gpu-system"
    assert found.ca_file == tmp_path / "ca.crt"
    assert found.credentials
    assert found.credentials.header() == "Bearer secret"


def test_outside_of_a_pod_there_is_no_service_account(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"):
        config.in_cluster({}, tmp_path)


@pytest.mark.parametrize("server", ["", "localhost:8080", "ftp://x", "https://", "https://[::1", "https://x:99999", "https://x:no"])
def test_an_address_needs_scheme_and_host(server: str) -> None:
    with pytest.raises(SettingsError, match="need http"):
        Connection(server)


def test_bad_files_are_named(tmp_path: Path) -> None:
    missing, empty = tmp_path / "missing", tmp_path / "empty"
    empty.write_text("")
    with pytest.raises(SettingsError, match=f"CA file {missing} of API server https://x: .*No such file"):
        Client(config.explicit("https://x", ca_file=missing), "test")
    with pytest.raises(SettingsError, match=f"CA file {empty} of API server https://x"):
        Client(config.explicit("https://x", ca_file=empty), "test")
    with pytest.raises(SettingsError, match=f"token file {missing}: .*No such file"):
        config.explicit("https://x", token_file=missing)
    with pytest.raises(SettingsError, match=f"token file {empty}: is empty"):
        config.explicit("https://x", token_file=empty)
    with pytest.raises(SettingsError, match=f"client certificate {empty}"):
        Client(Connection("https://x", client_certificate=empty, client_key=empty), "test")


def write_kubeconfig(path: Path, server: str, user: str) -> str:
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: one\n"
        f"clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n"
        f"users: [{{name: u, user: {user}}}]\n"
        "contexts: [{name: one, context: {cluster: c, user: u, namespace: team}}, {name: two, context: {cluster: c, user: u}}]\n"
    )
    return str(path)


def test_a_kubeconfig_gives_address_token_and_namespace(api: ApiServer, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", api.url, "{token: secret}")
    api.tokens = {"secret"}
    found = config.kubeconfig(path)
    assert found.namespace == "team"
    assert config.kubeconfig(path, "two").namespace == "default"
    client = Client(found, "test")
    client.list(NODES)
    client.close()


def test_a_kubeconfig_may_run_a_program_for_the_token(api: ApiServer, tmp_path: Path) -> None:
    program = tmp_path / "plugin"
    answer = '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "from-program"}}'
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    user = f"{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {program}, interactiveMode: Never}}}}"
    api.tokens = {"from-program"}
    client = Client(config.kubeconfig(write_kubeconfig(tmp_path / "config", api.url, user)), "test")
    client.list(NODES)
    client.close()


def test_a_bad_kubeconfig_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(SettingsError, match=rf"kubeconfig {missing}: there is no such file"):
        config.kubeconfig(str(missing))
    path = write_kubeconfig(tmp_path / "config", "https://x", "{token: x}")
    with pytest.raises(SettingsError, match=rf"kubeconfig {path}, context three: "):
        config.kubeconfig(path, "three")


def test_what_is_given_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SettingsError, match=r"no API server: give --api-server \(API_SERVER\) or --kubeconfig"):
        config.find()
    path = write_kubeconfig(tmp_path / "config", "https://from-file", "{token: x}")
    monkeypatch.setenv("KUBECONFIG", path)
    assert config.find(server="https://given").server == "https://given"
    assert config.find().server == "https://from-file"


def test_the_client_imports_nothing_that_is_heavy() -> None:
    code = (
        "import sys, dra_driver.k8s.client, dra_driver.k8s.reflector\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'kubernetes', 'pydantic', 'pydantic_settings', 'rich', 'typer', 'requests', 'urllib3', 'yaml'}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip() == ""
