"""Requests of a claim, as an allocation names them: `name`, or `name/subrequest` where one alternative of a prioritized list was taken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dra_driver.k8s.objects.resource import DeviceAllocationConfiguration

FROM_CLASS = "FromClass"
FROM_CLAIM = "FromClaim"


def base(request: str) -> str:
    """The request's name without that of the subrequest; the kubelet and pods know no other."""
    return request.partition("/")[0]


def is_meant(names: Sequence[str], request: str) -> bool:
    """Whether a list of requests, as in configurations and constraints, means `request`: none means all, `gpu` means its subrequests as well."""
    return not names or request in names or base(request) in names


def configurations(driver: str, request: str, entries: Iterable[DeviceAllocationConfiguration]) -> list[DeviceAllocationConfiguration]:
    """The entries of an allocation that `driver` has to apply to devices of `request`, in the order in which a later one overrides an earlier one.

    Those of the class come before those of the claim, so that users can refine what admins have set; within both the order of the list counts. The
    API leaves the precedence to drivers, this is the convention (contract: KEP-4381, dra-example-driver).
    """
    ours = [one for one in entries if one.opaque is not None and one.opaque.driver == driver and is_meant(one.requests, request)]
    return sorted(ours, key=lambda one: one.source == FROM_CLAIM)
