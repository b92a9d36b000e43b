"""Records what the API server of the running cluster says of generated slices: a few of them, so chosen that each kind of finding is there.

::

    python -m e2e.cluster up --feature-gates ALL_OF_THEM=true
    python -m e2e.record_slice_verdicts tests/kubelet/vectors/slice_verdicts.jsonl
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import msgspec

from e2e.cluster import Cluster
from e2e.kube import Kube
from e2e.test_slice_rules import UNREADABLE, asked
from tests.kubelet.slice_cases import slice_of

SEEDS = 6000
VALID = 12


def kind(finding: tuple[str, str, str]) -> tuple[str, str, str]:
    """A finding without the names, numbers and values of its slice."""
    field, reason, message = finding
    message = re.sub(r'value: ("(?:[^"\\]|\\.)*"|-?\d+|\{.*?\}(?=:|$)|\[.*?\](?=:|$))', "value: V", message)
    return re.sub(r"\[[^\]]*\]", "[]", field), reason, re.sub(r"-?[\d.]+[EGMikm]*", "N", message)


def main(path: Path) -> None:
    """Writes one line per slice: the slice and the causes of its refusal; slices without causes are accepted."""
    cluster = Cluster.load()
    kube = Kube(Path(cluster.kubeconfig), "kubectl")
    cases = sorted((len(raw := msgspec.json.encode(slice_of(seed))), seed, raw) for seed in range(SEEDS))
    known: set[tuple[str, str, str]] = set()
    lines = []
    valid = 0
    for _, seed, raw in cases:
        verdict = asked(kube, slice_of(seed))
        if verdict == UNREADABLE:
            continue
        kinds = {kind(finding) for finding in verdict}
        valid += not verdict
        if kinds - known or (not verdict and valid <= VALID):
            known |= kinds
            lines.append(json.dumps({"slice": json.loads(raw), "causes": sorted(verdict)}, separators=(",", ":"), ensure_ascii=False))
    kube.close()
    path.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} slices, {len(known)} kinds of findings")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
