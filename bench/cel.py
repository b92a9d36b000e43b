"""Our CEL engine beside Kubernetes' own, in the same run: one device, many devices, and the index over a cluster.

    python bench/cel.py [--oracle PATH] [--devices 80000]

Needs Go and the modules of e2e/cluster/tools in Go's cache (or a built oracle). Times are medians of five rounds; ratios are ours / Go's.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dra_driver.cel import Device, Environment, EvaluationError, Index, Selector, compiled_values

ROOT = Path(__file__).parents[1]
A, C = "device.attributes['gpu.nvidia.com']", "device.capacity['gpu.nvidia.com']"
SELECTORS = {
    "S1": f"device.driver == 'gpu.nvidia.com' && {A}.type == 'gpu' && {C}.memory.compareTo(quantity('40Gi')) >= 0",
    "S2": f"{A}.productName.matches('.*H100.*') && {A}.driverVersion.compareTo(semver('550.0.0')) >= 0",
    "S3": f"{A}.type in ['gpu', 'mig'] && ({A}.index < 4 || {A}.ecc) && {A}.driverVersion.isGreaterThan(semver('550.0.0'))",
    "S4": f"cel.bind(a, {A}, has(a.type) && a.?type.orValue('') == 'gpu' && a.?nope.orValue('x') == 'x')",
}
ROUNDS = 5


def api_device(number: int) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "type": {"string": "gpu"},
        "productName": {"string": f"NVIDIA H100 80GB HBM3 rev {number}"},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Hopper"},
        "uuid": {"string": f"GPU-4404041a-04cf-1ccf-9e70-{number:012x}"},
        "index": {"int": number % 8},
        "minor": {"int": number % 8},
        "ecc": {"bool": number % 16 < 15},
        "driverVersion": {"version": "575.57.8"},
        "cudaDriverVersion": {"version": "12.9.0"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "pciBusID": {"string": f"0000:{number % 256:02x}:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{number % 8:02x}"},
        "dra.net/numaNode": {"int": number % 2},
    }
    return {"driver": "gpu.nvidia.com", "attributes": attributes, "capacity": {"memory": "80Gi" if number % 4 else "40Gi", "sms": "132"}}


def median_ns(operation: Callable[[], object], count: int) -> float:
    """Per call of `operation`, which does `count` things."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        operation()
        times.append((time.perf_counter_ns() - start) / count)
    return statistics.median(times)


