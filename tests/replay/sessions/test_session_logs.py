"""Session logs of clients become recordings: the requests as they were made, with the head that logs lack."""

import gc
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from callstack_proxy.cli.context import load_settings
from callstack_proxy.replay import ReplayOptions, ReplayResult, find_logs, replay_logs
from callstack_proxy.replay.recording import NotReplayable, Recording
from callstack_proxy.replay.recording_formats import read_recordings
from callstack_proxy.replay.sessions import format_of, session_formats
from callstack_proxy.replay.sessions.claude_code import CLAUDE_CODE
from proxy.accounting import TokenCounter
from proxy.store.memory import MemoryStore
from tests.replay.sessions.logs import PART, START, claude_lines, claude_log, codex_log, lines, opencode_log

Json = dict[str, Any]


def bodies(recording: Recording) -> list[Json]:
    return [json.loads(step.body) for step in recording.steps]


def only(path: Path) -> Recording:
    (recording,) = read_recordings(path)
    return recording


def test_an_answer_on_several_lines_is_one_request(tmp_path: Path) -> None:
    recording = only(claude_log(tmp_path / "s.jsonl", steps=4))

    assert (recording.client, recording.dialect, recording.model) == ("Claude Code", "messages", "claude-opus-4-8")
    assert [len(body["messages"]) for body in bodies(recording)] == [1, 3, 5, 7]
    assert recording.steps[0].answer is not None
    assert [block["type"] for block in recording.steps[0].answer["content"]] == ["text", "tool_use"]


def test_the_head_is_as_large_as_the_provider_counted(tmp_path: Path) -> None:
    recording = only(claude_log(tmp_path / "s.jsonl"))

    first = bodies(recording)[0]
    tokens = TokenCounter().count(first["system"][0]["text"])
    assert 11_900 < tokens <= 12_000
    assert recording.assumed_head == 0


def test_a_head_that_nothing_tells_is_assumed(tmp_path: Path) -> None:
    untold = claude_lines(2)
    for line in untold:
        line["message"].pop("usage", None)

    recording = only(lines(tmp_path / "s.jsonl", untold))

    assert 11_000 < recording.assumed_head < 12_000


def test_a_new_head_of_a_resumed_session_takes_the_place_of_the_old(tmp_path: Path) -> None:
    def shape(text: str) -> Json:
        return {"type": "api-request-shape", "sessionId": "s-1", "shape": {"system": [{"type": "text", "text": text}]}}

    log = claude_lines(2)
    told = [log[0], shape("first head"), *log[1:], shape("second head"), *claude_lines(1, first=10)]

    recording = only(lines(tmp_path / "s.jsonl", told))

    heads = ["".join(block["text"] for block in body["system"]) for body in bodies(recording)]
    assert [head.split(" the")[0].strip() for head in heads] == ["first head", "first head", "second head"]


def test_words_that_go_back_begin_a_line_at_that_point(tmp_path: Path) -> None:
    log = claude_lines(3)
    again = claude_lines(1, first=50)
    again[0]["parentUuid"] = log[2]["uuid"]  # behind the first call; its result stands behind it
    again[0]["message"]["content"] = "No, look elsewhere."

    recording = only(lines(tmp_path / "s.jsonl", [*log, *again]))

    last = bodies(recording)[-1]["messages"]
    assert len(recording.steps) == 4
    assert "No, look elsewhere." in json.dumps(last[-1])
    assert "Part 1." not in json.dumps(last)


def test_a_summary_is_a_request_and_a_new_beginning(tmp_path: Path) -> None:
    summary = {**claude_lines(1)[0], "uuid": "x", "isCompactSummary": True}
    summary["message"] = {"role": "user", "content": "Summary: parts were read."}

    recording = only(lines(tmp_path / "s.jsonl", [*claude_lines(2), summary, *claude_lines(1, first=20)]))

    asked = bodies(recording)
    assert len(asked) == 4
    assert "Summarize" in json.dumps(asked[2]["messages"][-1])
    assert "Summary: parts were read." in json.dumps(asked[3]["messages"][0])
    assert PART[:40] not in json.dumps(asked[3])


