"""Files that others read while we write them: they see the old content or the new one, never a part."""

from __future__ import annotations

import contextlib
import os


def replace_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Makes the file have this content and be readable by everybody; a directory that is missing is made. OSError, and then nothing is left over.

    Not flushed to the disk: what we write so is compared at every start, and written again where a power failure took it.
    """
    directory, name = os.path.split(path)
    temporary = f"{directory}/.{name}.{os.getpid()}.tmp"  # hidden, and with a suffix that no reader looks for
    try:
        descriptor = _create(temporary)
    except FileNotFoundError:
        os.makedirs(directory, exist_ok=True)  # noqa: PTH103
        descriptor = _create(temporary)
    try:
        try:
            os.fchmod(descriptor, 0o644)
            while content:
                content = content[os.write(descriptor, content) :]
        finally:
            os.close(descriptor)
        os.replace(temporary, path)  # noqa: PTH105  (on the way of every prepare)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def _create(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
