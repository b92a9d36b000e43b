"""A kubelet plugin for any driver: registration, claims, their journal, CDI specs, ResourceSlices.

A driver says which devices there are and what an allocation of them means on its node; this package does the rest. A whole driver, whose lamps are
imaginary. It runs on a node, or in a pod of it that has the node's /var/lib/kubelet and /var/run/cdi::

    import os

    from dra_driver.daemon import logs
    from dra_driver.errors import ClaimError
    from dra_driver.k8s import config
    from dra_driver.k8s.client import Client
    from dra_driver.k8s.objects.resource import Device, DeviceAllocationResult, DeviceAttribute
    from dra_driver.kubelet.cdi import ContainerEdits
    from dra_driver.kubelet.driver import Driver, Plan, PlannedDevice
    from dra_driver.kubelet.plugin import KubeletPlugin

    SERIAL_NUMBERS = {"red": "lamp-17", "green": "lamp-18"}


    class LampDriver(Driver):
        name = "lamp.example.com"

        def plan(self, allocation: DeviceAllocationResult) -> Plan:
            lamps = []
            for result in allocation.results:
                if result.device not in SERIAL_NUMBERS:
                    raise ClaimError(f"this node has no lamp {result.device}")
                serial = SERIAL_NUMBERS[result.device]
                lamps.append(PlannedDevice(result, serial, ContainerEdits(env=(f"LAMP_{result.device.upper()}={serial}",))))
            return Plan(tuple(lamps))


    logs.configure("info")
    client = Client(config.find(), "lamp-driver")
    plugin = KubeletPlugin(LampDriver(), client, node=os.environ["NODE_NAME"])
    plugin.publisher.set_devices([Device(color, {"color": DeviceAttribute(string=color)}) for color in SERIAL_NUMBERS])
    plugin.run()

`driver.Driver` has more for devices that need it; `docs/dev/driver.md` leads on.
"""
