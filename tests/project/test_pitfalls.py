"""Public reports about drivers like this one, and the tests in which each kind of fault would show.

Numbers are those of the collection of 40 reports that this project keeps; the text says what went wrong there. Reports about parts that do not exist
yet (MIG, metrics of GPUs, admission) come with their parts.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PITFALLS = {
    "P01 the first pod after boot finds no device nodes": [
        "tests/gpu/test_gpu_container_edits.py::test_a_gpu_without_its_node_is_an_error_until_the_node_is_there",
        "e2e/test_cdi.py::test_a_device_node_that_is_late_fails_its_claim_and_the_next_try_has_all_of_them",
    ],
    "P02 edits of a driver that was replaced meanwhile": [
        "tests/gpu/test_gpu_container_edits.py::test_a_replaced_driver_is_seen_by_the_next_call",
        "e2e/test_cdi.py::test_running_pods_follow_a_driver_that_was_installed_elsewhere",
    ],
    "P03 state of the host that a reboot took away": [
        "tests/kubelet/test_host_changes.py::test_after_a_reboot_the_next_prepare_does_all_work_again",
        "tests/kubelet/test_journal.py::test_what_was_done_in_another_boot_or_in_one_that_is_not_known_is_not_there_any_more",
    ],
    "P04 claims that hold devices for ever": [
        "tests/kubelet/test_sweep.py::test_a_claim_that_is_gone_twice_and_for_long_is_freed",
        "e2e/test_sweep.py::test_a_device_is_freed_only_when_no_process_has_it_open",
    ],
    "P05 a half-done prepare that can neither go on nor back": [
        "tests/kubelet/test_crashes.py::test_a_crash_before_a_step_is_made_good",
        "tests/kubelet/test_crashes.py::test_a_crash_during_the_start_after_a_crash_is_made_good_too",
    ],
    "P06 a failure in the middle leaves the host changed": [
        "tests/kubelet/test_host_changes.py::test_a_setting_that_cannot_be_made_takes_back_those_before_it_and_frees_the_device",
        "tests/kubelet/test_host_changes.py::test_what_cannot_be_taken_back_stays_reserved_until_it_can",
    ],
    "P07 a journal that stops every start": [
        "tests/kubelet/test_database.py::test_a_file_of_the_first_version_is_taken_over_with_its_claims",
        "tests/kubelet/test_database.py::test_a_newer_file_that_this_version_can_use_is_used_and_keeps_what_the_newer_one_added",
        "tests/kubelet/test_quarantine.py::test_a_damaged_journal_is_kept_under_another_name_and_a_new_one_is_made",
        "e2e/test_lost_journal.py::test_a_gpu_in_use_is_given_to_nobody_else_when_the_journal_was_damaged",
    ],
    "P08 one device for two claims": [
        "tests/kubelet/test_journal.py::test_who_may_have_a_device_at_the_same_time",
        "tests/kubelet/test_journal.py::test_devices_that_overlap_exclude_each_other_and_their_siblings_do_not",
        "e2e/test_held_devices.py::test_a_pod_deleted_by_force_keeps_its_gpu_until_its_container_is_dead",
    ],
    "P09 prepare and unprepare of a claim at the same time": [
        "tests/kubelet/test_guard.py::test_a_prepare_after_an_unprepare_does_not_join_the_one_before",
        "tests/kubelet/test_claims.py::test_an_unprepare_never_overtakes_a_prepare_of_its_claim",
        "tests/kubelet/test_claims_state_machine.py::Claims",
    ],
    "P10 the kubelet forgets what it has prepared": [
        "tests/kubelet/test_sweep.py::test_what_counts_as_gone",
        "e2e/test_restarts.py::test_the_kubelet_restarts_in_the_middle_of_a_prepare",
    ],
    "P11 running containers lose their devices": [
        "tests/gpu/test_gpu_container_edits.py::test_a_gpu_adds_its_device_node",
        "e2e/test_cdi.py::test_a_container_that_is_killed_restarts_with_its_gpu_after_the_cdi_directory_was_emptied",
    ],
    "P14 no registration after a restart": [
        "tests/kubelet/test_plugin.py::test_twenty_restarts_in_a_row_register_every_time",
        "tests/kubelet/test_rolling_update.py::test_twenty_updates_in_a_row_cost_no_call",
    ],
    "P15 sockets of the dead": [
        "tests/kubelet/test_instance.py::test_only_what_the_dead_of_this_driver_left_is_removed",
        "tests/kubelet/test_instance.py::test_a_socket_that_somebody_serves_is_never_removed",
    ],
    "P16 slices that are deleted and never come back": [
        "tests/kubelet/test_publisher.py::test_a_watch_that_is_cut_or_falls_silent_hides_no_deletion",
        "e2e/test_slices.py::test_slices_come_back_after_a_kubelet_restart_wiped_them",
    ],
    "P17 pods wait while a driver is replaced": [
        "tests/helm/test_chart_rendering.py::test_the_new_pod_of_a_node_takes_over_before_the_old_one_ends",
        "e2e/test_rolling_update.py::test_a_new_version_takes_over_while_pods_come_and_go_and_the_kubelet_restarts",
    ],
    "P18 clients of other languages and the authority": ["tests/kubelet/test_presence.py::test_a_client_with_an_authority_of_its_own_is_served"],
    "P19 a second server takes the first one's socket": [
        "tests/kubelet/test_server.py::test_a_live_socket_is_refused_and_goes_on",
        "tests/node/test_node_probes.py::test_a_second_program_ends_with_a_clear_message_and_the_first_goes_on",
    ],
    "P20 an end that hangs on open streams": [
        "tests/node/test_node_health.py::test_it_ends_with_sigterm_while_a_health_stream_is_open",
        "tests/kubelet/test_presence.py::test_a_stop_is_bounded_when_the_kubelet_hangs_with_an_open_stream",
    ],
    "P21 paths that no socket can have": [
        "tests/kubelet/test_server.py::test_a_path_of_107_bytes_is_served",
        "tests/kubelet/test_server.py::test_a_path_of_108_bytes_is_refused_with_its_length",
        "tests/kubelet/test_instance.py::test_of_the_registrar_s_names_the_first_that_a_socket_can_have_is_taken",
    ],
    "P22 an admission policy that matches nobody": [
        "tests/helm/test_chart_rendering.py::test_one_name_of_the_service_account_is_everywhere",
        "e2e/test_chart.py::test_a_node_program_may_create_no_other_slice",
    ],
    "P23 one device keeps all of a node from being published": [
        "tests/kubelet/test_slice_rules.py::test_our_rules_find_what_the_api_server_found",
        "e2e/test_slice_rules.py::test_the_api_server_refuses_what_our_rules_refuse_in_the_same_words",
    ],
    "P27 two drivers sell the same devices": [
        "tests/kubelet/test_presence.py::test_beside_another_driver_of_our_name_nothing_is_published_or_registered",
        "tests/kubelet/test_publisher.py::test_nothing_is_published_beside_another_drivers_slices_until_they_are_gone",
    ],
    "P33 watches that fall silent": ["tests/k8s/test_reflector.py::test_a_watch_that_falls_silent_is_replaced"],
    "P34 a history that is gone": [
        "tests/k8s/test_reflector.py::test_bookmarks_spare_a_quiet_watch_the_list",
        "tests/k8s/test_reflector.py::test_410_as_http_status_means_the_same",
    ],
    "P35 a storm of requests against a sick server": ["tests/k8s/test_reflector.py::test_a_storm_of_errors_meets_few_requests_and_ends_in_recovery"],
    "P39 a loop that ends with an error": ["tests/k8s/test_reflector.py::test_a_handler_that_raises_is_counted_and_the_loop_goes_on"],
}


def defined(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


@pytest.mark.parametrize("report", PITFALLS)
def test_every_report_has_tests(report: str) -> None:
    assert PITFALLS[report]
    for test in PITFALLS[report]:
        file, _, name = test.partition("::")
        assert name in defined(ROOT / file), f"{report}: {test} is gone; which test shows this fault now?"
