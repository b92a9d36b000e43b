"""Our rules for ResourceSlices against the API server's: the same slices, right and wrong, and the same findings."""

from __future__ import annotations

import json
import os
import re

import msgspec
import pytest

from dra_driver.k8s.objects.resource import ResourceSlice
from dra_driver.kubelet import slice_rules
from e2e.kube import Kube
from tests.kubelet.slice_cases import OFF_BY_DEFAULT, slice_of, without

CASES = int(os.environ.get("DRA_SLICE_CASES", "400"))
OFF = frozenset(filter(None, os.environ.get("DRA_GATES_OFF", ",".join(OFF_BY_DEFAULT)).split(",")))
PATH = "/apis/resource.k8s.io/v1/resourceslices?dryRun=All"

Verdict = set[tuple[str, str, str]]
"""Field, type and message of each finding."""

UNREADABLE: Verdict = {("", "BadRequest", "")}


def asked(kube: Kube, one: ResourceSlice) -> Verdict:
    answer = kube.api.rest_client.pool_manager.request(
        "POST", f"{kube.api.configuration.host}{PATH}", body=msgspec.json.encode(one), headers={"Content-Type": "application/json"}
    )
    if answer.status == 201:
        return set()
    if answer.status == 400:
        return UNREADABLE
    assert answer.status == 422, answer.data
    causes = json.loads(answer.data)["details"]["causes"]
    return {(cause.get("field", ""), cause["reason"], _without_random_name(cause.get("field", ""), cause["message"])) for cause in causes}


def ours(one: ResourceSlice) -> Verdict:
    if any(slice_rules.unreadable(one.spec)):
        return UNREADABLE
    found = slice_rules.problems(without(one, OFF))
    return {(error.field, error.reason, _without_random_name(error.field, error.body())) for error in found}


def _without_random_name(field: str, message: str) -> str:
    return re.sub(r'[a-z0-9]{5}"', '"', message, count=1) if field == "metadata.name" else message


@pytest.mark.once
def test_the_api_server_refuses_what_our_rules_refuse_in_the_same_words(kube: Kube) -> None:
    differing = []
    for seed in range(CASES):
        one = slice_of(seed)
        theirs, found = asked(kube, one), ours(one)
        if theirs != found:
            differing.append({"seed": seed, "only theirs": sorted(theirs - found), "only ours": sorted(found - theirs)})
    assert not differing, f"{len(differing)} of {CASES}: {json.dumps(differing[:5], indent=1)}"
