"""What an admin can set for the controller."""

from __future__ import annotations

from dataclasses import dataclass

from dra_driver.daemon import logs
from dra_driver.daemon.settings import one_of, setting, whole_number
from dra_driver.k8s.settings import ApiServerSettings


@dataclass(frozen=True, kw_only=True)
class ControllerSettings(ApiServerSettings):
    """The controller of the DRA driver: evaluates the selectors of all DeviceClasses on all published devices and reports what it finds."""

    metrics_port: int = setting("TCP port of /metrics, /healthz and /readyz; 0 takes a free one and logs it", whole_number(0, 65535), 8080)
    log_level: str = setting("least severity that is logged", one_of(*logs.LEVELS), "info")
