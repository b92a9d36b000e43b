"""What an admin can set for the controller."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dra_driver.k8s.settings import ApiServerSettings


class ControllerSettings(ApiServerSettings):
    """The controller of the DRA driver: evaluates the selectors of all DeviceClasses on all published devices and reports what it finds."""

    metrics_port: int = Field(default=8080, ge=0, le=65535, description="TCP port of /metrics, /healthz and /readyz; 0 takes a free one and logs it")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="least severity that is logged")
