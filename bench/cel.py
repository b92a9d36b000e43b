"""Our CEL engine beside Kubernetes' own, in the same run: one device, many devices, and the index over a cluster.

    python bench/cel.py [--oracle PATH] [--devices 80000]

Needs Go and the modules of e2e/cluster/tools in Go's cache (or a built oracle). Go and we take turns, round by round. Times of evaluations,
compilations and changed slices are the best of the rounds, which a busy machine disturbs least, others medians. Ratios are ours / Go's.
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
SELECTORS["S2r"] = f"{A}.productName.matches('H(100|200) [0-9]+GB') && {A}.driverVersion.compareTo(semver('550.0.0')) >= 0"
"""S2's pattern has no choices, so that it is a mere test of text; this one needs RE2."""
ROUNDS = 5
TURNS = 15


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


def timed_ns(operation: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    operation()
    return float(time.perf_counter_ns() - start)


def best_ns(operation: Callable[[], object], count: int) -> float:
    """One measurement after a run that warms up, per call of `operation`, which does `count` things."""
    operation()
    return timed_ns(operation) / count


def median_ns(operation: Callable[[], object], count: int) -> float:
    """Per call of `operation`, which does `count` things."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        operation()
        times.append((time.perf_counter_ns() - start) / count)
    return statistics.median(times)


class Go:
    """The oracle, timing one selector at a time."""

    def __init__(self, oracle: Path, devices: list[dict[str, Any]]) -> None:
        self._process = subprocess.Popen([oracle], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._send({"devices": devices})

    def _send(self, line: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()

    def timing(self, text: str) -> dict[str, float]:
        assert self._process.stdout is not None
        self._send({"expression": text, "consumableCapacity": True, "measure": 3000})
        timing: dict[str, float] = json.loads(self._process.stdout.readline())["timing"]
        return timing

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def one_device(oracle: Path) -> float:
    """Prints the table of single evaluations; returns Go's time per evaluation of S1, for the brute force."""
    count = 1000
    raw = [api_device(number) for number in range(count)]
    devices = [Device.from_api(device["driver"], device) for device in raw]
    environment = Environment()
    go = Go(oracle, raw)
    print(f"{'':4}{'ours ns':>9}{'prebuilt':>10}{'ratio':>7}{'DeviceMatches':>15}{'ratio':>7}", end="")
    print(f"{'unseen ns':>11}{'ratio':>7}{'exact ns':>10}{'compile us':>12}{'Go us':>8}{'ratio':>7}")
    s1 = 0.0
    for name, text in SELECTORS.items():
        selector = environment.compile(text)
        unremembered = forgetful(environment, text)

        def all_of(matches: Callable[[Device], object]) -> None:
            for device in devices:
                matches(device)

        def compiling(text: str = text) -> None:
            for _ in range(10):
                compiled_values.code_of.cache_clear()
                environment.compile(text)

        theirs = [go.timing(text)]
        ours: dict[str, list[float]] = {"ours": [], "unseen": [], "exact": [], "compile": []}
        for _ in range(TURNS):
            theirs.append(go.timing(text))
            ours["ours"].append(best_ns(lambda selector=selector: all_of(selector.matches), count))  # type: ignore[misc]
            ours["unseen"].append(best_ns(lambda selector=unremembered: all_of(selector.matches), count))  # type: ignore[misc]
            ours["exact"].append(best_ns(lambda selector=selector: all_of(selector.run), count))  # type: ignore[misc]
            ours["compile"].append(best_ns(compiling, 10))
        best = {key: min(times) for key, times in ours.items()}
        prebuilt, matches, compiled = (min(timing[key] for timing in theirs) for key in ("prebuilt", "deviceMatches", "compile"))
        print(f"{name:4}{best['ours']:9.0f}{prebuilt:10.0f}{best['ours'] / prebuilt:7.2f}{matches:15.0f}{best['ours'] / matches:7.3f}", end="")
        print(f"{best['unseen']:11.0f}{best['unseen'] / prebuilt:7.2f}{best['exact']:10.0f}", end="")
        print(f"{best['compile'] / 1000:12.0f}{compiled / 1000:8.0f}{best['compile'] / compiled:7.1f}")
        s1 = s1 or matches
    go.close()
    build = median_ns(lambda: [Device.from_api(device["driver"], device) for device in raw], count)
    print(f"making a device: {build / 1000:.1f} us")
    return s1


def forgetful(environment: Environment, text: str) -> Selector:
    """A selector that remembers no text, as if each one were never seen before."""
    kept, compiled_values.MEMO_SIZE = compiled_values.MEMO_SIZE, 1
    try:
        return environment.compile(text)
    finally:
        compiled_values.MEMO_SIZE = kept


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
    fresh = [[api_device(5000 + 128 * turn + number) for number in range(128)] for turn in range(TURNS)]
    edited = [[api_device(number) for number in range(128)] for _ in range(TURNS)]
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

        slice_ns = min(timed_ns(change) for _ in turns)
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
