"""Container images from scratch: an OCI archive with two images of one layer, which is busybox with all its applets.

`localhost/pause:e2e` holds a pod's namespaces, `localhost/busybox:e2e` runs tests. No container tool and no registry takes part.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import struct
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from dra_driver.errors import HostError
from e2e.cluster.requirements import program

PAUSE = "localhost/pause:e2e"
BUSYBOX = "localhost/busybox:e2e"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # uname's name: OCI's name

ENTRYPOINTS = {PAUSE: ["/bin/busybox", "sleep", "2147483647"], BUSYBOX: ["/bin/sh"]}
PASSWD = "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
GROUP = "root:x:0:\nnobody:x:65534:\n"

_INTERPRETER = 3  # PT_INTERP, the program header of a binary that needs a dynamic loader


def write_images(archive: Path) -> None:
    """Write both images of this machine's busybox. Raises HostError where busybox needs libraries, which the images have not."""
    path = Path(program("busybox") or "busybox")
    binary = path.read_bytes()
    if is_dynamic(binary):
        raise HostError(f"{path} is not static, so it cannot run in an image by itself. Install it with: apt-get install busybox-static")
    applets = subprocess.run([path, "--list"], check=True, capture_output=True, text=True).stdout.split()
    archive.write_bytes(oci_archive(layer(binary, applets), ARCHITECTURES[platform.machine()]))


def is_dynamic(binary: bytes) -> bool:
    """Whether a 64-bit little-endian ELF binary names a dynamic loader."""
    (offset,) = struct.unpack_from("<Q", binary, 32)
    size, count = struct.unpack_from("<HH", binary, 54)
    return any(struct.unpack_from("<I", binary, offset + number * size)[0] == _INTERPRETER for number in range(count))


def layer(busybox: bytes, applets: list[str]) -> bytes:
    """A root file system as tar. The same input gives the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        _add(tar, "bin/busybox", busybox, mode=0o755)
        _add(tar, "etc/passwd", PASSWD.encode())
        _add(tar, "etc/group", GROUP.encode())
        for applet in applets:
            if applet != "busybox":
                entry = tarfile.TarInfo(f"bin/{applet}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(entry)
    return buffer.getvalue()


def oci_archive(root: bytes, architecture: str) -> bytes:
    """Both images as one archive in the OCI image layout, named as containerd's importer reads names."""
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, kind: str, **more: Any) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content), **more}

    layer_blob = blob(root, "layer.v1.tar")
    manifests = []
    for name, entrypoint in ENTRYPOINTS.items():
        configuration = {
            "architecture": architecture,
            "os": "linux",
            "config": {"Entrypoint": entrypoint, "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [layer_blob["digest"]]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob(json.dumps(configuration).encode(), "config.v1+json"),
            "layers": [layer_blob],
        }
        names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
        manifests.append(
            blob(json.dumps(manifest).encode(), "manifest.v1+json", platform={"os": "linux", "architecture": architecture}, annotations=names)
        )
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests}

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(tar, "index.json", json.dumps(index).encode())
        for path, content in blobs.items():
            _add(tar, path, content)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, path: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
