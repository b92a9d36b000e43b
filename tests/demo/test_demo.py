"""`dra-driver demo` follows a claim through its whole life, and says clearly why it cannot."""

from __future__ import annotations

import fcntl
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from dra_driver.allocation.pools import Candidate
from dra_driver.cli.demo import Options, run
from dra_driver.cli.demo_steps import STEPS
from dra_driver.cli.demo_texts import selectable
from dra_driver.cli.screen import Screen, pretty
from dra_driver.k8s.objects.resource import ResourceSlice

PROFILES = {
    "h100-sxm-80gb": (8, "gpu-0000-1b-00-0", ("NVIDIA H100 80GB HBM3", "81559Mi", "9.0.0", "Hopper"), "/dev/nvidia0"),
    "a100-sxm-40gb": (8, "gpu-0000-07-00-0", ("NVIDIA A100-SXM4-40GB", "40Gi", "8.0.0", "Ampere"), "/dev/nvidia2"),
}
TOO_BIG = "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('800Gi')) >= 0"
WRONG_NAME = "device.attributes['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0"


PROGRAM = Path(sys.executable).with_name("dra-driver")


def tell(options: Options, **console: Any) -> tuple[int, str]:
    """Exit status, and what was said on stdout and stderr."""
    output = Console(file=io.StringIO(), **console)
    status = run(options, Screen(STEPS, output, output))
    return status, output.file.getvalue()  # type: ignore[attr-defined]


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=90, check=False, env=os.environ | environment)


def headings(output: str) -> list[str]:
    return re.findall(r"^\[\d+/\d+\] .*", output, re.MULTILINE)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_command_tells_the_whole_life_of_a_claim(profile: str) -> None:
    gpus, device, cells, device_node = PROFILES[profile]
    ended = command("demo", "--profile", profile)
    output = ended.stdout
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [heading.split()[0] for heading in headings(output)] == [f"[{number}/{STEPS}]" for number in range(1, STEPS + 1)]
    assert "\x1b" not in output
    rows = [line for line in output.splitlines() if line.startswith(device[:9]) and cells[0] in line]
    assert len(rows) == gpus
    assert all(cell in rows[0] for cell in (device, *cells))
    assert len([line for line in output.splitlines() if re.fullmatch(r"gpu-\S+ +true +true *", line)]) == gpus
    uid = re.search(r"UID (\S+): not allocated", output)
    assert uid
    lines = output.splitlines()
    assert f"request gpu: device {device} of pool node-a, driver gpu.nvidia.com" in lines
    assert "reserved for pod default/demo" in lines
    assert f"  k8s.gpu.nvidia.com/claim={uid[1]}-{device}" in lines
    assert '  "cdiVersion": "0.6.0",' in lines
    assert "NVIDIA_VISIBLE_DEVICES=void" in lines
    assert {line.split()[0] for line in lines if line.startswith("  /dev/nvidia") and line.split()[0][-1].isdigit()} == {device_node}
    assert "CDI specs of the claim: none" in lines
    assert any(line.startswith("ResourceClaim default/demo-gpu-") and line.endswith(": gone") for line in lines)
    assert lines[-1].startswith("Done in ")


def test_two_profiles_tell_different_stories_and_leave_nothing_behind() -> None:
    before = {path.name for path in Path(tempfile.gettempdir()).glob("dra-*")}
    first, second = (tell(Options(profile, gpus=1)) for profile in PROFILES)
    assert (first[0], second[0]) == (0, 0)
    assert first[1] != second[1]
    mine = {path.name for path in Path(tempfile.gettempdir()).glob("dra-*")} - before
    assert not {name for name in mine if name in first[1] + second[1]}


def test_a_second_run_tells_the_same_steps() -> None:
    (first, told), (second, told_again) = (tell(Options("h100-sxm-80gb")) for _ in range(2))
    assert (first, second) == (0, 0)
    assert headings(told) == headings(told_again)


def test_mounts_are_counted_and_shown_only_in_full() -> None:
    status, output = tell(Options("h100-sxm-80gb", gpus=1))
    full_status, full = tell(Options("h100-sxm-80gb", gpus=1, full=True))
    assert (status, full_status) == (0, 0)
    mounts = full.count('"containerPath": ') - 1
    assert mounts > 10
    assert output.count('"containerPath": ') == 2, "one of the driver's, and the one with the device's metadata"
    assert f'"... {mounts - 1} more (--full shows them)"' in output
    assert "more (--full" not in full
    assert f"mounted into container main: {mounts} files of the driver\n" in output
    assert "\n  /var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/gpu/gpu/gpu.nvidia.com-metadata.json\n" in output
    assert full.count("\n  /usr/lib/x86_64-linux-gnu/libcuda.so") == 3
    assert "\n  /usr/lib/" not in output


