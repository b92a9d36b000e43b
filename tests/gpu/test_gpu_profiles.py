"""Profiles: real machines, any number of GPUs, identities that repeat."""

from __future__ import annotations

import pytest

from dra_driver.errors import SettingsError
from dra_driver.gpu.simulator.profile import Profile


@pytest.mark.parametrize("name", Profile.names())
def test_a_profile_s_slots_are_a_machine_s(name: str) -> None:
    slots = Profile.load(name).slots
    assert [slot.pci for slot in slots] == sorted({slot.pci for slot in slots})
    assert sorted(slot.minor for slot in slots) == list(range(len(slots)))


def test_both_machines_have_eight_gpus() -> None:
    assert {name: len(Profile.load(name).slots) for name in Profile.names()} == {"a100-sxm-40gb": 8, "h100-sxm-80gb": 8}


def test_an_unknown_profile_names_the_known_and_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"'h100-sxm-80' does not exist; there are a100-sxm-40gb, h100-sxm-80gb; did you mean h100-sxm-80gb\?"):
        Profile.load("h100-sxm-80")


def test_a_profile_name_is_no_path() -> None:
    with pytest.raises(SettingsError):
        Profile.load("../profiles/h100-sxm-80gb")


@pytest.mark.parametrize("name", Profile.names())
@pytest.mark.parametrize("count", [0, 1, 8, 9, 248])
def test_any_number_of_gpus_has_distinct_places_and_minors(name: str, count: int) -> None:
    profile = Profile.load(name, gpus=count)
    gpus = profile.gpus("node-a")
    assert len(gpus) == count
    for identities in ({gpu.uuid for gpu in gpus}, {gpu.slot.pci for gpu in gpus}, {gpu.slot.minor for gpu in gpus}):
        assert len(identities) == count
    assert all(0 <= gpu.slot.minor < 254 for gpu in gpus)


def test_further_gpus_are_in_further_pci_domains() -> None:
    ninth = Profile.load("h100-sxm-80gb", gpus=9).slots[8]
    assert (ninth.pci, ninth.via[0], ninth.minor) == ("0001:1b:00.0", "0001:15:01.0", 8)


@pytest.mark.parametrize("count", [-1, 249])
def test_a_number_of_gpus_that_minor_numbers_do_not_allow_is_refused(count: int) -> None:
    with pytest.raises(SettingsError, match=f"{count} GPUs were asked for, 0 to 248 are possible"):
        Profile.load("h100-sxm-80gb", gpus=count)


def test_uuids_repeat_for_a_seed_and_differ_between_seeds_and_products() -> None:
    def uuids(profile: str, seed: str) -> list[str]:
        return [gpu.uuid for gpu in Profile.load(profile).gpus(seed)]

    assert uuids("h100-sxm-80gb", "node-a") == uuids("h100-sxm-80gb", "node-a")
    assert not set(uuids("h100-sxm-80gb", "node-a")) & set(uuids("h100-sxm-80gb", "node-b"))
    assert not set(uuids("h100-sxm-80gb", "node-a")) & set(uuids("a100-sxm-40gb", "node-a"))
