"""Every scenario runs in every dialect, and ends before the judge of `tests.laws`.

In chat completions it runs streamed and not; in the others too where it is about what a client is shown (`BOTH`), else
streamed alone, which is how agents ask. A scenario about the bytes of single dialects says so, with its reason.
A quick run takes every eighth scenario and the long profiles the others, each in one of these ways (two where all six
matter); `--take all`, before a release, has all of them. Which ones, hangs on the name, so that all dialects are asked.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from llm_test_provider import Model, ScriptedProvider
from tests.client_dialects import CHAT, TONGUES, TestDialect
from tests.harness import Conversation, RecordingProvider, Stage, running_stage
from tests.postgresql_server import PostgresServer

NOT_FOR_REPLICAS = {
    "it looks into SQLite's file, or damages it": {
        "test_a_closed_fail_policy_answers_an_error_instead",
        "test_a_conversation_goes_on_that_opens_like_one_that_cannot_be_read",
        "test_a_conversation_that_cannot_be_read_is_told_beside_the_others",
        "test_a_corrupt_store_lets_requests_pass",
        "test_a_damaged_letter_in_an_id_costs_that_conversation_alone",
        "test_a_first_answer_that_went_with_its_process_costs_the_thread_nothing",
        "test_a_forgotten_conversation_leaves_no_task",
        "test_a_client_may_give_its_own_key",
        "test_a_locked_store_lets_requests_pass_and_says_so",
        "test_beside_a_subagent_that_cannot_be_read_what_the_other_did_is_recalled",
        "test_children_and_open_tasks_are_found_by_an_index",
        "test_every_frame_is_a_task_that_others_can_read_by_sql",
        "test_every_stored_message_is_what_was_sent",
        "test_the_command_does_it_where_no_proxy_runs",
        "test_the_frames_say_which_of_them_are_folded_and_which_were_asked_back",
        "test_the_tasks_are_those_of_the_path_that_grew_last",
        "test_two_replicas_decide_alike",
        "test_what_was_thought_while_the_store_was_away_is_left_out",
        "test_while_the_store_is_away_the_clients_bytes_go_where_nothing_is_bound",
        "test_while_the_store_is_away_the_clients_own_bytes_go_at_last",
        "test_while_the_store_is_away_what_was_thought_behind_our_tools_is_left_out",
        "test_without_a_store_a_person_is_told_so_and_the_agent_not_asked",
        "test_without_a_store_a_refusal_for_length_is_asked_again_shorter",
        "test_without_a_store_what_is_at_hand_is_told",
    },
    "each process learns for itself what a provider refuses": {
        "test_a_history_that_outgrew_the_window_is_shortened_never_refused",
        "test_a_limit_that_a_refusal_named_is_kept_from_then_on",
        "test_a_model_that_only_calls_where_the_client_forbids_it_is_told_once",
        "test_a_quoted_history_that_does_not_fit_is_told_in_its_place",
        "test_at_last_the_clients_own_request_goes_and_from_then_on_at_once",
        "test_a_model_that_ignores_the_bound_is_not_paid_for_it_again",
        "test_a_model_that_refuses_them_gets_no_more",
        "test_it_is_asked_once_more_with_recall_alone_and_that_is_remembered",
        "test_where_none_of_our_tools_is_taken_nothing_is_folded_and_no_text_speaks_of_recall",
        "test_usage_is_not_asked_for_where_the_provider_refuses_that",
        "test_reasoning_that_a_provider_tells_and_refuses_does_not_come_back_to_it",
        "test_the_conversation_is_found_by_its_session_after_a_restart",
    },
    "each counts, and tells, what it does itself": {
        "test_events",
        "test_a_conversation_that_nobody_asks_goes_idle_once",
        "test_a_heuristic_nobody_knows_is_a_warning_at_the_start",
        "test_whoever_has_the_answer_can_read_what_was_booked_of_it",
        "test_a_conversation_opens_once_and_a_further_root_is_a_frame",
        "test_a_file_read_again_for_want_of_it_is_counted_by_tool",
        "test_a_fork_that_got_its_frame_when_it_went_idle_is_told_nothing",
        "test_a_regret_is_logged_with_the_rule_and_told_by_the_command",
        "test_a_restart_remembers_what_was_spent_and_what_was_written",
        "test_a_second_summary_goes_on_from_the_first",
        "test_a_summary_has_a_receipt_of_its_own_and_is_all_our_cost",
        "test_a_summary_is_asked_with_the_operators_key_and_says_what_left",
        "test_a_summary_stands_in_the_next_trace_and_changes_none_before",
        "test_no_request_waits_for_a_summary_and_the_proxy_stops_without_it",
        "test_the_instructions_can_be_configured",
        "test_what_a_frame_returned_is_in_the_question_and_beside_the_summary",
        "test_what_the_day_may_not_cost_is_not_asked",
        "test_whoever_listens_hears_of_it_and_of_no_word",
        "test_without_a_usable_summary_the_trace_says_what_it_always_said",
    },
    "what another process answered a moment ago is not counted yet": {
        "test_a_key_whose_budget_is_spent_is_refused_before_the_provider_is_asked",
        "test_what_no_model_answered_costs_nothing",
    },
    "two requests of one conversation at the same moment do not see each other": {
        "test_20_parallel_requests_of_one_conversation",
        "test_an_agent_at_work_is_told_between_two_of_its_rounds",
        "test_of_two_requests_at_once_one_is_told",
    },
}
"""Why scenarios, or modules of them, are left out with `--replicas`."""
QUICK_SHARE = 8
"""A quick run takes one scenario of so many."""
TURNS = (0, 4)
"""Which of a scenario's ways are taken before a release is made: the first, and a second where there are six."""
BOTH = ("test_call_groups", "test_hidden_rounds", "test_frames", "test_identity", "test_last_rung")
SPOKEN_IN, ASKED = "spoken_in", "asked"


