"""The kubelet stand-in finds, checks, tells and forgets plugins as a kubelet does."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.errors import ClaimRetryError
from tests.sandbox.fake_dra_plugin import FakePlugin
from tests.sandbox.kubelet_bed import QUICK, Bed, running_bed

NAME = "gpu.example.com"


@pytest.fixture
def bed() -> Iterator[Bed]:
    with running_bed() as running:
        yield running


def wait_failure(bed: Bed, plugin: FakePlugin) -> str:
    assert bed.kubelet.registry.wait_for(lambda: str(plugin.registrar) in bed.kubelet.registry.failures, 10)
    return bed.kubelet.registry.failures[str(plugin.registrar)]


def wait_gone(bed: Bed) -> None:
    assert bed.kubelet.registry.wait_for(lambda: not bed.kubelet.registry.plugins(), 10)


def test_a_plugin_is_asked_and_told(bed: Bed) -> None:
    with FakePlugin(bed.root) as plugin:
        assert bed.kubelet.wait_registered(NAME)
        assert [(status.plugin_registered, status.error) for status in plugin.statuses] == [(True, "")]
    info, notify = bed.kubelet.calls
    assert (info.method, info.request, info.timeout) == ("/pluginregistration.Registration/GetInfo", {}, QUICK.get_info)
    assert info.response == {
        "type": "DRAPlugin",
        "name": NAME,
        "endpoint": str(plugin.endpoint),
        "supported_versions": ["v1.DRAPlugin", "v1beta1.DRAPlugin"],
    }
    assert (notify.method, notify.request) == ("/pluginregistration.Registration/NotifyRegistrationStatus", {"plugin_registered": True})
    assert notify.timeout == QUICK.notify == 5.0


@pytest.mark.parametrize(
    ("versions", "service"),
    [
        (("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth"), "v1.DRAPlugin"),
        (("v1beta1.DRAPlugin", "v1.DRAPlugin"), "v1beta1.DRAPlugin"),
        (("v7.DRAPlugin", "v1beta1.DRAPlugin"), "v1beta1.DRAPlugin"),
    ],
)
def test_the_first_known_version_in_the_plugins_order_is_used(bed: Bed, versions: tuple[str, ...], service: str) -> None:
    with FakePlugin(bed.root, versions=versions):
        assert bed.kubelet.wait_registered(NAME)
        assert bed.kubelet.registry.plugin(NAME).service == service


NOT_VALID = (
    "RegisterPlugin error -- plugin validation failed with err: "
    "invalid supported gRPC versions of DRA driver plugin gpu.example.com at endpoint {endpoint}: "
)
NONE_KNOWN = 'none of services supported by the plugin (["v7.DRAPlugin" "x"]) are supported by the kubelet (["v1.DRAPlugin" "v1beta1.DRAPlugin"])'


@pytest.mark.parametrize(
    ("versions", "plugin_type", "text"),
    [
        (("v7.DRAPlugin", "x"), "DRAPlugin", NOT_VALID + NONE_KNOWN),
        ((), "DRAPlugin", NOT_VALID + "empty list of supported gRPC services (aka supported versions)"),
        (("v1.DRAPlugin",), "Toaster", "RegisterPlugin error -- no handler registered for plugin type: Toaster at socket {socket}"),
    ],
)
def test_a_plugin_that_does_not_fit_is_told_why_again_and_again(bed: Bed, versions: tuple[str, ...], plugin_type: str, text: str) -> None:
    with FakePlugin(bed.root, versions=versions, plugin_type=plugin_type) as plugin:
        expected = text.format(endpoint=plugin.endpoint, socket=plugin.registrar)
        assert bed.kubelet.registry.wait_for(lambda: len(plugin.statuses) >= 2, 10)
        assert {(status.plugin_registered, status.error) for status in plugin.statuses} == {(False, expected)}
        assert bed.kubelet.registry.plugins() == []


def test_without_an_endpoint_the_registrar_socket_serves(bed: Bed) -> None:
    plugin = FakePlugin(bed.root)
    plugin.info.endpoint = ""
    with plugin:
        assert bed.kubelet.wait_registered(NAME)
        assert bed.kubelet.registry.plugin(NAME).endpoint == str(plugin.registrar)


def test_getinfo_that_does_not_answer_in_time_is_repeated(bed: Bed) -> None:
    plugin = FakePlugin(bed.root)
    plugin.hold_info.clear()
    with plugin:
        text = wait_failure(bed, plugin)
        assert text.startswith(f"RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {plugin.registrar}, err: rpc error")
        assert "code = DeadlineExceeded" in text
        assert plugin.statuses == []
        plugin.hold_info.set()
        assert bed.kubelet.wait_registered(NAME)
        assert bed.kubelet.registry.failures == {}


def test_a_plugin_that_refuses_the_good_news_is_not_registered(bed: Bed) -> None:
    plugin = FakePlugin(bed.root)
    plugin.refuse_status = True
    with plugin:
        assert "failed to send registration status" in wait_failure(bed, plugin)
        assert bed.kubelet.registry.plugins() == []
        plugin.refuse_status = False
        assert bed.kubelet.wait_registered(NAME)


def test_an_error_that_nobody_expected_is_a_failure_and_repeated(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(bed.kubelet.registry, "_validated", lambda *_: 1 / 0)
        with FakePlugin(bed.root) as plugin:
            assert wait_failure(bed, plugin) == "RegisterPlugin error -- ZeroDivisionError: division by zero"
            assert bed.kubelet.registry.plugins() == []
            patched.undo()
            assert bed.kubelet.wait_registered(NAME)
            assert bed.kubelet.registry.failures == {}


def test_the_end_of_the_socket_file_ends_the_registration(bed: Bed) -> None:
    with FakePlugin(bed.root) as plugin:
        assert bed.kubelet.wait_registered(NAME)
        plugin.registrar.unlink()
        wait_gone(bed)
        with pytest.raises(ClaimRetryError, match=r"^DRA driver gpu.example.com is not registered$"):
            bed.kubelet.registry.plugin(NAME)


def test_a_restarted_plugin_registers_again_at_the_same_path(bed: Bed) -> None:
    for _ in range(5):
        with FakePlugin(bed.root) as plugin:
            assert bed.kubelet.registry.wait_for(lambda: bool(plugin.statuses), 10)
            assert plugin.statuses[0].plugin_registered


def test_a_stale_socket_does_not_keep_others_waiting_and_may_be_replaced(bed: Bed) -> None:
    stale = bed.kubelet.registry_directory / "stale-reg.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(stale))
    listener.close()
    with FakePlugin(bed.root):
        assert bed.kubelet.wait_registered(NAME, timeout=QUICK.dial / 2)
    stale.unlink()
    revived = FakePlugin(bed.root, "other.example.com")
    revived.registrar = stale
    with revived:
        assert bed.kubelet.wait_registered("other.example.com")


def test_a_stale_socket_is_reported_after_the_dial_timeout() -> None:
    with running_bed(timing=QUICK.__class__(scan=0.01, dial=0.1)) as bed:
        stale = bed.kubelet.registry_directory / "stale-reg.sock"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(stale))
        listener.close()
        assert bed.kubelet.registry.wait_for(lambda: str(stale) in bed.kubelet.registry.failures, 10)
        expected = f"RegisterPlugin error -- dial failed at socket {stale}, err: context deadline exceeded"
        assert bed.kubelet.registry.failures == {str(stale): expected}


def test_dot_files_and_plain_files_are_ignored_and_directories_walked(bed: Bed) -> None:
    registry = bed.kubelet.registry_directory
    (registry / "plain-reg.sock").write_text("")
    hidden = FakePlugin(bed.root, "hidden.example.com")
    hidden.registrar = registry / ".hidden-reg.sock"
    deep = FakePlugin(bed.root, "deep.example.com")
    deep.registrar = registry / "below" / "deep-reg.sock"
    deep.registrar.parent.mkdir()
    with hidden, deep:
        assert bed.kubelet.wait_registered("deep.example.com")
        assert [plugin.driver for plugin in bed.kubelet.registry.plugins()] == ["deep.example.com"]
        assert hidden.statuses == []


def test_two_instances_the_latest_connected_one_is_asked(bed: Bed) -> None:
    with FakePlugin(bed.root, instance="-1") as old:
        assert bed.kubelet.wait_registered(NAME)
        with FakePlugin(bed.root, instance="-2") as new:
            assert bed.kubelet.registry.wait_for(lambda: [p.connected for p in bed.kubelet.registry.plugins()] == [True, True], 10)
            assert bed.kubelet.registry.plugin(NAME).endpoint == str(new.endpoint)
            new.stop_service()
            assert bed.kubelet.registry.wait_for(lambda: bed.kubelet.registry.plugin(NAME).endpoint == str(old.endpoint), 10)


def test_the_same_endpoint_twice_is_refused(bed: Bed) -> None:
    with FakePlugin(bed.root) as first:
        assert bed.kubelet.wait_registered(NAME)
        second = FakePlugin(bed.root, instance="-2")
        second.info.endpoint = str(first.endpoint)
        with second:
            text = wait_failure(bed, second)
    assert text == (
        "RegisterPlugin error -- plugin registration failed with err: "
        f"endpoint {first.endpoint} already registered for DRA driver plugin gpu.example.com"
    )
    assert second.statuses[0].error == text


def test_a_restarted_kubelet_finds_the_plugins_that_are_there(bed: Bed) -> None:
    with FakePlugin(bed.root) as plugin:
        assert bed.kubelet.wait_registered(NAME)
        bed.kubelet.restart()
        assert bed.kubelet.wait_registered(NAME)
    assert [status.plugin_registered for status in plugin.statuses] == [True, True]
    assert bed.methods() == ["GetInfo", "NotifyRegistrationStatus"] * 2


def test_stop_is_quick_while_a_stale_socket_is_dialled(tmp_path: Path) -> None:
    with running_bed() as bed:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(bed.kubelet.registry_directory / "stale-reg.sock"))
        listener.close()
        before = os.times().elapsed
        bed.kubelet.stop()
    assert os.times().elapsed - before < QUICK.dial / 2
