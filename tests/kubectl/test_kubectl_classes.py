"""`kubectl dra classes`: the report as table, explanation and data, from files and from a cluster."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from dra_driver.cli.kubectl_classes import Options, Output, run
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import DEVICE_CLASSES, CELDeviceSelector, DeviceClass, DeviceClassSpec, DeviceSelector
from dra_driver.sandbox.apiserver import ApiServer

GOLDEN = Path(__file__).parent / "golden"
CLUSTER = GOLDEN / "cluster.yaml"
PROGRAM = Path(sys.executable).with_name("kubectl-dra")


def told(options: Options, **console: object) -> tuple[int, str]:
    output = io.StringIO()
    status = run(options, Console(file=output, **console))  # type: ignore[arg-type]
    return status, output.getvalue()


def command(*arguments: str, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "classes", *arguments], input=text, capture_output=True, text=True, timeout=60, check=False, env=os.environ | environment
    )


def class_yaml(name: str, expression: str, **changes: str) -> str:
    selectors = [{"cel": {"expression": expression}}]
    return yaml.safe_dump(
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": selectors}} | changes
    )


@pytest.mark.parametrize("output", list(Output))
def test_golden_output(output: Output) -> None:
    status, text = told(Options([CLUSTER], output=output))
    assert status == 1
    assert text == (GOLDEN / f"classes.{output}").read_text(encoding="utf-8")


def test_json_and_yaml_say_the_same() -> None:
    as_json, as_yaml = (told(Options([CLUSTER], output=output))[1] for output in (Output.JSON, Output.YAML))
    assert json.loads(as_json) == yaml.safe_load(as_yaml)


def test_a_terminal_gets_colours_and_its_own_width() -> None:
    _, text = told(Options([CLUSTER]), force_terminal=True, width=80, color_system="standard")
    assert "\x1b[31mSelectorFails" in text
    assert "\x1b[32mMatches" in text


@pytest.mark.parametrize(("name", "status"), [("gpu.nvidia.com", 0), ("nowhere", 0), ("typo", 1), ("large", 1)])
def test_the_exit_status_tells_whether_a_class_is_broken(name: str, status: int) -> None:
    found, text = told(Options([CLUSTER], [name]))
    assert found == status
    assert [line.split()[0] for line in text.splitlines()[2:]] == [name]


def test_many_files_json_and_stdin_are_read_together(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(yaml.safe_load(class_yaml("one", "true"))))
    ended = command("-f", str(tmp_path / "one.json"), "-f", "-", "-f", str(CLUSTER), "one", "two", text=class_yaml("two", "false"))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [line.split()[:3] for line in ended.stdout.splitlines()[2:]] == [["one", "Matches", "9/9"], ["two", "NoDeviceMatches", "0/9"]]


@pytest.mark.parametrize(
    ("content", "names", "error"),
    [
        ("a: b", [], "a document is no Kubernetes object: it has no kind"),
        ("{", [], "no YAML"),
        ("- a", [], "a document is no Kubernetes object"),
        ("kind: List\nitems: [1]", [], "a document is no Kubernetes object"),
        ("kind: List\nitems: 3", [], "List: items is 3, it must be a list of objects"),
        ("kind: Pod\napiVersion: v1", [], "no DeviceClass in them"),
        (class_yaml("one", "true", apiVersion="resource.k8s.io/v1beta1"), [], "DeviceClass one: apiVersion is resource.k8s.io/v1beta1, only"),
        (class_yaml("one", "true", spec="x"), [], "DeviceClass one: Expected `object`, got `str` - at `$.spec`"),
        (class_yaml("one", "true"), ["two"], "DeviceClass two: not found; there are: one"),
    ],
)
def test_wrong_input_is_named_and_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, names: list[str], error: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(content)
    assert told(Options([path], names)) == (2, "")
    assert error in capsys.readouterr().err


@pytest.mark.parametrize("name", ["-", "FILE"])
def test_bytes_that_are_no_text_are_named_and_end_with_2(tmp_path: Path, name: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_bytes(b"kind: \xff")
    with file.open() as stdin:
        ended = subprocess.run([PROGRAM, "classes", "-f", name.replace("FILE", str(file))], stdin=stdin, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "can't decode byte 0xff" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_missing_file_and_a_wrong_option_end_with_2(tmp_path: Path) -> None:
    ended = command("-f", str(tmp_path / "missing.yaml"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "missing.yaml: No such file or directory" in ended.stderr
    assert command("-o", "csv").returncode == 2


def test_a_cluster_is_asked_through_the_kubeconfig(tmp_path: Path) -> None:
    with ApiServer() as api:
        cluster, context = {"server": api.url}, {"cluster": "c", "user": "u"}
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": context}],
            "current-context": "x",
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig))
        client = Client(api.connection, "test")
        spec = DeviceClassSpec([DeviceSelector(CELDeviceSelector("device.driver == 'x'"))])
        client.create(DEVICE_CLASSES, DeviceClass(metadata=ObjectMeta(name="one"), spec=spec))
        ended = command("-o", "json", KUBECONFIG=str(path))
        assert (ended.returncode, ended.stderr) == (0, "")
        assert [(one["name"], one["state"]) for one in json.loads(ended.stdout)["classes"]] == [("one", "NoDeviceMatches")]
        client.delete(DEVICE_CLASSES, "one")
        assert command("--kubeconfig", str(path)).stdout == "No DeviceClasses found.\n"
        client.close()
        api.fail("GET", "deviceclasses", status=403, reason="Forbidden", message="no")
        ended = command("--kubeconfig", str(path), "--context", "x")
        assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", "error: no\n")


def test_kubectl_finds_it_as_a_plugin() -> None:
    ended = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0
    assert "kubectl dra" in ended.stdout
    assert "classes" in ended.stdout