@dataclass(frozen=True)
class Manner:
    """How a client asks."""

    tongue: TestDialect
    streamed: bool

    @property
    def form(self) -> str:
        return "streamed" if self.streamed else "plain"

    @property
    def name(self) -> str:
        return self.form if self.tongue is CHAT else f"{self.tongue.short}-{self.form}"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{SPOKEN_IN}(*dialects, reason): a scenario about the bytes of these dialects")
    config.addinivalue_line("markers", f"{ASKED}(form): a scenario for one form of answers, `streamed` or `plain`")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "manner" not in metafunc.fixturenames:
        return
    bound = metafunc.definition.get_closest_marker(SPOKEN_IN)
    spoken = [each for each in TONGUES.values() if bound is None or each.short in bound.args]
    both = metafunc.module.__name__.rpartition(".")[2] in BOTH
    manners = [Manner(tongue, streamed) for tongue in spoken for streamed in (True, False)]
    if form := metafunc.definition.get_closest_marker(ASKED):
        wanted = [each for each in manners if each.form in form.args]
    else:
        wanted = [each for each in manners if each.streamed or both or each.tongue is CHAT]
    drawn = crc32(metafunc.definition.nodeid.encode())
    first, is_quick = drawn % len(wanted), drawn // len(manners) % QUICK_SHARE == 0
    turns = {each: (at - first) % len(wanted) for at, each in enumerate(wanted)}
    taken = {"quick": TURNS[:1], "rest": TURNS}.get(metafunc.config.getoption("--take"), range(len(wanted)))
    metafunc.parametrize(
        "manner",
        [
            pytest.param(each, id=each.name, marks=_depth(turn, is_quick=is_quick))
            for each, turn in turns.items()
            if turn in taken  # the others are not even made: collecting them took a sixth of the time to collect all
        ],
    )


def _depth(turn: int, *, is_quick: bool) -> tuple[pytest.MarkDecorator, ...]:
    """How deep a run must be to take a scenario in the way whose turn it is."""
    if turn not in TURNS:
        return (pytest.mark.long, pytest.mark.whole)
    return () if turn == 0 and is_quick else (pytest.mark.long,)


@pytest.fixture
def tongue(manner: Manner) -> TestDialect:
    return manner.tongue


@pytest.fixture
def streamed(manner: Manner) -> bool:
    return manner.streamed


@pytest.fixture
def provider(request: pytest.FixtureRequest, tongue: TestDialect) -> Iterator[ScriptedProvider]:
    """The scripted provider; parametrised indirectly it gets these arguments. Where reasoning is signed, every model
    refuses what no longer fits (L8)."""
    arguments: dict[str, Any] = dict(getattr(request, "param", {}))
    if tongue.signs:
        models = arguments.get("models") or [Model("scripted-model")]
        arguments["models"] = [replace(model, binding="error") for model in models]
    with RecordingProvider(**arguments) as running:
        yield running


@pytest.fixture
def new_database(request: pytest.FixtureRequest) -> Callable[[], str] | None:
    """With `--replicas`: makes an empty PostgreSQL database and returns its URL."""
    if not request.config.getoption("--replicas"):
        return None
    name, module = request.node.originalname, request.node.module.__name__.rpartition(".")[2]
    reason = next((why for why, names in NOT_FOR_REPLICAS.items() if names & {name, module}), "")
    if reason:
        pytest.skip(f"one process: {reason}")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database


@pytest.fixture
def stage(
    provider: ScriptedProvider,
    tmp_path: Path,
    streamed: bool,
    tongue: TestDialect,
    new_database: Callable[[], str] | None,
) -> Iterator[Stage]:
    with running_stage(provider, tmp_path, streamed=streamed, tongue=tongue, new_database=new_database) as running:
        yield running


@pytest.fixture
def chat(stage: Stage) -> Conversation:
    """A client in front of a proxy as it comes, awake from the first request."""
    return stage.chat()