def go_timings(oracle: Path, devices: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    lines = [json.dumps({"devices": devices})]
    lines += [json.dumps({"expression": text, "consumableCapacity": True, "measure": 20000}) for text in SELECTORS.values()]
    done = subprocess.run([oracle], input="\n".join(lines), capture_output=True, text=True, check=True)
    return dict(zip(SELECTORS, (json.loads(line)["timing"] for line in done.stdout.splitlines()), strict=True))


def one_device(oracle: Path) -> float:
    """Prints the table of single evaluations; returns Go's time per evaluation of S1, for the brute force."""
    count = 1000
    raw = [api_device(number) for number in range(count)]
    devices = [Device.from_api(device["driver"], device) for device in raw]
    environment = Environment()
    go = go_timings(oracle, raw)
    print(f"{'':4}{'ours ns':>9}{'prebuilt':>10}{'ratio':>7}{'DeviceMatches':>15}{'ratio':>7}", end="")
    print(f"{'exact ns':>10}{'compile us':>12}{'Go us':>8}{'ratio':>7}")
    for name, text in SELECTORS.items():
        selector = environment.compile(text)

        def all_of(matches: Callable[[Device], object] = selector.matches) -> None:
            for device in devices:
                matches(device)

        ours = median_ns(all_of, count)
        exact = median_ns(lambda selector=selector: [selector.run(device) for device in devices], count)  # type: ignore[misc]
        compile_us = median_ns(lambda text=text: [environment.compile(text) for _ in range(20)], 20) / 1000  # type: ignore[misc]
        prebuilt, matches, compiling = go[name]["prebuilt"], go[name]["deviceMatches"], go[name]["compile"] / 1000
        print(f"{name:4}{ours:9.0f}{prebuilt:10.0f}{ours / prebuilt:7.2f}{matches:15.0f}{ours / matches:7.3f}", end="")
        print(f"{exact:10.0f}{compile_us:12.0f}{compiling:8.0f}{compile_us / compiling:7.1f}")
    compiled_values.MEMO_SIZE = 1
    unremembered = environment.compile(SELECTORS["S2"])
    cold = median_ns(lambda: [unremembered.matches(device) for device in devices], count)
    print(f"S2 on texts never seen before: {cold:.0f} ns, {cold / go['S2']['prebuilt']:.2f} of prebuilt")
    build = median_ns(lambda: [Device.from_api(device["driver"], device) for device in raw], count)
    print(f"making a device: {build / 1000:.1f} us")
    return go["S1"]["deviceMatches"]


def classes(count: int) -> dict[str, Selector]:
    """Selectors of a cluster: 300 classes, 65 of them different."""
    environment = Environment()
    texts = [f"device.driver == 'gpu.nvidia.com' && {A}.type == 'gpu' && {C}.memory.compareTo(quantity('{size}Gi')) >= 0" for size in range(10, 40)]
    texts += [f"device.driver == 'gpu.nvidia.com' && {A}.index == {index}" for index in range(8)]
    texts += [f"device.driver == 'gpu.nvidia.com' && {A}.driverVersion.compareTo(semver('{major}.0.0')) >= 0" for major in range(550, 570)]
    texts += [f"device.driver == 'gpu.nvidia.com' && {A}.productName.matches('{name}')" for name in ("H100", "A100", "rev 1", "^NVIDIA")]
    texts += ["device.driver == 'gpu.nvidia.com'", f"has({A}.ecc) && {A}.ecc", f"{A}.type == 'gpu'"]
    compiled = [environment.compile(text) for text in texts]
    return {f"class-{number}": compiled[number % len(compiled)] for number in range(count)}


def cluster(go_ns: float, device_count: int) -> None:
    selectors = classes(300)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    raw = [api_device(number) for number in range(1000)]
    devices = [Device.from_api("gpu.nvidia.com", raw[number % 1000]) for number in range(device_count)]
    made = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    index: Index[str, int] = Index(selectors)
    start = time.perf_counter()
    for key, device in enumerate(devices):
        index.put(key, device)
    selected = sum(index.count(name) for name in selectors)
    full = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    brute = go_ns * len(selectors) * device_count / 1e9
    print(f"index of {len(selectors)} classes x {device_count} devices: {full:.2f} s, {selected} selected")
    print(f"  Go brute force (S1 x all): {brute:.0f} s, ratio {full / brute:.4f}")
    print(f"  peak memory: devices {(made - before) / 1024:.0f} MiB, index {(peak - made) / 1024:.0f} MiB")
    slice_brute = go_ns * len(selectors) * 128
    fresh = [[api_device(5000 + 128 * turn + number) for number in range(128)] for turn in range(ROUNDS)]
    edited = [[api_device(number) for number in range(128)] for _ in range(ROUNDS)]
    for turn, slice_ in enumerate(edited):
        for one in slice_:
            one["attributes"]["index"] = {"int": 100 + turn}
    for what, turns in ("never-seen", fresh), ("the same, one attribute changed", edited):
        slices = iter([[Device.from_api("gpu.nvidia.com", device) for device in slice_] for slice_ in turns])

        def change(slices: Iterator[list[Device]] = slices) -> None:
            for key, device in enumerate(next(slices)):
                index.put(key, device)
            for key in range(128):
                index.results(key)

        slice_ns = median_ns(change, 1)
        print(f"  one slice of 128 devices, {what}, all results asked: {slice_ns / 1e6:.2f} ms", end="")
        print(f", Go {slice_brute / 1e6:.0f} ms, ratio {slice_ns / slice_brute:.4f}")
    errors = [name for name in selectors if index.failures(name)]
    print(f"  classes that fail somewhere: {len(errors)}")


def import_time() -> None:
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        empty = time.perf_counter() - start
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import dra_driver.cel"], check=True)
        times.append(time.perf_counter() - start - empty)
    print(f"import dra_driver.cel: {statistics.median(times) * 1000:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oracle", type=Path)
    parser.add_argument("--devices", type=int, default=80000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        oracle = options.oracle
        if oracle is None:
            oracle = Path(directory) / "celoracle"
            subprocess.run(["go", "build", "-o", oracle, "./cmd/celoracle"], cwd=ROOT / "e2e" / "cluster" / "tools", check=True)
        go_ns = one_device(oracle)
    cluster(go_ns, options.devices)
    import_time()


if __name__ == "__main__":
    try:
        main()
    except EvaluationError as error:
        sys.exit(str(error))
