"""Settings of the host that claims need."""

from __future__ import annotations

from pathlib import Path

import pytest

from dra_driver.errors import ClaimError, ClaimRetryError, DraError, HostError
from dra_driver.k8s.client import Client
from dra_driver.kubelet.driver import HostChange
from tests.kubelet.host import Host, devices
from tests.kubelet.toy import ToyDriver, allocated, result


@pytest.fixture
def host_with_modes(host: Host) -> Host:
    """toy-0 needs two settings, toy-1 to toy-3 share one of them, toy-4 needs another value of it."""
    host.driver.wants = {
        "toy-0": [HostChange("mode", "fast"), HostChange("power", "high")],
        **{f"toy-{number}": [HostChange("mode", "fast")] for number in (1, 2, 3)},
        "toy-4": [HostChange("mode", "slow")],
    }
    return host


def test_a_setting_is_made_for_the_claim_and_taken_back_with_it(host_with_modes: Host, client: Client) -> None:
    host = host_with_modes
    (host.driver.settings_directory / "power").write_text("medium")
    claim = allocated(client, "c", result("toy-0"))
    assert devices(host.prepare(claim)) == ["toy-0"]
    assert host.settings() == {"mode": "fast", "power": "high"}
    assert host.unprepare(claim) is None
    assert host.settings() == {"power": "medium"}, "what was there before"


def test_claims_that_want_the_same_share_it_and_the_last_one_restores_it(host_with_modes: Host, client: Client) -> None:
    host = host_with_modes
    (host.driver.settings_directory / "mode").write_text("eco")
    claims = [allocated(client, f"c{number}", result(f"toy-{number}")) for number in (1, 2, 3)]
    for claim in claims:
        assert devices(host.prepare(claim))
    for claim in claims[:2]:
        assert host.unprepare(claim) is None
        assert host.settings() == {"mode": "fast"}
    host.close()
    host.restart()
    assert host.unprepare(claims[2]) is None
    assert host.settings() == {"mode": "eco"}


def test_a_claim_that_wants_another_value_is_refused_and_changes_nothing(host_with_modes: Host, client: Client) -> None:
    host = host_with_modes
    first, other = allocated(client, "first", result("toy-1")), allocated(client, "other", result("toy-4"))
    host.prepare(first)
    error = host.prepare(other)
    assert isinstance(error, ClaimRetryError)
    assert "needs mode to be slow, but claim default/first" in str(error)
    assert host.settings() == {"mode": "fast"}
    assert list(host.held()) == [first.uid]
    host.unprepare(first)
    assert devices(host.prepare(other)) == ["toy-4"]
    assert host.settings() == {"mode": "slow"}


def test_a_setting_that_cannot_be_made_takes_back_those_before_it_and_frees_the_device(host_with_modes: Host, client: Client) -> None:
    host = host_with_modes
    claim = allocated(client, "c", result("toy-0"))
    applied: list[HostChange] = []
    plain = host.driver.apply_setting

    def apply(change: HostChange) -> None:
        applied.append(change)
        if change == HostChange("power", "high"):
            raise HostError("power supply says no")
        plain(change)

    host.driver.apply_setting = apply  # type: ignore[method-assign]
    error = host.prepare(claim)
    assert isinstance(error, HostError)
    assert "power supply says no" in str(error)
    assert applied == [HostChange("mode", "fast"), HostChange("power", "high"), HostChange("power", "default"), HostChange("mode", "default")]
    assert host.settings() == {}
    assert host.held() == {}
    assert host.specs() == set()


def test_what_cannot_be_taken_back_stays_reserved_until_it_can(host_with_modes: Host, client: Client) -> None:
    host = host_with_modes
    claim, other = allocated(client, "c", result("toy-1")), allocated(client, "other", result("toy-4"))
    host.prepare(claim)
    host.driver.stuck = {"mode"}
    assert isinstance(host.unprepare(claim), HostError)
    assert host.held() == {claim.uid: ["toy-1"]}
    host.close()
    host.restart()
    assert isinstance(host.prepare(other), DraError), "the setting is still noted"
    host.driver.stuck = set()
    assert host.unprepare(claim) is None
    assert host.settings() == {}


def test_a_failed_prepare_whose_change_cannot_be_taken_back_is_finished_by_an_unprepare(host_with_modes: Host, client: Client) -> None:
    host = host_with_modes
    claim = allocated(client, "c", result("toy-1"))
    host.driver.stuck = {"mode"}
    assert isinstance(host.prepare(claim), HostError)
    assert host.held() == {claim.uid: ["toy-1"]}, "what may be changed is not forgotten"
    host.driver.stuck = set()
    assert host.unprepare(claim) is None
    assert host.held() == {}


