"""How long the kubelet waits, and how often it looks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Seconds. All defaults are those of the kubelet 1.37 but `scan`: the kubelet is told by inotify and acts within a second."""

    scan: float = 0.05
    dial: float = 10.0
    get_info: float = 1.0
    notify: float = 5.0
    call: float = 45.0
    health_retry: float = 5.0
    backoff: float = 0.5
    backoff_limit: float = 122.0
    wiping_delay: float = 30.0
    wiping_backoff: float = 1.0
    wiping_backoff_limit: float = 300.0
