"""What the chart renders to, without a cluster."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import yaml

from dra_driver.controller.settings import ControllerSettings
from dra_driver.daemon.settings import parse
from dra_driver.gpu.simulator.profile import Profile
from dra_driver.node.settings import NodeSettings
from tests.helm.conftest import CHART, Helm

ROOT = CHART.parents[1]
NAMESPACE = "gpu-system"


@dataclass
class Rendered:
    """The objects of `helm template`."""

    objects: list[dict[str, Any]]

    def one(self, kind: str, part: str = "") -> Any:
        (found,) = [one for one in self.objects if one["kind"] == kind and part in one["metadata"]["name"]]
        return found

    def kinds(self) -> set[str]:
        return {one["kind"] for one in self.objects}

    def pod(self, kind: str) -> Any:
        return self.one(kind)["spec"]["template"]["spec"]

    def arguments(self, kind: str) -> list[str]:
        (container,) = self.pod(kind)["containers"]
        return [str(argument) for argument in container["args"]]


def render(helm: Helm, *values: str, release: str = "release") -> Rendered:
    run = helm("template", release, str(CHART), f"--namespace={NAMESPACE}", *(f"--set-json={value}" for value in values))
    assert run.returncode == 0, run.stderr
    return Rendered([one for one in yaml.safe_load_all(run.stdout) if one])


def test_helm_finds_nothing_wrong(helm: Helm) -> None:
    run = helm("lint", "--strict", str(CHART))
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("values", "node", "controller"),
    [
        pytest.param([], "release-dra-driver-node", "release-dra-driver-controller", id="default"),
        pytest.param(['fullnameOverride="gpus"'], "gpus-node", "gpus-controller", id="fullnameOverride"),
        pytest.param(['nameOverride="nvidia"'], "release-nvidia-node", "release-nvidia-controller", id="nameOverride"),
        pytest.param(['node.serviceAccount.name="ann"', 'controller.serviceAccount.name="bob"'], "ann", "bob", id="own names"),
        pytest.param(
            ['node.serviceAccount={"create":false,"name":"ann"}', 'controller.serviceAccount={"create":false,"name":"bob"}'],
            "ann",
            "bob",
            id="made by somebody else",
        ),
    ],
)
def test_one_name_of_the_service_account_is_everywhere(helm: Helm, values: list[str], node: str, controller: str) -> None:
    rendered = render(helm, *values)
    assert rendered.pod("DaemonSet")["serviceAccountName"] == node
    assert rendered.pod("Deployment")["serviceAccountName"] == controller
    for workload, name in (("node", node), ("controller", controller)):
        subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
        binding = rendered.one("ClusterRoleBinding", workload)
        assert binding["subjects"] == [subject]
        assert binding["roleRef"]["name"] == rendered.one("ClusterRole", workload)["metadata"]["name"]
    policy = rendered.one("ValidatingAdmissionPolicy")
    (condition,) = policy["spec"]["matchConditions"]
    assert condition["expression"] == f"request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:{node}'"
    assert rendered.one("ValidatingAdmissionPolicyBinding")["spec"]["policyName"] == policy["metadata"]["name"]
    made = {one["metadata"]["name"] for one in rendered.objects if one["kind"] == "ServiceAccount"}
    assert made == (set() if any('"create":false' in value for value in values) else {node, controller})


def test_a_workload_selects_its_own_pods_and_only_those(helm: Helm) -> None:
    rendered = render(helm, 'node.podLabels={"team":"ml"}')
    selectors = {}
    for kind in ("DaemonSet", "Deployment"):
        spec = rendered.one(kind)["spec"]
        selectors[kind] = spec["selector"]["matchLabels"].items()
        assert selectors[kind] <= spec["template"]["metadata"]["labels"].items()
    assert not selectors["DaemonSet"] <= rendered.one("Deployment")["spec"]["template"]["metadata"]["labels"].items()
    assert rendered.one("DaemonSet")["spec"]["template"]["metadata"]["labels"]["team"] == "ml"


def test_the_roles_are_as_small_as_can_be(helm: Helm) -> None:
    rendered = render(helm)
    (manifest,) = (one for one in yaml.safe_load_all((ROOT / "manifests" / "rbac.yaml").read_text()) if one["kind"] == "ClusterRole")
    assert rendered.one("ClusterRole", "node")["rules"] == manifest["rules"]
    assert rendered.one("ClusterRole", "controller")["rules"] == [
        {"apiGroups": ["resource.k8s.io"], "resources": ["deviceclasses", "resourceslices"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
    ]


@pytest.mark.parametrize("values", [[], ["simulated.enabled=true", "simulated.gpus=2", 'node.logLevel="debug"']], ids=["real", "simulated"])
def test_the_programs_take_the_arguments(helm: Helm, values: list[str]) -> None:
    rendered = render(helm, *values)
    name, *arguments = rendered.arguments("DaemonSet")
    assert name == "node"
    parse(NodeSettings, "dra-driver node", arguments, {"NODE_NAME": "n"})
    name, *arguments = rendered.arguments("Deployment")
    assert name == "controller"
    parse(ControllerSettings, "dra-driver controller", arguments, {})


@pytest.mark.parametrize(
    ("values", "root"),
    [
        pytest.param([], "/", id="default"),
        pytest.param(['nvidiaDriverRoot="/run/nvidia/driver"'], "/run/nvidia/driver", id="driver container"),
        pytest.param(["simulated.enabled=true", 'nvidiaDriverRoot="/run/nvidia/driver"'], "/run/nvidia/driver-simulated", id="simulated"),
    ],
)
def test_the_driver_root_is_mounted_where_the_program_looks_for_it(helm: Helm, values: list[str], root: str) -> None:
    rendered = render(helm, *values)
    settings = parse(NodeSettings, "", rendered.arguments("DaemonSet")[1:], {"NODE_NAME": "n"})
    pod = rendered.pod("DaemonSet")
    volumes = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    seen = {mount["mountPath"]: volumes[mount["name"]] for mount in pod["containers"][0]["volumeMounts"]}
    assert str(settings.driver_root) == seen[str(settings.driver_root_mount)] == root
    for path in (settings.plugin_dir, settings.registry_dir, settings.cdi_dir, settings.pod_resources_socket.parent):
        assert seen[str(path)] == str(path), "kubelet and container runtime see these at the same path"
    assert ("/dev" in seen) is not any("simulated" in value for value in values)


def test_a_kubelet_elsewhere_is_asked_there(helm: Helm) -> None:
    settings = parse(NodeSettings, "", render(helm, 'kubeletDir="/var/lib/k0s/kubelet/"').arguments("DaemonSet")[1:], {"NODE_NAME": "n"})
    assert str(settings.plugin_dir) == "/var/lib/k0s/kubelet/plugins/gpu.nvidia.com"
    mounts = render(helm, 'kubeletDir="/var/lib/k0s/kubelet/"').pod("DaemonSet")["containers"][0]["volumeMounts"]
    assert str(settings.registry_dir) in {mount["mountPath"] for mount in mounts}


def test_simulated_gpus_need_one_value(helm: Helm) -> None:
    real, simulated = render(helm), render(helm, "simulated.enabled=true")
    assert not [argument for argument in real.arguments("DaemonSet") if argument.startswith("--simulate")]
    assert "--simulate=h100-sxm-80gb" in simulated.arguments("DaemonSet")
    assert not [argument for argument in simulated.arguments("DaemonSet") if argument.startswith("--simulate-gpus")]
    assert "--simulate-gpus=0" in render(helm, "simulated.enabled=true", "simulated.gpus=0").arguments("DaemonSet")


def test_the_node_program_goes_to_nodes_with_gpus(helm: Helm) -> None:
    terms = render(helm).pod("DaemonSet")["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {"key": "nvidia.com/gpu.present", "operator": "In", "values": ["true"]} in [term["matchExpressions"][0] for term in terms]
    assert "affinity" not in render(helm, "simulated.enabled=true").pod("DaemonSet")
    assert "affinity" not in render(helm, "node.affinity={}").pod("DaemonSet")
    own: dict[str, Any] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}
    assert render(helm, f"node.affinity={msgspec.json.encode(own).decode()}").pod("DaemonSet")["affinity"] == own


def test_the_new_pod_of_a_node_takes_over_before_the_old_one_ends(helm: Helm) -> None:
    rendered = render(helm)
    strategy = rendered.one("DaemonSet")["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "10%", "maxUnavailable": 0}}
    assert "PodDisruptionBudget" not in rendered.kinds(), "it would keep the old pod from ending"
    pod = rendered.pod("DaemonSet")
    (container,) = pod["containers"]
    assert {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}} in container["env"]
    assert pod["terminationGracePeriodSeconds"] <= 30
    # Two pods of one node at a time: nothing of theirs may be the node's own.
    assert not any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))
    assert not [port for port in container["ports"] if "hostPort" in port]


def test_what_an_unhealthy_gpu_does_to_pods_is_a_value(helm: Helm) -> None:
    arguments = render(helm, 'node.unhealthyEffect="NoExecute"').arguments("DaemonSet")[1:]
    assert parse(NodeSettings, "", arguments, {"NODE_NAME": "n"}).unhealthy_effect == "NoExecute"


def test_the_node_program_is_probed_where_it_listens(helm: Helm) -> None:
    rendered = render(helm, "node.metricsPort=9400")
    (container,) = rendered.pod("DaemonSet")["containers"]
    assert parse(NodeSettings, "", rendered.arguments("DaemonSet")[1:], {"NODE_NAME": "n"}).metrics_port == 9400
    assert container["ports"] == [{"name": "metrics", "containerPort": 9400}]
    paths = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: one["path"] for name, one in paths.items()} == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert {one["port"] for one in paths.values()} == {"metrics"}


def test_the_node_program_sees_the_host_s_processes_and_cannot_touch_them(helm: Helm) -> None:
    rendered = render(helm)
    settings = parse(NodeSettings, "", rendered.arguments("DaemonSet")[1:], {"NODE_NAME": "n"})
    pod = rendered.pod("DaemonSet")
    assert {"name": "proc", "hostPath": {"path": "/proc"}} in pod["volumes"]
    assert {"name": "proc", "mountPath": str(settings.proc_mount), "readOnly": True} in pod["containers"][0]["volumeMounts"]


def test_the_class_is_the_one_of_the_manifests(helm: Helm) -> None:
    manifest = yaml.safe_load((ROOT / "manifests" / "deviceclass.yaml").read_text())
    rendered = render(helm).one("DeviceClass")
    assert rendered["metadata"]["name"] == manifest["metadata"]["name"]
    assert rendered["spec"] == manifest["spec"]
    assert "extendedResourceName" not in render(helm, 'deviceClass.extendedResourceName=""').one("DeviceClass")["spec"]


def test_parts_can_be_left_out(helm: Helm) -> None:
    rendered = render(helm, "controller.enabled=false", "admissionPolicy.enabled=false")
    assert rendered.kinds() == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DaemonSet", "DeviceClass"}


def test_image_and_pull_secrets_are_values(helm: Helm) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for kind in ("DaemonSet", "Deployment"):
        assert render(helm).pod(kind)["containers"][0]["image"] == f"dra-driver:{version}"
        pod = render(helm, 'image={"repository":"registry.example.com/gpu","tag":"t"}', 'imagePullSecrets=[{"name":"s"}]').pod(kind)
        assert pod["containers"][0]["image"] == "registry.example.com/gpu:t"
        assert pod["imagePullSecrets"] == [{"name": "s"}]


def test_the_controller_runs_without_rights_on_its_node(helm: Helm) -> None:
    pod = render(helm).pod("Deployment")
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"livenessProbe", "readinessProbe"} <= pod["containers"][0].keys()


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("simulated.enable=true", "'enable' not allowed"),
        ("tolerations=[]", "'tolerations' not allowed"),
        ("node.serviceAccount.nam=1", "'nam' not allowed"),
        ('node.logLevel="verbose"', "/node/logLevel"),
        ('nvidiaDriverRoot="run/nvidia/driver"', "/nvidiaDriverRoot"),
        ('simulated.profile="h200"', "/simulated/profile"),
        ('simulated.gpus="2"', "/simulated/gpus"),
        ("simulated.gpus=65", "/simulated/gpus"),
        ("controller.metricsPort=0", "/controller/metricsPort"),
        ("node.metricsPort=70000", "/node/metricsPort"),
        ('node.unhealthyEffect="Evict"', "/node/unhealthyEffect"),
        ('node.podLabels={"app.kubernetes.io/component":"x"}', "/node/podLabels"),
        ('simulated.driverRoot="/"', "/simulated/driverRoot"),
        ('fullnameOverride="My_GPUs"', "/fullnameOverride"),
    ],
)
def test_a_wrong_value_is_refused_and_named(helm: Helm, value: str, complaint: str) -> None:
    run = helm("template", "release", str(CHART), f"--set-json={value}")
    assert run.returncode != 0
    assert complaint in run.stderr


def test_the_schema_knows_every_profile() -> None:
    schema = msgspec.json.decode((CHART / "values.schema.json").read_bytes())
    assert schema["properties"]["simulated"]["properties"]["profile"]["enum"] == Profile.names()


def test_every_default_has_a_place_in_the_schema_and_the_other_way_round() -> None:
    schema = msgspec.json.decode((CHART / "values.schema.json").read_bytes())

    def compare(values: dict[str, Any], described: dict[str, Any], where: str) -> None:
        known = described["properties"].keys() - {"global"}
        assert values.keys() == known, where
        for name, value in values.items():
            below = described["properties"][name]
            below = schema["definitions"][below["$ref"].rpartition("/")[2]] if "$ref" in below else below
            if isinstance(value, dict) and "properties" in below:
                compare(value, below, f"{where}.{name}")

    compare(yaml.safe_load((CHART / "values.yaml").read_text()), schema, "values")


def test_the_chart_has_the_version_of_the_programs() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)
