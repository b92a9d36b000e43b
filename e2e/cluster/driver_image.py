"""The driver's own image: the repository's Dockerfile, built without a container engine or an image registry.

Its base is made from Debian's packages. Both archives lie in the cache, named after everything that decides their content; buildah keeps the layers,
so a change of the sources alone costs seconds.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from dra_driver.errors import HostError
from e2e.cluster import requirements
from e2e.cluster.cluster import Cluster
from e2e.cluster.processes import last_lines
from e2e.cluster.progress import Progress

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY, TAG = "localhost/dra-driver", "e2e"
IMAGE = f"{REPOSITORY}:{TAG}"

_SOURCES = ("Dockerfile", ".dockerignore", "LICENSE", "README.md", "pyproject.toml", "requirements/runtime.txt", "requirements/build.txt")
_UNUSED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
_BOOTSTRAP = (
    "mmdebstrap",
    "--quiet",
    "--variant=minbase",
    "--include=python3,python3-venv,ca-certificates",
    *(f"--dpkgopt=path-exclude={path}" for path in _UNUSED),
    "trixie",
)
_KEPT = 3  # images of earlier states of the sources


def archive(cache: Path) -> Path:
    """Where the image of the sources' present state lies, built or not."""
    paths = [ROOT / name for name in _SOURCES] + sorted(path for path in (ROOT / "src").rglob("*") if path.suffix != ".pyc" and path.is_file())
    return cache / f"image-{_key(part for path in paths for part in (str(path.relative_to(ROOT)).encode(), path.read_bytes()))}.tar"


def build(cache: Path, progress: Progress) -> Path:
    """Builds what is not there yet and returns the archive, which `Node.import_images` takes. HostError."""
    ready = archive(cache)
    if ready.exists():
        return ready
    requirements.check_root()
    requirements.check_image_programs()
    cache.mkdir(parents=True, exist_ok=True)
    log = cache / "image.log"
    log.write_bytes(b"")
    base = _base(cache, log, progress)
    with progress.step(f"image built into {ready}"):
        # The build shares the host's network, so it needs the host's certificates, and its pip's settings where there are some.
        shared = [path for path in ("/etc/ssl/certs", "/etc/pip.conf") if Path(path).exists()]
        volumes = [f"--volume={path}:{path}:ro" for path in shared]
        _run(log, "buildah", "build", "--isolation=chroot", "--layers", *volumes, f"--build-arg=BASE={base}", f"--tag={IMAGE}", str(ROOT))
        partial = ready.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        _run(log, "buildah", "push", IMAGE, f"oci-archive:{partial}:{IMAGE}")
        partial.rename(ready)
    for old in sorted(cache.glob("image-*.tar"), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
        old.unlink()
    return ready


def give(cluster: Cluster, image: Path) -> None:
    """Imports the image into every node."""
    for node in cluster.nodes:
        node.import_images(image)


def _base(cache: Path, log: Path, progress: Progress) -> str:
    """The name of the base image, made where it is missing."""
    key = _key(word.encode() for word in _BOOTSTRAP)
    name = f"localhost/python-base:{key}"
    if subprocess.run(["buildah", "inspect", "--type=image", name], capture_output=True, check=False).returncode == 0:
        return name
    packed = cache / f"base-{key}.tar"
    if not packed.exists():
        with progress.step("base image made from Debian's packages"):
            partial = cache / f"base-{key}.partial.tar"  # by the suffix mmdebstrap knows what to make
            _run(log, *_BOOTSTRAP, str(partial))
            partial.rename(packed)
    with progress.step("base image loaded"):
        container = _run(log, "buildah", "from", "scratch").strip()
        _run(log, "buildah", "add", "--quiet", container, str(packed), "/")
        _run(log, "buildah", "commit", "--quiet", "--rm", container, name)
    return name


def _key(parts: Iterable[bytes]) -> str:
    key = hashlib.sha256()
    for part in parts:
        key.update(hashlib.sha256(part).digest())
    return key.hexdigest()[:16]


def _run(log: Path, *command: str) -> str:
    """What the command prints; messages go to the log. HostError with their end when it fails."""
    with log.open("ab") as sink:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=sink, text=True, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"})
        sink.write(done.stdout.encode())
    if done.returncode:
        raise HostError(f"{' '.join(command[:2])} failed with status {done.returncode}. Last lines of {log}:\n{last_lines(log)}")
    return done.stdout
