from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from dra_driver.errors import SettingsError
from e2e.cluster.settings import Settings, check_ours, format_switches, parse_network, parse_nodes, parse_switches


def settings(state: Path) -> Settings:
    return Settings(state=state, tools=Path("/tools"), nodes=("one", "two"), feature_gates=(("A", True),), runtime_config=(("api/v1", False),))


@pytest.mark.parametrize("text", ["", "a,", "Node", "-a", "a-", "a.b", "a" * 43, "a,b,a", "control-plane"])
def test_a_name_that_no_node_can_have_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="--nodes"):
        parse_nodes(text)


def test_nodes_keep_their_order() -> None:
    assert parse_nodes("node-b,node-a,n3") == ("node-b", "node-a", "n3")


@pytest.mark.parametrize("text", ["A", "A=", "=true", "A=yes", "A=true;B=true"])
def test_a_switch_is_true_or_false(text: str) -> None:
    with pytest.raises(SettingsError, match="--feature-gates"):
        parse_switches("--feature-gates", text)


def test_switches_come_back_as_kubernetes_writes_them() -> None:
    assert format_switches(parse_switches("--runtime-config", "resource.k8s.io/v1beta1=true,api/all=false")) == (
        "resource.k8s.io/v1beta1=true,api/all=false"
    )
    assert parse_switches("--runtime-config", "") == {}


@pytest.mark.parametrize("text", ["172.30.0.1/24", "172.30.0.0/16", "10.96.3.0/24", "10.88.0.0/24", "here"])
def test_a_network_that_cannot_work_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="--network"):
        parse_network(text)


def test_addresses_and_pod_subnets_differ_on_every_machine() -> None:
    one = settings(Path("/state"))
    addresses = [one.host_address, one.control_plane_address, *(one.node_address(name) for name in one.nodes)]
    assert len(set(addresses)) == 4
    assert all(address in one.network for address in addresses)
    assert one.node_pods("one") == IPv4Network("10.88.1.0/24")
    assert one.node_pods("two") == IPv4Network("10.88.2.0/24")


def test_saved_settings_are_the_same_settings(tmp_path: Path) -> None:
    saved = settings(tmp_path / "state")
    saved.save()
    assert Settings.load(saved.state) == saved


def test_a_directory_with_other_content_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "letter").touch()
    with pytest.raises(SettingsError, match="not the state of a cluster"):
        settings(tmp_path).save()
    with pytest.raises(SettingsError, match="not the state of a cluster"):
        check_ours(tmp_path)


def test_no_cluster_is_said_with_the_command_that_starts_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no cluster in .* up --state"):
        Settings.load(tmp_path)


def test_a_start_killed_while_it_wrote_its_settings_is_no_cluster(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"tools": "/to')
    with pytest.raises(SettingsError, match="down --state"):
        Settings.load(tmp_path)