def test_preparing_again_makes_a_setting_that_somebody_has_changed(host_with_modes: Host, client: Client) -> None:
    host = host_with_modes
    claim = allocated(client, "c", result("toy-1"))
    first = host.prepare(claim)
    (host.driver.settings_directory / "mode").write_text("tampered")
    assert host.prepare(claim) == first
    assert host.settings() == {"mode": "fast"}
    host.unprepare(claim)
    assert host.settings() == {}, "what was there before the first prepare"


@pytest.mark.parametrize("boot_id", ["boot-2", ""])
def test_after_a_reboot_the_next_prepare_does_all_work_again(
    host_with_modes: Host, client: Client, boot_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    host = host_with_modes
    claim = allocated(client, "c", result("toy-0"))
    first = host.prepare(claim)
    host.close()
    for path in host.driver.settings_directory.iterdir():
        path.unlink()  # settings are lost in a reboot
    host.cdi.path(claim).unlink()  # and so is /run
    host.boot_id = boot_id
    host.restart()
    (told,) = [record for record in caplog.records if "claims were prepared in an earlier boot" in record.message]
    assert vars(told)["claims"] == 1
    revision = host.journal.entries()[0].revision
    assert host.prepare(claim) == first
    assert host.journal.entries()[0].revision != revision
    assert host.settings() == {"mode": "fast", "power": "high"}
    assert host.specs() == {claim.uid}
    assert host.journal.entries()[0].boot_id == boot_id
    host.unprepare(claim)
    assert host.settings() == {}


def test_a_claim_allocated_anew_gives_up_its_old_settings_first(host_with_modes: Host, client: Client) -> None:
    host = host_with_modes
    host.prepare(allocated(client, "c", result("toy-1")))
    entry = host.journal.entries()[0]
    anew = host.keeper.holdings.take([host.keeper._reader.plan(entry.claim, type(entry.allocation)(results=[result("toy-4")]))], 30)
    assert devices(anew[entry.claim.uid]) == ["toy-4"]
    assert host.settings() == {"mode": "slow"}
    host.unprepare(entry.claim)
    assert host.settings() == {}


def test_a_setting_that_a_newer_driver_no_longer_needs_is_still_taken_back(host_with_modes: Host, client: Client) -> None:
    host = host_with_modes
    claim = allocated(client, "c", result("toy-0"))
    host.prepare(claim)
    host.driver.wants = {"toy-0": [HostChange("power", "high")]}
    assert devices(host.prepare(claim)) == ["toy-0"]
    host.unprepare(claim)
    assert host.settings() == {}


def test_a_driver_without_settings_says_so(client: Client, tmp_path: Path) -> None:
    class Plain(ToyDriver):
        def read_setting(self, subject: str) -> str:
            return super(ToyDriver, self).read_setting(subject)

    host = Host(client, tmp_path, Plain())
    host.driver.wants = {"toy-0": [HostChange("mode", "fast")]}
    assert "setting mode: this driver reads none" in str(host.prepare(allocated(client, "c", result("toy-0"))))
    host.close()


def test_two_devices_of_a_claim_may_need_the_same_setting(host_with_modes: Host, client: Client) -> None:
    host = host_with_modes
    claim = allocated(client, "c", result("toy-1"), result("toy-2"), result("toy-0"))
    assert devices(host.prepare(claim)) == ["toy-1", "toy-2", "toy-0"]
    assert host.settings() == {"mode": "fast", "power": "high"}
    assert host.unprepare(claim) is None
    assert host.settings() == {}


def test_two_devices_of_a_claim_that_need_a_setting_otherwise_are_the_fault_of_that_claim_alone(host_with_modes: Host, client: Client) -> None:
    host = host_with_modes
    bad, good = allocated(client, "bad", result("toy-1"), result("toy-4")), allocated(client, "good", result("toy-5"))
    outcomes = host.keeper.prepare([bad, good])
    assert devices(outcomes[good.uid]) == ["toy-5"]
    error = outcomes[bad.uid]
    assert isinstance(error, ClaimError)
    assert "mode" in str(error)
    assert host.settings() == {}


def test_a_prepared_claim_whose_devices_need_more_settings_now_keeps_what_it_has_when_they_cannot_be_made(
    host_with_modes: Host, client: Client
) -> None:
    host = host_with_modes
    claim = allocated(client, "c", result("toy-5"))
    host.prepare(claim)
    host.driver.wants["toy-5"] = [HostChange("mode", "fast")]  # a newer version of the driver
    host.driver.stuck = {"mode"}
    assert isinstance(host.prepare(claim), HostError)
    host.driver.stuck = set()
    host.close()
    host.restart()
    assert host.held() == {claim.uid: ["toy-5"]}, "a container of it may run"
    assert host.specs() == {claim.uid}
    assert devices(host.prepare(claim)) == ["toy-5"]
    assert host.settings() == {"mode": "fast"}
    host.unprepare(claim)
    assert host.settings() == {}