def test_a_selector_that_matches_nothing_ends_with_1_and_the_reason_for_every_device() -> None:
    ended = command("demo", "--selector", TOO_BIG, "--gpus", "64")
    assert ended.returncode == 1
    assert "No device can be allocated: the pod stays Pending." in ended.stderr
    assert "request gpu needs 1 and 0 of 64 devices fit" in ended.stderr
    (heading,) = (number for number, line in enumerate(ended.stderr.splitlines()) if TOO_BIG in line)
    reason, names = ended.stderr.splitlines()[heading : heading + 2]
    assert re.fullmatch(r"64 devices, request gpu: claim default/demo-gpu-\w+: selector #0 is false: .*", reason)
    assert len(set(re.findall(r"gpu-[0-9a-f]{4}-[0-9a-f]{2}-00-0", names))) == len(names.split()) == 64
    assert "NodePrepareResources" not in ended.stdout
    assert "Pending" not in ended.stdout
    assert "Traceback" not in ended.stderr


def test_a_selector_that_fails_shows_the_schedulers_error_once() -> None:
    status, output = tell(Options("h100-sxm-80gb", gpus=2, selector=WRONG_NAME))
    assert status == 1
    assert len(re.findall(r"^gpu-\S+ +true +error *$", output, re.MULTILINE)) == 2
    assert output.count("CEL runtime error: no such key: memory") == 1
    assert re.search(r"^claim default/demo-gpu-\w+: selector #0 fails: no such key: memory \(2 devices\)$", output, re.MULTILINE)
    assert re.search(r"^2 devices, request gpu: claim \S+: selector #0 fails\n  gpu-0000-1b-00-0 gpu-0000-43-00-0$", output, re.MULTILINE)


def test_another_selector_chooses_another_device() -> None:
    status, output = tell(Options("h100-sxm-80gb", selector="device.attributes['resource.kubernetes.io'].numaNode == 1"))
    assert status == 0
    assert len(re.findall(r"^gpu-\S+ +true +false *$", output, re.MULTILINE)) == 4
    assert "request gpu: device gpu-0000-9d-00-0 of pool node-a" in output
    assert "\n  /dev/nvidia4  c 195:4  rwm\n" in output


def test_a_node_without_gpus_is_told_as_such() -> None:
    status, output = tell(Options("h100-sxm-80gb", gpus=0))
    assert status == 1
    assert "The pool of node node-a has no devices." in output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--profile", "h100"], "GPU profile 'h100' does not exist; there are a100-sxm-40gb, h100-sxm-80gb"),
        (["--gpus", "900"], "GPU profile h100-sxm-80gb: 900 GPUs were asked for, 0 to 248 are possible"),
        (["--selector", ""], "--selector '': the API server would refuse it: "),
        (["--manifests", "/nowhere"], "manifest /nowhere/deviceclass.yaml: No such file or directory"),
        (["--selector", "device.driver =="], "--selector 'device.driver ==': the API server would refuse it: "),
        (["--nonsense"], "No such option: --nonsense"),
    ],
)
def test_a_wrong_option_ends_with_2_and_says_what_is_allowed(arguments: list[str], text: str) -> None:
    ended = command("demo", *arguments, COLUMNS="200")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert text in ended.stderr
    assert "Traceback" not in ended.stderr


def test_other_manifests_are_used_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    device_class = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: any}\nspec: {}\n"
    template = (
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: t, namespace: default}\n"
        "spec: {spec: {devices: {requests: [{name: two, exactly: {deviceClassName: any, count: 2}}]}}}\n"
    )
    (tmp_path / "deviceclass.yaml").write_text(device_class)
    (tmp_path / "resourceclaimtemplate.yaml").write_text(template)
    status, output = tell(Options("h100-sxm-80gb", manifests=tmp_path))
    assert status == 0
    assert output.count("request two: device gpu-0000-") == 2
    assert tell(Options("h100-sxm-80gb", gpus=1, manifests=tmp_path))[0] == 1
    (tmp_path / "resourceclaimtemplate.yaml").write_text(device_class)
    assert tell(Options("h100-sxm-80gb", manifests=tmp_path))[0] == 2
    assert "found no ResourceClaimTemplate" in capsys.readouterr().err
    (tmp_path / "deviceclass.yaml").write_text("apiVersion: v1\nkind: Secret\n")
    assert tell(Options("h100-sxm-80gb", manifests=tmp_path))[0] == 2
    assert "found apiVersion v1, kind Secret, the sandbox knows DeviceClass" in capsys.readouterr().err
    (tmp_path / "deviceclass.yaml").write_bytes(b"kind: \xff")
    assert tell(Options("h100-sxm-80gb", manifests=tmp_path))[0] == 2
    assert "deviceclass.yaml: 'utf-8' codec can't decode" in capsys.readouterr().err