def test_a_subagent_is_a_conversation_of_its_own(tmp_path: Path) -> None:
    recording = only(lines(tmp_path / "s.jsonl", [*claude_lines(2), *claude_lines(2, side=True, first=30)]))

    assert sorted(len(body["messages"]) for body in bodies(recording)) == [1, 1, 3, 3]


def test_a_call_without_a_result_gets_one(tmp_path: Path) -> None:
    log = [line for line in claude_lines(3) if "tool_result" not in json.dumps(line)]

    recording = only(lines(tmp_path / "s.jsonl", log))

    assert json.dumps(bodies(recording)[-1]).count("the log holds no result") == 2


def test_codex_is_read_as_items(tmp_path: Path) -> None:
    recording = only(codex_log(tmp_path / "rollout.jsonl", steps=3))

    assert (recording.client, recording.dialect, len(recording.steps)) == ("Codex", "responses", 3)
    assert "You are." in bodies(recording)[0]["instructions"]
    assert PART[:40] in json.dumps(bodies(recording)[-1]["input"])


def test_a_compacted_line_of_codex_replaces_the_history(tmp_path: Path) -> None:
    path = codex_log(tmp_path / "rollout.jsonl", steps=2)
    kept = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "what was kept"}]}
    after = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "on"}]}
    with path.open("a") as file:
        for kind, payload in (
            ("compacted", {"message": "the summary", "replacement_history": [kept]}),
            ("response_item", after),
        ):
            file.write(json.dumps({"type": kind, "payload": payload}) + "\n")

    recording = only(path)

    last = json.dumps(bodies(recording)[-1]["input"])
    assert len(recording.steps) == 4
    assert "what was kept" in last
    assert "Part 0." not in last


def test_a_database_holds_many_sessions(tmp_path: Path) -> None:
    found = read_recordings(opencode_log(tmp_path / "opencode.db"))

    assert [recording.name for recording in found] == ["opencode ses_1", "opencode ses_2"]
    assert [len(recording.steps) for recording in found] == [2, 2]


def test_another_api_and_model_can_be_asked_for(tmp_path: Path) -> None:
    (recording,) = read_recordings(claude_log(tmp_path / "s.jsonl"), model="gpt-5.5", dialect="chat")

    assert (recording.dialect, bodies(recording)[0]["model"]) == ("chat", "gpt-5.5")


def test_a_file_of_another_kind_is_no_session_log(tmp_path: Path) -> None:
    path = lines(tmp_path / "chat.jsonl", [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}])

    assert format_of(path) is None


@pytest.mark.parametrize("cut", [0.3, 0.6, 0.95])
def test_a_half_written_log_gives_what_stands_in_it(tmp_path: Path, cut: float) -> None:
    path = claude_log(tmp_path / "s.jsonl", steps=6)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * cut)])

    recording = only(path)

    assert 1 <= len(recording.steps) <= 6


def test_a_field_of_another_kind_is_told_in_a_sentence(tmp_path: Path) -> None:
    said = {"sessionId": "a", "history": [{"message": {"role": "assistant", "content": "x", "usage": 5}}]}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(said))

    with pytest.raises(NotReplayable, match=r"a\.json: this session of Continue cannot be read"):
        read_recordings(path)


def test_each_client_has_a_name_a_key_and_places() -> None:
    assert len({known.key for known in session_formats()}) == len(session_formats()) == 11
    assert all(known.places and known.head_tokens > 0 for known in session_formats())


def test_a_list_of_sessions_that_a_client_keeps_is_not_said_to_be_damaged(tmp_path: Path) -> None:
    folder = tmp_path / ".continue" / "sessions"
    folder.mkdir(parents=True)
    (folder / "sessions.json").write_text('[{"sessionId": "a", "title": "t"}]')
    (folder / "half.json").write_text('{"sessionId": ')

    assert list(find_logs(tmp_path, (), (), 0.0).others) == [folder / "half.json"]


