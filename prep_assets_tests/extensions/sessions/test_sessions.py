"""Sessions of coding agents as chats: what each says by hand, beside teich's reading, and what is no whole chat."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.errors import CheckFailed, Refused
from prep_assets.extensions.sessions import harness
from prep_assets.samples import TOOL_CALL, Sample
from prep_assets.schemas.fields import whole
from prep_assets.schemas.reader import Account, Reader, apply
from prep_assets.schemas.registry import convert_with
from prep_assets_tests.corpus import sessions
from prep_assets_tests.corpus.sessions import (
    SAYS,
    SESSIONS,
    Line,
    assistant,
    branch,
    claude,
    codex,
    hermes,
    pi,
    result,
    sidechain,
    text,
    use,
    user,
)
from prep_assets_tests.extensions.exports.readers import reader
from prep_assets_tests.graph.workspaces import TOKENIZER, build, failing, jsonl, refusals, workspace_in


def read(lines: list[Line], **options: Any) -> Sample:
    account = Account()
    sample = apply(Reader(convert_with("agent_session", options), account), {"lines": lines})
    assert isinstance(sample, Sample) and not account.unknown, account.unknown
    return sample


def says(sample: Sample) -> list[tuple[str, str]]:
    """Role, and texts with names of calls, of each turn."""
    return [
        (turn.role, "|".join(json.loads(part.text)["name"] if part.kind == TOOL_CALL else part.text for part in turn.regions))
        for turn in sample.turns
    ]


@pytest.mark.parametrize("name", SESSIONS)
def test_what_each_says(name: str) -> None:
    assert says(read(SESSIONS[name]())) == [*SAYS[name]]


def test_calls_have_their_arguments_and_results_their_calls() -> None:
    turns = read(claude()).turns
    assert [json.loads(part.text) for part in turns[1].regions if part.kind == TOOL_CALL] == [
        {"name": "Read", "arguments": {"file_path": "tests/test_0.py"}, "id": "t1"},
        {"name": "Bash", "arguments": {"command": "tail log.txt", "timeout": 5000}, "id": "t2"},
    ]
    assert [turn.tool_call_id for turn in turns if turn.role == "tool"] == ["t1", "t2", "t3"]
    [patch] = [json.loads(part.text) for turn in read(codex()).turns for part in turn.regions if "apply_patch" in part.text]
    assert patch["arguments"] == {"input": "*** Add File: test_0.py\n+pass"}


# Beside teich, and beside the reader of agent traces in `datasets`, which calls it.


def _rows_of(program: str, lines: list[Line], folder: Path) -> list[tuple[Any, ...]]:
    teich, path = reader("teich"), jsonl(folder / "a.jsonl", lines)
    if program == "teich":
        [row] = teich.convert_traces_to_training_data(folder)
    else:
        [row] = reader("datasets").load_dataset("json", data_files=str(path), split="train", cache_dir=str(folder / "cache"))
    told = row["metadata"].get("system_prompt")
    messages = [{"role": "system", "content": told}] * bool(told and row["messages"][0]["role"] != "system") + row["messages"]
    return [
        (
            message["role"],
            message["content"],
            message.get("reasoning_content", ""),
            [(call["function"]["name"], call["function"]["arguments"], call["id"]) for call in message.get("tool_calls") or ()],
            message.get("tool_call_id"),
        )
        for message in messages
        if not message["content"].startswith("<permissions")  # Codex' own rules, which teich keeps as a system prompt
    ]


def _ours(sample: Sample) -> list[tuple[Any, ...]]:
    rows = []
    for turn in sample.turns:
        calls = [json.loads(part.text) for part in turn.regions if part.kind == TOOL_CALL]
        texts, thoughts = ("".join(part.text for part in turn.regions if part.kind == kind) for kind in ("text", "thinking"))
        rows.append((turn.role, texts, thoughts, [(call["name"], call["arguments"], call["id"]) for call in calls], turn.tool_call_id))
    return rows


@pytest.mark.readers
@pytest.mark.parametrize("program", ["teich", "datasets"])
@pytest.mark.parametrize("name", SESSIONS)
def test_teich_reads_the_same(name: str, program: str, tmp_path: Path) -> None:
    theirs = _rows_of(program, SESSIONS[name](3), tmp_path)
    for message in theirs:
        for at, (called, arguments, id) in enumerate(message[3]):
            if called == "apply_patch":  # teich calls the input of the patch by a name of its own
                message[3][at] = (called, {"input": arguments["patch"]}, id)
    assert _ours(read(SESSIONS[name](3))) == theirs


# What is no whole chat.


def _without(lines: list[Line], *numbers: int) -> list[Line]:
    return [line for at, line in enumerate(lines) if at not in numbers]


def _compacted() -> list[Line]:
    lines = claude()
    lines += sessions._linked(
        [user("The test was corrected.", isCompactSummary=True), user("Go on."), assistant("m9", text("Done."))], None, "k"
    )
    return lines


def _rolled_back() -> list[Line]:
    lines = codex()
    return [*lines, {"timestamp": "x", "type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}]


PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
STOPPED = {**pi()[5], "id": "x", "parentId": "e2", "message": {**pi()[5]["message"], "stopReason": "aborted"}}
CUT = _without(claude(), len(claude()) - 1)
WRONG: dict[str, tuple[list[Line], str]] = {
    "of sub-agents as well": ([*claude(), *sidechain()], "sidechains"),
    "with two branches": ([*claude(), *branch()], "branches"),
    "with two branches in Pi": ([*pi(), {**pi()[3], "id": "x", "parentId": "e1"}], "branches"),
    "whose turns were taken back": (_rolled_back(), "branches"),
    "that was compacted": (_compacted(), "compacted"),
    "that was compacted in Codex": ([*codex(), {"type": "compacted", "payload": {"message": "All is well."}}], "compacted"),
    "that was compacted in Pi": ([*pi(), {"type": "compaction", "id": "x", "parentId": "e5", "summary": "A file."}], "compacted"),
    "without its beginning": (claude()[4:], "orphan_line"),
    "without its beginning in Pi": (_without(pi(), 1), "orphan_line"),
    "without its beginning in Codex": (codex()[1:], "orphan_line"),
    "without what a message says in Pi": ([*pi()[:5], {**pi()[5], "message": {**pi()[5]["message"], "content": None}}], "missing_field"),
    "without its end": (CUT, "open_end"),
    "that ends with a call": (_without(claude(), len(claude()) - 1, len(claude()) - 2), "open_end"),
    "with a result less": (_without(claude(), 7), "unanswered_tool_call"),
    "with a line of another kind": ([*claude(), {"type": "telepathy", "words": "Stop."}], "unknown_line"),
    "with an item of another kind": ([*codex(), {"type": "response_item", "payload": {"type": "dream", "text": "Sheep."}}], "unknown_part"),
    "with a search that OpenAI ran": (
        [*codex(), {"type": "response_item", "payload": {"type": "web_search_call", "action": {}}}],
        "unknown_part",
    ),
    "with a picture": ([*claude(), *sessions._linked([user([PICTURE])], "u11", "p")], "missing_field"),
    "of a shell that the user ran in Pi": (
        [*pi(), {"type": "message", "id": "x", "parentId": "e5", "message": {"role": "bashExecution"}}],
        "unknown_role",
    ),
    "with an answer that was stopped": ([*pi()[:4], STOPPED], "aborted_answer"),
    "in another order": ([*claude()[:-3], claude()[-2], claude()[-3], claude()[-1]], "order_contradicted"),
    "with a line of another role": ([*claude()[:-1], {**claude()[-1], "type": "user"}], "unknown_role"),
    "that goes on from a sub-agent": ([*claude()[:-2], {**claude()[-2], "isSidechain": True}, claude()[-1]], "sidechains"),
    "with a line twice": ([*claude(), claude()[-1]], "repeated_line"),
    "with a flag of another kind": ([*claude()[:-1], {**claude()[-1], "isSidechain": "no"}], "wrong_type"),
    "with a message of nobody": (
        [*codex(), {"type": "response_item", "payload": {"type": "message", "role": "critic", "content": []}}],
        "unknown_role",
    ),
    "of nobody": ([{"type": "note", "words": "None."}], "unknown_session"),
    "without an answer": (claude()[:3], "no_assistant_turn"),
    "beside another": ([*hermes(1), *hermes(2)], "several_sessions"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_no_whole_chat(kind: str) -> None:
    lines, reason = WRONG[kind]
    with pytest.raises(Refused) as refused:
        apply(convert_with("agent_session"), {"lines": copy.deepcopy(lines)})
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("without its end", r"ends with a turn of the tool: .* ends with turn 4, an answer"),
        ("that ends with a call", r"ends with a call without a result: .* ends with turn 4, an answer"),
        ("with two branches", r"lines\[11\] and 4 other lines are on another branch"),
    ],
)
def test_a_refusal_says_where_and_what(kind: str, words: str) -> None:
    with pytest.raises(Refused, match=words):
        apply(convert_with("agent_session"), {"lines": copy.deepcopy(WRONG[kind][0])})


OPTIONS: dict[str, tuple[list[Line], dict[str, Any], list[tuple[str, str]]]] = {
    "sidechains": ([*claude(), *sidechain()], {"sidechains": "leave_out"}, [*SAYS["claude"]]),
    "a branch": (
        [*claude(), *branch()],
        {"several": "last"},
        [*SAYS["claude"][:5], ("user", "Leave it as it is."), ("assistant", "I leave it.")],
    ),
    "a compaction": (_compacted(), {"several": "last"}, [("user", "The test was corrected."), ("user", "Go on."), ("assistant", "Done.")]),
    "the end": (CUT, {"open_end": "trim"}, [*SAYS["claude"][:5]]),
    "another line": ([*claude(), {"type": "telepathy", "words": "Stop."}], {"pass_over": ["telepathy"]}, [*SAYS["claude"]]),
    "nothing": (claude(), {"several": "last"}, [*SAYS["claude"]]),
}


@pytest.mark.parametrize("what", OPTIONS)
def test_options_say_what_is_left_out(what: str) -> None:
    lines, options, expected = OPTIONS[what]
    assert says(read(copy.deepcopy(lines), **options)) == expected


def test_a_compaction_of_codex_with_its_history() -> None:
    kept = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "All is well. Go on."}]}]
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "On."}]}
    more = [{"type": "compacted", "payload": {"message": "x", "replacement_history": kept}}, {"type": "response_item", "payload": said}]
    expected = [("system", "You are Codex."), ("user", "All is well. Go on."), ("assistant", "On.")]
    assert says(read([*codex(), *more], several="last")) == expected


def test_what_only_the_harness_says_is_left_out() -> None:
    more = [
        user("Caveat: the messages below were generated by the user", isMeta=True),
        {"type": "attachment", "attachment": {"type": "todo_reminder", "content": []}},
        {"type": "attachment", "attachment": {"type": "queued_command", "prompt": "And the docs?"}},
        assistant(
            "a1",
            {"type": "redacted_thinking", "data": "EqQB"},
            {"type": "thinking", "thinking": "", "signature": "x"},
            text("Those as well."),
        ),
        {
            "type": "assistant",
            "isApiErrorMessage": True,
            "message": {"role": "assistant", "model": "<synthetic>", "content": [text("API Error")]},
        },
    ]
    lines = [*claude(), *sessions._linked(more, "u11", "v")]
    assert says(read(lines)) == [*SAYS["claude"], ("user", "And the docs?"), ("assistant", "Those as well.")]
    hers = hermes()
    hers[0]["messages"] += [{"role": "user", "content": "Taken back.", "active": 0}, {"role": "session_meta", "content": "model: x"}]
    assert says(read(hers)) == [*SAYS["hermes"]]


words = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=8).filter(
    lambda each: each.strip() and "<" not in each
)


@given(
    st.lists(st.tuples(words, st.lists(words, max_size=3), st.lists(st.tuples(words, words), max_size=3)), min_size=1, max_size=4),
    st.data(),
)
def test_a_chat_is_the_same_however_its_lines_are_written(rounds: list[Any], data: st.DataObject) -> None:
    """Questions, each with answers that call tools first: answers in any number of lines, with lines for the interface between them."""
    lines, expected = list[Line](), list[tuple[str, str]]()
    for at, (question, thoughts, calls) in enumerate(rounds):
        blocks = [{"type": "thinking", "thinking": thought} for thought in thoughts[:1] if calls or thoughts[1:]]
        blocks += [text(each) for each in thoughts[1:]]
        blocks += [use(f"c{at}{number}", "run", command=command) for number, (command, _) in enumerate(calls)]
        cut = data.draw(st.integers(1, max(1, len(blocks))))
        lines += [user(question), *(assistant(f"a{at}", *blocks[low : low + cut]) for low in range(0, len(blocks), cut))]
        lines += [result(f"c{at}{number}", answer) for number, (_, answer) in data.draw(st.permutations([*enumerate(calls)]))]
        lines += [assistant(f"b{at}", text("Done."))]
        told = "\n".join(thoughts[1:])
        expected += [
            ("user", question),
            *([("assistant", "|".join([*thoughts[:1], *([told] if told else []), *("run" for _ in calls)]))] if blocks else []),
        ]
        expected += [*(("tool", answer) for _, answer in calls), ("assistant", "Done.")]
    linked = sessions._linked(lines)
    for _ in range(data.draw(st.integers(0, 3))):
        linked.insert(data.draw(st.integers(0, len(linked))), {"type": "file-history-snapshot", "snapshot": {}})
    assert says(read(linked)) == expected


# In the graph.


def test_sessions_are_stored_and_cut_ones_are_set_aside(tmp_path: Path) -> None:
    for name, make in SESSIONS.items():
        for number in range(3):
            jsonl(tmp_path / f"{name}_{number}.jsonl", make(number))
    for number, (lines, _) in enumerate(WRONG.values()):
        jsonl(tmp_path / f"wrong_{number:02}.jsonl", lines)
    (tmp_path / "torn.jsonl").write_text((tmp_path / "pi_0.jsonl").read_text()[:-40])
    domain = {"files": [str(tmp_path / "*.jsonl")], "schema": "agent_session", "txt": "file"}
    workspace = workspace_in(tmp_path, {"sft": {"tokenizer": TOKENIZER, "template": "qwen3", "domains": {"sessions": domain}}})
    published = build(workspace, "sft_tokens", "sessions")
    assert failing(workspace, published) == [] and published.manifest.counts["kept"] == 12
    reasons = {refusal.id: refusal.reason for refusal in refusals(published)}
    assert reasons == {f"wrong_{number:02}.jsonl:1": reason for number, (_, reason) in enumerate(WRONG.values())} | {
        "torn.jsonl:1": "invalid_json"
    }


def test_what_a_schema_loses_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jsonl(tmp_path / "a.jsonl", claude())
    domain = {"files": [str(tmp_path / "a.jsonl")], "schema": "agent_session", "txt": "file"}
    families = {"sft": {"tokenizer": TOKENIZER, "template": "qwen3", "domains": {"sessions": domain}}}
    workspace = workspace_in(tmp_path, families)
    published = build(workspace, "sft_tokens", "sessions")

    lost: list[Callable[[Any], Any]] = [
        lambda said: [*said[:5], *said[6:]],
        lambda said: [{**said[0], "content": [text("Why?")]}, *said[1:]],
        lambda said: [*said[:7], {**said[7], "content": ""}, said[8]],
        lambda said: [*said, {"role": "user", "content": "Again."}, {"role": "assistant", "content": "Corrected."}],
    ]
    for number, change in enumerate(lost):
        with monkeypatch.context() as patched:
            patched.setattr(harness, "_claude", _changed(harness._claude, change))
            other = workspace_in(tmp_path / f"{number}", families)
            with pytest.raises(CheckFailed, match="source_texts"):
                build(other, "sft_tokens", "sessions")
    assert failing(workspace, published) == []


def _changed(read_lines: Any, change: Callable[[Any], Any]) -> Any:
    def changed(lines: Any, rules: Any) -> Any:
        system, tools, messages = read_lines(lines, rules)
        said = [*messages]
        whole([message["content"] for message in said])  # as if the schema had read what it loses
        return system, tools, change(said)

    return changed


SECRETS = ("ana.lopez@correo.es", "AKIAIOSFODNN7EXAMPLE")


def test_private_data_is_taken_out_before_anybody_reads_a_session(tmp_path: Path) -> None:
    """Of what is stored, and of what is rejected by the schema or cannot be read."""
    pytest.importorskip("phonenumbers", reason="redaction needs the extra quality")
    said = f"Write to {SECRETS[0]} with aws_access_key_id={SECRETS[1]} please."
    kept, cut = claude(1), claude(2)[:-1]
    for lines in (kept, cut):
        lines[2]["message"]["content"] = said
        next(line for line in lines if line.get("toolUseResult"))["message"]["content"][0]["content"] = said
    jsonl(tmp_path / "kept.jsonl", kept)
    jsonl(tmp_path / "cut.jsonl", cut)
    (tmp_path / "torn.jsonl").write_text(json.dumps(kept[2]) + "\n{")
    domain = {"files": [str(tmp_path / "*.jsonl")], "schema": "agent_session", "txt": "file", "redact": ["email", "secret"]}
    workspace = workspace_in(tmp_path, {"sft": {"tokenizer": TOKENIZER, "template": "qwen3", "domains": {"sessions": domain}}})
    published = build(workspace, "sft_tokens", "sessions")
    assert [refusal.reason for refusal in refusals(published)] == ["open_end", "invalid_json"] and failing(workspace, published) == []
    stored = b"".join(path.read_bytes() for path in sorted((tmp_path / "stores").rglob("*")) if path.is_file())
    assert not any(secret.encode() in stored for secret in SECRETS) and b"EMAIL_ADDRESS" in stored
