"""Every verb of `Api` and every low-level call of `Client` is shown by a test; the reason for what is left out is told.

The table goes from what there is to the tests that show it. A verb without a row, and a row whose test is gone, fail.
"""
from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import kubectl_runtime.client as client_package
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client

TESTS = Path(__file__).parent.parent

# Verbs -> file below tests/, tests in it.
SHOWN: list[tuple[str, str, str]] = [
    ("all namespaced default_namespaced", "client/api/test_api.py",
     "test_places_are_checked_before_anything_is_sent test_dynamic_kinds"),
    ("namespaces", "runtime/controller/test_what_triggers.py",
     "test_several_namespaces_are_one_store_with_a_watch_each_and_the_gate_waits_for_all"),
    ("get get_opt replace delete", "client/api/test_api.py", "test_create_get_replace_delete"),
    ("create", "client/api/test_options_of_verbs.py",
     "test_every_write_takes_its_options_as_keywords "
     "test_options_that_contradict_or_are_none_are_refused_before_anything_is_sent"),
    ("list pages list_all list_page", "client/api/test_api.py", "test_lists_pages_and_selectors"),
    ("watch open_watch", "client/api/test_api.py", "test_a_watch_from_a_lists_version_sees_what_happens_after_it"),
    ("patch", "client/api/test_api.py", "test_the_four_patches"),
    ("apply", "client/api/test_api.py", "test_apply_creates_and_is_idempotent"),
    ("delete_collection", "core/requests/test_requests.py", "test_delete_collection_sends_the_whole_selection"),
    ("with_metadata_only", "client/api/test_api.py", "test_metadata_only"),
    ("with_fields", "runtime/test_finalizer.py", "test_every_form_of_an_object_will_do_and_stays_what_it_is"),
    ("get_status replace_status patch_status apply_status", "client/api/test_api.py", "test_the_status_subresource"),
    ("get_scale replace_scale patch_scale apply_scale", "client/api/test_api_answers.py",
     "test_a_scale_is_read_and_written"),
    ("scale", "client/api/test_kind_verbs.py", "test_scale_asks_for_replicas_and_for_nothing_else"),
    ("create_subresource get_subresource replace_subresource patch_subresource", "client/api/test_kind_verbs.py",
     "test_any_subresource_can_be_read_and_written_by_its_name"),
    ("logs log_stream", "client/streaming/test_logs.py",
     "test_every_option_reaches_the_server_and_none_is_sent_unasked test_a_log_is_bytes_as_they_are "
     "test_a_followed_log_yields_lines_when_they_come_and_ends_with_the_container"),
    ("evict", "client/api/test_kind_verbs.py", "test_evict_deletes_the_pod_and_a_budget_forbids_it_at_once"),
    ("exec attach", "client/streaming/test_exec.py",
     "test_output_of_both_streams_and_the_exit_code_come_back test_a_terminal_has_a_size_and_no_stderr "
     "test_stdin_is_half_closed_and_the_output_goes_on_until_the_process_ends "
     "test_attach_asks_for_the_streams_of_the_running_process"),
    ("portforward", "client/streaming/test_portforward.py",
     "test_each_of_many_ports_has_its_own_bytes_whatever_their_order test_a_port_that_nobody_listens_on_fails_alone "
     "test_ports_that_make_no_sense_are_refused_before_anything_is_sent"),
    ("portforward_local", "client/streaming/test_local_port.py",
     "test_each_connection_reaches_the_port_of_the_pod_by_itself_and_all_end_with_the_block "
     "test_who_ends_his_side_still_reads_what_the_pod_sends "
     "test_a_port_that_the_pod_refuses_closes_the_connection_and_the_log_says_why"),
    ("get_ephemeral_containers replace_ephemeral_containers patch_ephemeral_containers",
     "client/api/test_kind_verbs.py", "test_ephemeral_containers_are_added_by_patch_and_by_replace"),
    ("get_resize replace_resize patch_resize", "client/api/test_kind_verbs.py",
     "test_resize_changes_resources_of_containers"),
    ("entry", "client/api/test_entry.py",
     "test_a_missing_object_is_created_once_and_then_replaced "
     "test_an_object_that_is_there_is_not_made_and_unchanged_is_not_sent "
     "test_a_dry_run_leaves_everything_to_be_committed test_an_entry_keeps_its_name_and_namespace"),
    ("restart", "client/api/test_kind_verbs.py", "test_restart_changes_the_template_as_kubectl_does_and_nothing_else"),
    ("cordon uncordon", "client/api/test_kind_verbs.py", "test_cordon_and_uncordon"),
    ("create_token", "client/api/test_kind_verbs.py",
     "test_a_token_of_a_service_account_comes_with_its_end_and_is_never_shown"),
    ("get_approval replace_approval patch_approval approve deny", "client/api/test_kind_verbs.py",
     "test_a_signing_request_is_approved_or_denied_and_keeps_its_other_conditions"),
    # Of the client
    ("connect", "client/streaming/test_websocket.py", "test_connect_opens_any_websocket_and_messages_go_both_ways"),
    ("request answer", "client/api/test_calls.py", "test_an_empty_answer_is_an_answer"),
    ("stream", "client/wire/test_streams.py",
     "test_a_body_without_length_ends_with_the_connection test_an_idle_read_is_woken_at_once_and_ends_cleanly"),
    ("server_version", "client/api/test_options_of_verbs.py", "test_so_it_is_where_no_kind_is_asked_for"),
    ("fetch", "client/api/test_kind_verbs.py", "test_what_a_reference_names_is_fetched_wherever_it_is"),
    ("drain", "runtime/test_drain.py", "test_the_node_is_cordoned_and_pods_are_waited_for_until_they_are_gone"),
]
CALLS = {"connect", "request", "answer", "stream", "server_version"}
"""The verbs of `Client`: the rest of it is about the client itself."""
FUNCTIONS = {"fetch", "drain"}
LEFT_OUT = ("the kubelet's own port", "`Client.get` and `Client.list`")


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((TESTS / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize(("verbs", "path", "names"), SHOWN, ids=lambda value: str(value).partition(" ")[0])
def test_the_tests_of_a_row_are_there(verbs: str, path: str, names: str) -> None:
    assert names_in(path) >= set(names.split()), verbs
    text = (TESTS / path).read_text()
    assert any(verb in text for verb in verbs.split())


def test_every_verb_has_a_row() -> None:
    rows = [verb for verbs, _, _ in SHOWN for verb in verbs.split()]
    assert len(rows) == len(set(rows))
    verbs = {name for name in dir(Api) if not name.startswith("_") and callable(getattr(Api, name))}
    assert set(rows) == verbs | CALLS | FUNCTIONS
    assert all(callable(getattr(Client, call)) for call in CALLS)


def test_what_is_left_out_is_told_with_the_reason() -> None:
    told = client_package.__doc__ or ""
    assert all(subject in told for subject in LEFT_OUT)