@pytest.mark.rows("X-65")
def test_a_database_in_use_is_read_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    """Also what its client has not yet written into the file itself, and what a killed client left."""
    path = opencode_log(tmp_path / "used" / "opencode.db")
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.commit()
    before = files_in(path.parent)
    assert (list(before), len(read_recordings(path))) == (["opencode.db"], 2)
    assert files_in(path.parent) == before

    with closing(sqlite3.connect(path)) as writer:
        writer.execute("UPDATE session SET id = 'ses_new' WHERE id = 'ses_1'")
        writer.execute("UPDATE message SET session_id = 'ses_new' WHERE session_id = 'ses_1'")
        writer.commit()
        before = files_in(path.parent)
        assert len(before) == 3
        assert [one.name for one in read_recordings(path)] == ["opencode ses_new", "opencode ses_2"]
        assert files_in(path.parent) == before

        killed = tmp_path / "killed"
        killed.mkdir()
        for name in ("opencode.db", "opencode.db-wal"):
            (killed / name).write_bytes(before[name])
    assert read_recordings(killed / "opencode.db")[0].name == "opencode ses_new"
    assert sorted(files_in(killed)) == ["opencode.db", "opencode.db-wal"]


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.rows("X-65")
@pytest.mark.parametrize("newest", ["original", "fork"])
def test_a_request_that_stands_in_several_logs_counts_once(tmp_path: Path, newest: str) -> None:
    """A client that forks a session writes its beginning into a new file; a person copied the original."""
    every = [line | {"cwd": "/repos/shop"} for line in claude_lines(8)]
    original = lines(tmp_path / "original.jsonl", every[:16])
    fork = lines(tmp_path / "fork.jsonl", [line | {"sessionId": "s-2", "uuid": f"n{line['uuid']}"} for line in every])
    copy = lines(tmp_path / "copy.jsonl", every[:16])
    other = lines(tmp_path / "other.jsonl", [line | {"timestamp": START.format(59)} for line in every])
    order = sorted((original, fork, copy, other), key=lambda path: path.stem == newest)
    for number, path in enumerate(order):
        os.utime(path, (number, number))

    played = replayed(original, fork, copy, other)

    assert [(one.row.requests + one.copied, one.folder) for one in played] == [
        (5, "/repos/shop"),
        (8, "/repos/shop"),
        (5, "/repos/shop"),
        (8, "/repos/shop"),
    ]
    assert sum(one.row.requests for one in played) == 8 + 8
    assert (sum(one.copied for one in played), played[3].copied) == (10, 0)
    assert all(one.started_s for one in played)
    alone = replayed(fork)[0].row
    both = [one.row for one in played[:3]]
    assert sum(row.tokens_in for row in both) == alone.tokens_in
    assert [one.name for one in replayed(original, other, project="/repos")] == ["claude original", "claude other"]
    assert replayed(original, project="/repos/sho") == []


def replayed(*paths: Path, project: str = "") -> list[ReplayResult]:
    options = ReplayOptions(load_settings(None, {}, asks_upstreams=False))
    logs = dict.fromkeys(paths, CLAUDE_CODE)
    shares = [0.0]
    outcomes = replay_logs(logs, options, 1, shares.append, lambda outcomes: None, (project,) if project else ())
    assert shares[-1] == pytest.approx(1)  # whatever was left out
    return [one for one in outcomes if isinstance(one, ReplayResult)]


@pytest.mark.rows("X-65")
def test_what_a_session_held_is_gone_once_it_was_replayed(tmp_path: Path) -> None:
    """Its store holds every request of it. Many logs are replayed one after the other, so nothing may wait for the
    collector to look by itself."""
    logs = [claude_log(tmp_path / f"{number}.jsonl", steps=3 + number) for number in range(3)]
    options = ReplayOptions(load_settings(None, {}, asks_upstreams=False))
    gc.collect()
    before = _stores()
    gc.disable()
    try:
        replay_logs(dict.fromkeys(logs, CLAUDE_CODE), options, 1, lambda _: None, lambda _: None)
        after = _stores()
    finally:
        gc.enable()

    assert after == before


def _stores() -> int:
    return sum(isinstance(each, MemoryStore) for each in gc.get_objects())
