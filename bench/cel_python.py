"""How far cel-python agrees with Kubernetes' own verdicts, beside our engine: the figures of docs/decisions/0004-own-cel-engine.md.

    python -m bench.cel_python

Counts expressions of the vectors whose outcome (rejected, or per device: true, false, failed) is Kubernetes'. cel-python has Quantity and Semver
added and nothing else; the classes of expressions it never had a chance with are counted apart.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

from dra_driver.cel import CompileError, Device, Environment, EvaluationError
from tests.cel.cel_python import evaluate

VECTORS = Path(__file__).parents[1] / "tests" / "cel" / "vectors" / "cel_cases.json"
S1 = (
    "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu' && "
    "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0"
)


def kubernetes(case: dict[str, Any]) -> list[object]:
    return ["rejected"] if "compileError" in case else [result.get("match", "error") for result in case["results"]]


def ours(text: str, devices: list[Device]) -> list[object]:
    try:
        selector = Environment().compile(text)
    except CompileError:
        return ["rejected"]
    found: list[object] = []
    for device in devices:
        try:
            found.append(selector.matches(device))
        except EvaluationError:
            found.append("error")
    return found


def main() -> None:
    cases = json.loads(VECTORS.read_text(encoding="utf-8"))
    devices = [Device.from_api(device["driver"], device) for device in cases["devices"]]
    kinds: Counter[str] = Counter()
    agreed = 0
    for case in cases["cases"]:
        text = case["expression"]
        wanted = kubernetes(case["stored"])
        agreed += ours(text, devices) == wanted
        found = [evaluate(text, device) for device in devices]
        if found == wanted:
            kinds["same outcome"] += 1
        elif "unparsed" in found:
            kinds["same outcome (rejected)" if wanted == ["rejected"] else "cannot parse it"] += 1
        elif wanted == ["rejected"]:
            kinds["accepts or fails late what the API server rejects"] += 1
        elif any(isinstance(mine, bool) and mine != theirs for mine, theirs in zip(found, wanted, strict=True)):
            kinds["wrong verdict"] += 1
        else:
            kinds["fails where Kubernetes answers"] += 1
    total = len(cases["cases"])
    print(f"our engine: {agreed} of {total}")
    for kind, count in kinds.most_common():
        print(f"cel-python: {count:4} of {total} ({count / total:.0%}) {kind}")
    device = devices[0]
    times = []
    for _ in range(20):
        start = time.perf_counter()
        evaluate(S1, device)
        times.append(time.perf_counter() - start)
    selector = Environment().compile(S1)
    start = time.perf_counter()
    for _ in range(10000):
        selector.matches(device)
    print(f"S1: cel-python {statistics.median(times) * 1e6:.0f} us with parsing, our engine {(time.perf_counter() - start) * 100:.2f} us compiled")


if __name__ == "__main__":
    main()