def test_a_claim_that_is_not_supported_yet_says_so(tmp_path: Path) -> None:
    (tmp_path / "deviceclass.yaml").write_text("apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: any}\nspec: {}\n")
    (tmp_path / "resourceclaimtemplate.yaml").write_text(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: t}\n"
        "spec: {spec: {devices: {requests: [{name: all, exactly: {deviceClassName: any, allocationMode: All}}]}}}\n"
    )
    status, output = tell(Options("h100-sxm-80gb", gpus=1, manifests=tmp_path))
    assert status == 1
    assert "allocationMode 'All' is not supported yet" in output


@pytest.mark.parametrize(("width", "selector"), [(80, None), (60, None), (60, TOO_BIG), (60, WRONG_NAME)])
def test_a_narrow_terminal_breaks_only_between_words_and_cuts_nothing(width: int, selector: str | None) -> None:
    status, output = tell(Options("h100-sxm-80gb", gpus=3, selector=selector), width=width, force_terminal=True, color_system="standard")
    assert status == (0 if selector is None else 1)
    assert "\x1b[" in output
    assert "…" not in output
    lines = re.sub(r"\x1b\[[\d;]*m", "", output).splitlines()
    one_word = re.compile(r'\s*("[\w./-]+": )?\S+')
    assert [line for line in lines if len(line) > width and not one_word.fullmatch(line)] == []
    assert any(line.startswith("gpu-0000-1b-00-0") and "81559Mi" in line for line in lines)
    assert selector or "NVIDIA_VISIBLE_DEVICES=void" in lines


def test_values_are_shown_as_cel_writes_them() -> None:
    attributes = {
        "name": {"string": "it's \\"},
        "version": {"version": "9.0.0"},
        "count": {"int": 1},
        "ready": {"bool": True},
        "both": {"ints": [1, 2]},
    }
    device = {"name": "a", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}}
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    slice_ = msgspec.convert({"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": pool, "devices": [device]}}, ResourceSlice)
    assert list(selectable(Candidate(slice_, 0))) == [
        "  device.driver = 'd'",
        "  device.attributes['d'].name = 'it\\'s \\\\'",
        "  device.attributes['d'].version = semver('9.0.0')",
        "  device.attributes['d'].count = 1",
        "  device.attributes['d'].ready = true",
        "  device.attributes['d'].both = [1, 2]",
        "  device.capacity['d'].memory = quantity('80Gi')",
    ]


def test_a_demo_that_is_told_to_end_leaves_nothing_behind() -> None:
    with subprocess.Popen([PROGRAM, "demo", "--full"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout
        # What it prints does not fit into the pipe, so it cannot end before the signal.
        fcntl.fcntl(running.stdout, fcntl.F_SETPIPE_SZ, 4096)
        directory = next(Path(line.split()[1]).parent for line in running.stdout if line.startswith("driver_root: "))
        assert directory.exists()
        running.send_signal(signal.SIGTERM)
        _, errors = running.communicate(timeout=60)
    assert (running.returncode, errors) == (128 + signal.SIGTERM, "")
    assert not directory.exists()


def test_without_a_command_the_help_goes_to_stderr() -> None:
    ended = command(COLUMNS="100")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert [name for name in ("node", "controller", "demo") if re.search(rf"^\W*{name} +\w", ended.stderr, re.MULTILINE)] == [
        "node",
        "controller",
        "demo",
    ]
    assert command("--help", COLUMNS="100").stdout.strip() == ended.stderr.strip()


def test_the_version_is_the_packages() -> None:
    assert command("--version").stdout == f"dra-driver {metadata.version('dra-driver')}\n"


def test_the_node_program_is_started_without_what_people_need() -> None:
    script = (
        "import sys\nfrom dra_driver.cli.main import main\n"
        "try:\n    main(['node', '--help'])\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print([name for name in ('rich', 'typer', 'celpy', 'kubernetes') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "--node-name" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "[]"


def test_wrong_settings_of_the_node_program_end_with_2() -> None:
    ended = command("node", "--nonsense")
    assert ended.returncode == 2
    assert "unknown setting --nonsense" in ended.stderr


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}"),
        ("é", '"\\u00e9"'),
        ({"a": [1, 2]}, '{"a": [1, 2]}'),
        ({"a": {"b": {"c": 1}}}, '{\n  "a": {"b": {"c": 1}}\n}'),
        (["x" * 120, "y" * 120], f'[\n  "{"x" * 120}",\n  "{"y" * 120}"\n]'),
    ],
)
def test_json_for_people_keeps_small_things_on_one_line(value: object, text: str) -> None:
    assert pretty(value) == text


def test_json_is_broken_where_a_line_would_be_too_long() -> None:
    value = {"a": "x" * 10, "b": [1, 2, 3]}
    assert pretty(value, 33) == '{\n  "a": "xxxxxxxxxx",\n  "b": [1, 2, 3]\n}'
    assert pretty(value, 40) == '{"a": "xxxxxxxxxx", "b": [1, 2, 3]}'
    assert pretty(value, 40, before=9) == pretty(value, 33)
    assert pretty({"key": [100, 200]}, 16) == '{\n  "key": [\n    100,\n    200\n  ]\n}'
