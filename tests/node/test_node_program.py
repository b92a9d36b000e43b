"""The node program as a process: settings, exit status, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import NODES, Node
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import RESOURCE_SLICES
from dra_driver.sandbox.apiserver import ApiServer

PROGRAM = [str(Path(sys.executable).with_name("dra-driver")), "node"]


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="dra") as directory:
        yield Path(directory)


def flags(short: Path, **changes: str | None) -> list[str]:
    values: dict[str, str | None] = {
        "node-name": "node-a",
        "driver-root": str(short / "root"),
        "plugin-dir": str(short / "plugin"),
        "registry-dir": str(short / "registry"),
        "cdi-dir": str(short / "cdi"),
        "pod-resources-socket": str(short / "pod-resources.sock"),
        "api-server": "http://127.0.0.1:1",
        "metrics-port": "0",
        "simulate": "h100-sxm-80gb",
    }
    values |= {name.replace("_", "-"): value for name, value in changes.items()}
    return [f"--{name}={value}" for name, value in values.items() if value is not None]


def run(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=60, env={**inherited, **environment})


@pytest.mark.parametrize(
    ("changes", "status", "told"),
    [
        pytest.param({"node_name": None}, 2, "--node-name (NODE_NAME): is required", id="a required setting"),
        pytest.param({"node_name": "Bad_Name"}, 2, "--node-name (NODE_NAME): must be the name of a Node", id="node name"),
        pytest.param({"nonsense": "1"}, 2, "unknown setting --nonsense=1", id="unknown flag"),
        pytest.param({"plugin_dir": "relative"}, 2, "--plugin-dir (PLUGIN_DIR): must be an absolute path, found 'relative'", id="relative path"),
        pytest.param({"dra_versions": "v2.DRAPlugin"}, 2, "must be a comma-separated list of v1.DRAPlugin and v1beta1.DRAPlugin", id="versions"),
        pytest.param({"dra_versions": "v1.DRAPlugin,v1.DRAPlugin"}, 2, "each once, found", id="a version twice"),
        pytest.param({"log_level": "loud"}, 2, "--log-level (LOG_LEVEL)", id="log level"),
        pytest.param({"simulate": "h200"}, 2, "h100-sxm-80gb", id="unknown profile names the known ones"),
        pytest.param({"simulate_gpus": "many"}, 2, "--simulate-gpus (SIMULATE_GPUS)", id="no number"),
        pytest.param({"simulate_numbers": "4096:1"}, 2, "--simulate-numbers (SIMULATE_NUMBERS): must be MAJOR:MINOR", id="no device numbers"),
        pytest.param({"api_server": "https://[::1"}, 2, "need http(s)://host[:port]", id="malformed address"),
        pytest.param({"api_server": "https://h:99999"}, 2, "need http(s)://host[:port]", id="port out of range"),
        pytest.param({"kubeconfig": "/nowhere"}, 2, "give one of them", id="two ways to the API server"),
        pytest.param({"api_server": None, "token_file": "/nowhere"}, 2, "belong to --api-server", id="token without server"),
        pytest.param({"api_server": None, "kubeconfig": "/nowhere"}, 2, "kubeconfig /nowhere: there is no such file", id="missing kubeconfig"),
        pytest.param({"token_file": "/nowhere"}, 2, "/nowhere", id="missing token file"),
        pytest.param({"api_server": "https://127.0.0.1:1", "ca_file": "/nowhere"}, 2, "CA file /nowhere", id="missing CA file"),
        pytest.param({"registry_dir": "/nowhere"}, 1, "registry directory /nowhere: need a directory", id="missing registry directory"),
        pytest.param({"plugin_dir": "/proc/plugin"}, 1, "plugin directory /proc/plugin", id="unwritable plugin directory"),
        pytest.param({"cdi_dir": "/proc/cdi"}, 1, "CDI directory /proc/cdi", id="unwritable CDI directory"),
        pytest.param({"plugin_dir": "/tmp/" + 100 * "x"}, 1, "107 bytes at most", id="socket path too long"),
        pytest.param({"simulate": None}, 1, "found no libnvidia-ml.so.1", id="no driver"),
    ],
)
def test_bad_settings_end_it_with_a_clear_error_and_nothing_on_stdout(short: Path, changes: dict[str, str | None], status: int, told: str) -> None:
    (short / "registry").mkdir()
    (short / "root").mkdir()
    ended = run(flags(short, **changes))
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
    assert ended.returncode == status


def test_variables_are_the_second_choice(short: Path) -> None:
    ended = run(flags(short, node_name=None, registry_dir="/nowhere"), NODE_NAME="from-environment", LOG_LEVEL="error", PLUGIN_DIR="/proc/other")
    assert "registry directory /nowhere" in ended.stderr, "the flag wins over PLUGIN_DIR"
    assert '"starting"' not in ended.stderr, "LOG_LEVEL counts where no flag is given"


class Running:
    """A node program that runs; `wait_for` reads its log line by line."""

    def __init__(self, arguments: list[str]) -> None:
        self.process = subprocess.Popen([*PROGRAM, *arguments], stderr=subprocess.PIPE, text=True)
        self.lines: list[dict[str, Any]] = []

    def wait_for(self, message: str) -> dict[str, Any]:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(json.loads(line))
            if self.lines[-1]["msg"] == message:
                return self.lines[-1]
        raise AssertionError(f"{message!r} was never logged: {self.lines}")

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        assert self.process.stderr is not None
        self.lines += [json.loads(line) for line in self.process.stderr]
        self.process.stderr.close()
        return self.process.wait(30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_a_signal_while_it_waits_to_rebuild_its_journal(short: Path, number: signal.Signals) -> None:
    (short / "registry").mkdir()
    (short / "cdi").mkdir()
    annotations = {"resource.kubernetes.io/driver": "gpu.nvidia.com", "resource.kubernetes.io/claim": "ns/c", "resource.kubernetes.io/claim-uid": "u"}
    (short / "cdi" / "k8s.gpu.nvidia.com-claim_u.json").write_text(json.dumps({"annotations": annotations}))
    with ApiServer() as api:
        fault = api.fail("GET", "resourceclaims", status=403, reason="Forbidden", message="no rights", times=None)
        running = Running(flags(short, api_server=api.connection.server))
        waits = running.wait_for("the journal cannot be rebuilt yet, the API server does not tell of a claim")
        assert "no rights" in waits["error"]
        assert fault.hit.wait(10)
        assert running.end(number) == 0
    assert running.lines[-1]["msg"] == "stopping"
    assert not list(short.rglob("*.sock"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_publishes_and_ends_with_a_signal(short: Path, number: signal.Signals) -> None:
    (short / "registry").mkdir()
    with ApiServer() as api:
        client = Client(api.connection, "test")
        client.create(NODES, Node(metadata=ObjectMeta(name="node-a")))
        program = Running(flags(short, api_server=api.url))
        assert program.wait_for("starting")["settings"]["node_name"] == "node-a"
        program.wait_for("slices published")
        assert [len(one.spec.devices) for one in client.list(RESOURCE_SLICES).items] == [8]
        assert program.end(number) == 0
        assert program.lines[-1]["msg"] == "stopping"
        assert not list(short.rglob("*.sock"))
        client.close()


def test_a_process_that_was_stopped_ends_with_a_signal_too(short: Path) -> None:
    (short / "registry").mkdir()
    with ApiServer() as api:
        program = Running(flags(short, api_server=api.url))
        program.wait_for("serving")
        program.process.send_signal(signal.SIGSTOP)
        program.process.send_signal(signal.SIGTERM)
        assert program.end(signal.SIGCONT) == 0


def test_without_an_api_server_it_serves_says_so_once_and_ends_quickly(short: Path) -> None:
    (short / "registry").mkdir()
    program = Running(flags(short))
    program.wait_for("list or watch failed, will be tried again")
    program.wait_for("slices cannot be published, will be tried again")
    assert (short / "registry" / "gpu.nvidia.com-reg.sock").exists()
    assert program.end(signal.SIGTERM) == 0
    told = [line["msg"] for line in program.lines if line["level"] in {"warning", "error"}]
    assert sorted(told) == [
        "claims of running pods are not known if their CDI spec is lost as well",  # there is no kubelet to ask
        "list or watch failed, will be tried again",
        "slices cannot be published, will be tried again",
    ]


HEAVY = {
    *("kubernetes", "typer", "click", "rich", "yaml", "requests", "aiohttp"),  # for people and for kubeconfigs
    *("pydantic", "pydantic_settings", "urllib3", "tenacity"),  # each takes a tenth of the start or of a prepare
    "prometheus_client",  # as long as nobody asks for metrics
    *("celpy", "re2"),  # the controller evaluates selectors
}


def test_a_node_program_that_runs_has_loaded_nothing_that_it_could_do_without(short: Path) -> None:
    (short / "registry").mkdir()
    with ApiServer() as api, (short / "log").open("w") as log:
        client = Client(api.connection, "test")
        client.create(NODES, Node(metadata=ObjectMeta(name="node-a")))
        code = "from dra_driver.cli.main import main; main()"
        program = subprocess.Popen([sys.executable, "-X", "importtime", "-c", code, "node", *flags(short, api_server=api.url)], stderr=log)
        assert api.wait_for(lambda: bool(api.requests("POST", "resourceslices")))
        program.send_signal(signal.SIGTERM)
        assert program.wait(30) == 0
        client.close()
    loaded = {line.rpartition("|")[2].strip() for line in (short / "log").read_text().splitlines() if line.startswith("import time:")}
    assert "dra_driver.node.main" in loaded
    assert {name for name in loaded if name.partition(".")[0] in HEAVY} == set()
