"""The cluster as a user sees it: apply, get, delete, wait, exec. On the official client, so that ours is not its own judge."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from kubernetes import client, config, dynamic
from kubernetes.dynamic.exceptions import NotFoundError

T = TypeVar("T")
Object = dict[str, Any]

HANG = 90.0  # seconds; a wait that lasts longer is a failure, not a slow machine


class Kube:
    """One cluster, by its kubeconfig. Objects are plain dictionaries. `kubectl` is the program's path."""

    def __init__(self, kubeconfig: Path, kubectl: str) -> None:
        self._kubeconfig, self._kubectl = kubeconfig, kubectl
        configuration = client.Configuration()
        config.load_kube_config(str(kubeconfig), client_configuration=configuration)
        self.api = client.ApiClient(configuration)
        self._core = client.CoreV1Api(self.api)
        self._dynamic = dynamic.DynamicClient(self.api)

    def close(self) -> None:
        """Ends its connections."""
        self.api.rest_client.pool_manager.clear()

    def apply(self, *objects: Object) -> list[Object]:
        """Creates or updates each object by server-side apply; returns what is stored."""
        applied = []
        for one in objects:
            resource = self._resource(one["apiVersion"], one["kind"])
            meta = one["metadata"]
            stored = self._dynamic.server_side_apply(
                resource, one, name=meta["name"], namespace=meta.get("namespace"), field_manager="e2e", force_conflicts=True
            )
            applied.append(stored.to_dict())
        return applied

    def apply_file(self, path: Path, namespace: str | None = None) -> list[Object]:
        """Applies a manifest; objects without a namespace of their own go to `namespace`."""
        objects = [one for one in yaml.safe_load_all(path.read_text()) if one]
        for one in objects:
            if namespace and "namespace" not in one["metadata"] and self._resource(one["apiVersion"], one["kind"]).namespaced:
                one["metadata"]["namespace"] = namespace
        return self.apply(*objects)

    def create(self, one: Object) -> Object:
        """POST; raises `kubernetes.client.ApiException`."""
        stored: Object = self._resource(one["apiVersion"], one["kind"]).create(body=one, namespace=one["metadata"].get("namespace")).to_dict()
        return stored

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """One object, None when there is none."""
        try:
            found: Object = self._kind(kind).get(name=name, namespace=namespace).to_dict()
        except NotFoundError:
            return None
        return found

    def all(self, kind: str, namespace: str | None = None, **selectors: str) -> list[Object]:
        """All objects; `field_selector=` and `label_selector=` as the client has them."""
        return [one.to_dict() for one in self._kind(kind).get(namespace=namespace, **selectors).items]

    def delete_file(self, path: Path) -> None:
        """Deletes what a manifest names; returns when it is gone."""
        self.kubectl("delete", "--ignore-not-found", f"--filename={path}")

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl prints."""
        command = [self._kubectl, f"--kubeconfig={self._kubeconfig}", *arguments]
        run = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=HANG)
        assert run.returncode == 0, f"kubectl {' '.join(arguments)}: {run.stderr}"
        return run.stdout

    def delete(self, kind: str, name: str, namespace: str | None = None, **options: Any) -> None:
        """DELETE; an object that is gone is fine."""
        try:
            self._kind(kind).delete(name=name, namespace=namespace, **options)
        except NotFoundError:
            return

    def patch(self, kind: str, name: str, namespace: str, changes: Object) -> None:
        """Merges `changes` into the object."""
        self._kind(kind).patch(name=name, namespace=namespace, body=changes, content_type="application/merge-patch+json")

    def patch_status(self, kind: str, name: str, namespace: str, status: Object) -> None:
        """Merges `status` into the object's."""
        self._kind(kind).status.patch(name=name, namespace=namespace, body={"status": status}, content_type="application/merge-patch+json")

    def token(self, namespace: str, account: str, *, bound_to: Object | None = None) -> str:
        """A token of a ServiceAccount, bound to a Pod or Node."""
        bound = None
        if bound_to:
            meta = bound_to["metadata"]
            bound = client.V1BoundObjectReference(kind=bound_to["kind"], api_version="v1", name=meta["name"], uid=meta["uid"])
        request = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[], bound_object_ref=bound, expiration_seconds=3600))
        answer = self._core.create_namespaced_service_account_token(account, namespace, request)
        assert answer.status is not None
        return str(answer.status.token)

    def exec(self, namespace: str, pod: str, *command: str, container: str | None = None) -> str:
        """What a command prints in a running container. By kubectl: the official client's exec leaves connections open."""
        options = [f"--container={container}"] if container else []
        return self.kubectl(f"--namespace={namespace}", "exec", pod, *options, "--", *command)

    def log(self, namespace: str, pod: str) -> str:
        """The log of a pod's only container."""
        text: str = self._core.read_namespaced_pod_log(pod, namespace)
        return text

    def events(self, namespace: str, about: str) -> list[Object]:
        """Events about one object, as reason and message."""
        return [one for one in self.all("Event", namespace) if one["involvedObject"]["name"] == about]

    def phase(self, namespace: str, pod: str) -> str:
        """The pod's phase, "" when it is gone."""
        found = self.get("Pod", pod, namespace)
        return str(found["status"].get("phase", "")) if found else ""

    def wait_running(self, namespace: str, *pods: str) -> None:
        """Until all pods run."""
        for name in pods:
            self.wait(f"pod {name} runs", lambda name=name: self.phase(namespace, name) == "Running", about=(namespace, name))  # type: ignore[misc]

    def wait_running_after_a_failure(self, namespace: str, name: str) -> None:
        """Until the pod runs. The kubelet of 1.37 repeats a failed prepare after more than a minute, or when the pod changes: so change it."""

        def runs() -> bool:
            if self.phase(namespace, name) == "Running":
                return True
            self.patch("Pod", name, namespace, {"metadata": {"annotations": {"e2e/nudge": str(time.monotonic())}}})
            time.sleep(1)
            return False

        self.wait(f"pod {name} runs", runs, about=(namespace, name))

    def wait_gone(self, kind: str, name: str, namespace: str | None = None) -> None:
        """Until the object is gone."""
        self.wait(f"{kind} {name} is gone", lambda: self.get(kind, name, namespace) is None, about=(namespace or "", name))

    def wait(self, what: str, condition: Callable[[], T | None], *, limit: float = HANG, about: tuple[str, str] | None = None) -> T:
        """Until the condition is true; returns its value. The failure shows the events about an object."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if value := condition():
                return value
            time.sleep(0.1)
        told = self._told(*about) if about else ""
        raise AssertionError(f"not within {limit:.0f} s: {what}{told}")

    def _told(self, namespace: str, name: str) -> str:
        lines = [f"{one['reason']}: {one.get('message', '')}" for one in self.events(namespace, name)]
        return "".join(f"\n  {line}" for line in lines)

    def _kind(self, kind: str) -> Any:
        version = "resource.k8s.io/v1" if kind.startswith(("Resource", "DeviceClass")) else "v1"
        return self._resource(version, kind)

    def _resource(self, api_version: str, kind: str) -> Any:
        return self._dynamic.resources.get(api_version=api_version, kind=kind)


def claim_ref(name: str, *, claim: str | None = None, template: str | None = None) -> Object:
    """An entry of a pod's spec.resourceClaims."""
    return {"name": name, "resourceClaimName": claim} if claim else {"name": name, "resourceClaimTemplateName": template}


def pod(
    namespace: str,
    name: str,
    claims: Iterable[Object] = (),
    *,
    node: str | None = None,
    command: str = "sleep 3600",
    containers: int = 1,
    grace: int = 1,
) -> Object:
    """A pod whose containers all use all of its claims; `node` pins it through the scheduler."""
    claims = list(claims)
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace,
        "resourceClaims": claims,
        "containers": [
            {
                "name": f"c{number}",
                "image": "localhost/busybox:e2e",
                "command": ["sh", "-c", command],
                "resources": {"claims": [{"name": one["name"]} for one in claims]},
            }
            for number in range(containers)
        ],
    }
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def claim(namespace: str, name: str, *, selectors: Iterable[str] = (), count: int = 1) -> Object:
    """A ResourceClaim for GPUs of our class."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": _devices(selectors, count),
    }


def template(namespace: str, name: str, *, selectors: Iterable[str] = (), count: int = 1) -> Object:
    """A ResourceClaimTemplate for GPUs of our class."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": _devices(selectors, count)},
    }


def _devices(selectors: Iterable[str], count: int) -> Object:
    exactly: Object = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": count}
    if found := [{"cel": {"expression": text}} for text in selectors]:
        exactly["selectors"] = found
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
