"""Which boot of this host this is: what was in memory before it, such as settings of devices, is gone."""

from __future__ import annotations

from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Another one after each boot; "" where the kernel does not tell."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
