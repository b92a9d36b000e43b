from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
from typing import Any

import pytest

from e2e.cluster.images import BUSYBOX, PAUSE, is_dynamic, layer, oci_archive

ROOT = layer(b"binary", ["busybox", "ls", "sh"])


def elf(*program_headers: int) -> bytes:
    header = bytearray(64)
    struct.pack_into("<Q", header, 32, 64)
    struct.pack_into("<HH", header, 54, 56, len(program_headers))
    return bytes(header) + b"".join(struct.pack("<I52x", kind) for kind in program_headers)


@pytest.mark.parametrize(("headers", "dynamic"), [((1, 1), False), ((1, 3, 2), True), ((), False)])
def test_a_binary_with_an_interpreter_is_dynamic(headers: tuple[int, ...], dynamic: bool) -> None:
    assert is_dynamic(elf(*headers)) is dynamic


def test_every_applet_is_a_link_to_busybox() -> None:
    with tarfile.open(fileobj=io.BytesIO(ROOT)) as tar:
        links = {entry.name: entry.linkname for entry in tar if entry.issym()}
        binary = tar.getmember("bin/busybox")
    assert links == {"bin/ls": "busybox", "bin/sh": "busybox"}
    assert binary.mode == 0o755


def test_the_same_binary_gives_the_same_image() -> None:
    assert oci_archive(layer(b"binary", ["busybox", "ls", "sh"]), "amd64") == oci_archive(ROOT, "amd64")


def test_the_archive_holds_both_images_and_every_blob_that_they_name() -> None:
    with tarfile.open(fileobj=io.BytesIO(oci_archive(ROOT, "arm64"))) as tar:
        files = {entry.name: reader.read() for entry in tar if (reader := tar.extractfile(entry))}

    def blob(descriptor: dict[str, Any]) -> bytes:
        algorithm, digest = descriptor["digest"].split(":")
        content = files[f"blobs/{algorithm}/{digest}"]
        assert hashlib.sha256(content).hexdigest() == digest
        assert len(content) == descriptor["size"]
        return content

    manifests = {item["annotations"]["io.containerd.image.name"]: item for item in json.loads(files["index.json"])["manifests"]}
    assert set(manifests) == {PAUSE, BUSYBOX}
    for item in manifests.values():
        manifest = json.loads(blob(item))
        configuration = json.loads(blob(manifest["config"]))
        assert blob(manifest["layers"][0]) == ROOT
        assert configuration["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]
        assert configuration["architecture"] == item["platform"]["architecture"] == "arm64"
