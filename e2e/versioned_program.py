"""The node program in a version of its own: every device has the attribute `release`, and a version with "tainted" in its name taints the last one.

Arguments: the version, then those of `dra-driver`.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from dra_driver.cli.main import main
from dra_driver.k8s.objects.resource import Device, DeviceAttribute, DeviceTaint
from dra_driver.node.driver import GpuDriver

TAINT = "e2e.example.com/tainted"


def become(version: str) -> None:
    """Makes the GPU driver of this process that version."""
    devices = GpuDriver.devices

    def of_this_version(self: GpuDriver, *arguments: Any) -> list[Device]:
        found = [
            msgspec.structs.replace(one, attributes={**one.attributes, "release": DeviceAttribute(string=version)})
            for one in devices(self, *arguments)
        ]
        if "tainted" in version:
            found[-1] = msgspec.structs.replace(found[-1], taints=[*found[-1].taints, DeviceTaint(key=TAINT, effect="NoSchedule")])
        return found

    GpuDriver.devices = of_this_version  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    become(sys.argv.pop(1))
    main()
