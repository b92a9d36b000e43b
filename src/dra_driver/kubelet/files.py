"""Files that others read while we write them: they see the old content or the new one, never a part."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Makes the file have this content and be readable by everybody; directories that are missing are made. OSError, and then nothing is left over.

    Not flushed to the disk: what we write so is compared at every start, and written again where a power failure took it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")  # hidden, and with a suffix that no reader looks for
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(content)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
