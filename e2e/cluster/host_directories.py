"""Directories of the host that exist only while the cluster does: the standard paths that nodes have mounts on.

Which ones were made is written down before they are, so a killed run leaves nothing that the next one does not know of.
"""

from __future__ import annotations

from pathlib import Path


def create(paths: list[Path], record: Path) -> None:
    """Make the directories that are not there, with their parents."""
    for path in paths:
        missing = [directory for directory in (path, *path.parents) if not directory.exists()]
        for directory in reversed(missing):
            with record.open("a") as file:
                file.write(f"{directory}\n")
            directory.mkdir(exist_ok=True)


def remove(record: Path) -> None:
    """Remove those that `create` made and nobody has put anything into."""
    try:
        made = record.read_text().splitlines()
    except FileNotFoundError:
        return
    for directory in reversed(made):
        try:
            Path(directory).rmdir()
        except OSError:  # gone already, or in use by something else now
            continue
