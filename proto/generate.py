"""Generates the Python code of proto/dra into a directory (default: where it is checked in).

``python proto/generate.py [DIRECTORY]``. The virtual path ``dra_driver/kubelet/_proto`` makes protoc write absolute imports and gives every file a
name that no other package in the process uses, which Python's descriptor pool demands. Used by ``make proto`` and by the test that compares.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "proto" / "dra"
PACKAGE = "dra_driver/kubelet/_proto"


def generate(out: Path) -> None:
    """Writes ``<out>/dra_driver/kubelet/_proto/*_pb2*``; raises ``RuntimeError`` when protoc refuses a file."""
    names = [f"{PACKAGE}/{path.name}" for path in sorted(SOURCES.glob("*.proto"))]
    (out / PACKAGE).mkdir(parents=True, exist_ok=True)
    arguments = ["protoc", f"-I{PACKAGE}={SOURCES}", f"-I{files('grpc_tools') / '_proto'}"]
    arguments += [f"--{kind}_out={out}" for kind in ("python", "mypy", "grpc_python", "mypy_grpc")]
    if protoc.main([*arguments, *names]) != 0:
        raise RuntimeError(f"protoc failed for {SOURCES}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src")
