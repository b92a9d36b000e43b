"""What differs between the kubelets of Kubernetes 1.34 to 1.37, as far as a driver can tell: DRAResourceHealth (feature gate ResourceHealthStatus).

Registration is the same: the plugin names its services, the first DRAPlugin version that the kubelet knows is used, unknown names are ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Release:
    """The health services that a kubelet speaks by default, the most wanted first.

    `asks_everybody`: it opens a stream also to a plugin that does not advertise the service. `gives_up`: where the method turns out not to be
    implemented it asks no more.
    """

    health_services: tuple[str, ...] = ()
    asks_everybody: bool = False
    gives_up: bool = True

    def health_service(self, advertised: Collection[str]) -> str:
        """The service to open a stream to, "" for none."""
        return next((service for service in self.health_services if self.asks_everybody or service in advertised), "")


RELEASES: Mapping[str, Release] = {
    "1.34": Release(),
    "1.35": Release(),
    "1.36": Release(("v1alpha1.DRAResourceHealth",), asks_everybody=True, gives_up=False),
    "1.37": Release(("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")),
}
"""By minor version. Before 1.36 the gate is off."""
