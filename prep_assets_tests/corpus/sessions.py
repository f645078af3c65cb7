"""Sessions of coding agents as their harnesses write them, and trajectories in ATIF with the ids of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from prep_assets_tests.corpus.agents import encoded

Line = dict[str, Any]
ENVELOPE = {
    "isSidechain": False,
    "userType": "external",
    "cwd": "/home/ana/site",
    "sessionId": "5f0c",
    "version": "2.1.230",
    "gitBranch": "main",
}


def _linked(lines: Sequence[Line], first: str | None = None, name: str = "u") -> list[Line]:
    above = first
    for number, line in enumerate(lines):
        line |= {"parentUuid": above, "uuid": f"{name}{number}", "timestamp": f"2026-11-02T10:00:{number:02}.000Z", **ENVELOPE, **line}
        above = line["uuid"]
    return [*lines]


def user(content: Any, **more: Any) -> Line:
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def assistant(id: str, *blocks: Line, **more: Any) -> Line:
    about = {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "stop_reason": None,
        "usage": {"input_tokens": 12},
    }
    return {"type": "assistant", "requestId": f"req_{id}", "message": {**about, "content": [*blocks]}, **more}


def text(words: str) -> Line:
    return {"type": "text", "text": words}


def use(id: str, name: str, **arguments: Any) -> Line:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def result(id: str, content: Any, **more: Any) -> Line:
    return user(
        [{"type": "tool_result", "tool_use_id": id, "content": content, **more}], toolUseResult={"stdout": "", "interrupted": False}
    )


def claude(number: int = 0) -> list[Line]:
    """A session of Claude Code: an answer over three lines, two calls at once whose first result stands beside the path, a second question."""
    lines = _linked(
        [
            user(f"Why does test {number} fail?"),
            assistant("m1", {"type": "thinking", "thinking": f"Look at test {number} first.", "signature": "EqQB"}),
            assistant("m1", text("I read the test and its log.")),
            assistant("m1", use("t1", "Read", file_path=f"tests/test_{number}.py")),
            assistant("m1", use("t2", "Bash", command="tail log.txt", timeout=5000)),
            result("t1", f"def test(): assert add(1, {number}) == {number + 1}"),
            result("t2", [text("AssertionError"), text("exit code 1")], is_error=True),
            assistant("m2", text(f"The sum of 1 and {number} is computed with a minus sign.")),
            user([text("Then correct it.")]),
            assistant("m3", use("t3", "Edit", file_path="add.py", old_string="a - b", new_string="a + b")),
            result("t3", "The file add.py has been updated."),
            assistant("m4", text("Corrected.")),
        ]
    )
    lines[5]["parentUuid"], lines[6]["parentUuid"] = "u3", "u4"
    aside = [
        {"type": "summary", "summary": "A failing test", "leafUuid": "u11"},
        {"type": "file-history-snapshot", "messageId": "m0", "snapshot": {}},
    ]
    meta = {"type": "system", "subtype": "turn_duration", "durationMs": 812, "uuid": "s1", "parentUuid": "u7", **ENVELOPE}
    markup = user("<command-name>/cost</command-name>\n<command-args></command-args>", uuid="c1", parentUuid="u7", **ENVELOPE)
    lines[8]["parentUuid"] = "c1"
    return [*aside, *lines[:8], meta, markup, *lines[8:]]


CLAUDE_SAYS = (
    ("user", "Why does test 0 fail?"),
    ("assistant", "Look at test 0 first.|I read the test and its log.|Read|Bash"),
    ("tool", "def test(): assert add(1, 0) == 1"),
    ("tool", "AssertionError\nexit code 1"),
    ("assistant", "The sum of 1 and 0 is computed with a minus sign."),
    ("user", "Then correct it."),
    ("assistant", "Edit"),
    ("tool", "The file add.py has been updated."),
    ("assistant", "Corrected."),
)
"""What `claude` says, by hand: text and reasoning, and the names of calls."""


def sidechain() -> list[Line]:
    """What a sub-agent said, in the file of its agent."""
    said = [user("List the tests."), assistant("s1", text("There is one test."))]
    return [{**line, "isSidechain": True} for line in _linked(said, None, "side")]


def branch() -> list[Line]:
    """Another question in place of the second one of `claude`."""
    return _linked([user("Leave it as it is."), assistant("b1", text("I leave it."))], "u7", "b")


def codex(number: int = 0) -> list[Line]:
    """A rollout of Codex: environment and instructions before the prompt, reasoning as a summary, a shell call, a patch, mirrors for the interface."""
    say = lambda role, kind, words: {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}  # noqa: E731
    patch = f"*** Add File: test_{number}.py\n+pass"
    item = lambda payload: {"type": "response_item", "payload": payload}  # noqa: E731
    lines = [
        {
            "type": "session_meta",
            "payload": {"id": "0199", "cwd": "/home/ana/site", "cli_version": "0.80.0", "base_instructions": {"text": "You are Codex."}},
        },
        item(say("developer", "input_text", "<permissions instructions>Ask before you write.</permissions instructions>")),
        item(say("user", "input_text", "<environment_context>\n  <cwd>/home/ana/site</cwd>\n</environment_context>")),
        {"type": "event_msg", "payload": {"type": "user_message", "message": f"Add test {number}.", "kind": "plain"}},
        {"type": "turn_context", "payload": {"cwd": "/home/ana/site", "model": "gpt-5-codex", "approval_policy": "never"}},
        item(say("user", "input_text", f"Add test {number}.")),
        item(
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "First I look around."}],
                "content": None,
                "encrypted_content": "gAAA",
            }
        ),
        item({"type": "function_call", "name": "shell", "arguments": json.dumps({"command": ["ls", "-a"]}), "call_id": "call_1"}),
        item({"type": "function_call_output", "call_id": "call_1", "output": "add.py\nREADME.md"}),
        item(
            {
                "type": "custom_tool_call",
                "status": "completed",
                "call_id": "call_2",
                "name": "apply_patch",
                "input": patch,
            }
        ),
        item({"type": "custom_tool_call_output", "call_id": "call_2", "output": "Success."}),
        {"type": "event_msg", "payload": {"type": "token_count", "info": {"total_tokens": 900}}},
        item(say("assistant", "output_text", f"Test {number} is there.")),
        {"type": "event_msg", "payload": {"type": "agent_message", "message": f"Test {number} is there."}},
    ]
    return [{"timestamp": f"2026-11-02T11:00:{at:02}.000Z", **line} for at, line in enumerate(lines)]


CODEX_SAYS = (
    ("system", "You are Codex."),
    ("user", "Add test 0."),
    ("assistant", "First I look around.|shell"),
    ("tool", "add.py\nREADME.md"),
    ("assistant", "apply_patch"),
    ("tool", "Success."),
    ("assistant", "Test 0 is there."),
)


def pi(number: int = 0) -> list[Line]:
    """A session of Pi, a tree of entries."""
    usage = {"input": 10, "output": 3, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 13, "cost": {"total": 0.1}}
    said = {"api": "anthropic-messages", "provider": "anthropic", "model": "claude-sonnet-5", "usage": usage}
    entries = [
        {"type": "model_change", "provider": "anthropic", "modelId": "claude-sonnet-5"},
        {"type": "message", "message": {"role": "user", "content": [text(f"What is in file {number}?")], "timestamp": 1}},
        {
            "type": "message",
            "message": {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I read it.", "thinkingSignature": "EqQB"},
                    {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": f"{number}.txt"}},
                ],
                "stopReason": "toolUse",
                "timestamp": 2,
                **said,
            },
        },
        {
            "type": "message",
            "message": {
                "role": "toolResult",
                "toolCallId": "c1",
                "toolName": "read",
                "content": [text(f"number {number}")],
                "isError": False,
                "timestamp": 3,
            },
        },
        {
            "type": "message",
            "message": {"role": "assistant", "content": [text(f"The number {number}.")], "stopReason": "stop", "timestamp": 4, **said},
        },
        {"type": "session_info", "name": "A file"},
    ]
    header = {"type": "session", "version": 3, "id": "01a", "timestamp": "2026-11-02T12:00:00.000Z", "cwd": "/home/ana/site"}
    links = [
        {"id": f"e{at}", "parentId": f"e{at - 1}" if at else None, "timestamp": f"2026-11-02T12:00:{at:02}.000Z"}
        for at in range(len(entries))
    ]
    return [header, *({**entry, **link} for entry, link in zip(entries, links, strict=True))]


PI_SAYS = (("user", "What is in file 0?"), ("assistant", "I read it.|read"), ("tool", "number 0"), ("assistant", "The number 0."))


def hermes(number: int = 0) -> list[Line]:
    """A session as `hermes sessions export` writes it: a row."""
    call = {"id": "h1", "type": "function", "function": {"name": "terminal", "arguments": '{"command": "date"}'}}
    messages = [
        {"role": "user", "content": f"Which day is it in city {number}?"},
        {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "I ask the clock.", "finish_reason": "tool_calls"},
        {"role": "tool", "content": "Mon Nov 2", "tool_call_id": "h1", "tool_name": "terminal"},
        {"role": "assistant", "content": f"It is Monday in city {number}.", "finish_reason": "stop"},
    ]
    stored = [
        {"id": at, "session_id": "h", "timestamp": 1762000000.5 + at, "token_count": 4, **each} for at, each in enumerate(messages, 1)
    ]
    about = {"id": f"h{number}", "source": "cli", "model": "hermes-5", "started_at": 1762000000.25, "message_count": 4, "title": "A day"}
    return [{**about, "system_prompt": "You are Hermes.", "messages": stored}]


HERMES_SAYS = (
    ("system", "You are Hermes."),
    ("user", "Which day is it in city 0?"),
    ("assistant", "I ask the clock.|terminal"),
    ("tool", "Mon Nov 2"),
    ("assistant", "It is Monday in city 0."),
)

SESSIONS: Mapping[str, Any] = {"claude": claude, "codex": codex, "pi": pi, "hermes": hermes}
SAYS = {"claude": CLAUDE_SAYS, "codex": CODEX_SAYS, "pi": PI_SAYS, "hermes": HERMES_SAYS}


# Trajectories.


def step(number: int, source: str, message: str, **more: Any) -> Line:
    return {"step_id": number, "source": source, "message": message, "timestamp": f"2026-11-02T13:00:{number:02}Z", **more}


def sampled(prompt: Sequence[int], answer: str) -> tuple[Line, list[int]]:
    """Metrics of a call that was given a prompt and wrote an answer, and all ids after it."""
    ids = encoded(f"{answer}<|im_end|>")
    scores = [-0.25 * (1 + place % 4) for place in range(len(ids))]
    about = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "cost_usd": 0.001}
    return {**about, "prompt_token_ids": [*prompt], "completion_token_ids": ids, "logprobs": scores}, [*prompt, *ids]


def asking(*turns: tuple[str, str], before: Sequence[int] = ()) -> list[int]:
    """The ids that a model is given: those before, turns, and the beginning of an answer."""
    told = "".join(f"<|im_start|>{role}\n{words}<|im_end|>\n" for role, words in turns)
    return [*before, *encoded(f"{chr(10) if before else ''}{told}<|im_start|>assistant\n")]


def trajectory(number: int = 0, **more: Any) -> Line:
    """A run of two questions: the ids of the second call go on with those of the first."""
    first = asking(("system", "Answer briefly."), ("user", f"How many files are in folder {number}?"))
    metrics, after = sampled(first, f"There are {number} files.")
    later, _ = sampled(asking(("user", "Count hidden ones as well."), before=after), f"Then it is {number + 2}.")
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": f"run-{number}",
        "agent": {"name": "counter", "version": "1.0", "model_name": "small"},
        "steps": [
            step(1, "system", "Answer briefly."),
            step(2, "user", f"How many files are in folder {number}?"),
            step(3, "agent", f"There are {number} files.", metrics=metrics),
            step(4, "user", "Count hidden ones as well."),
            step(5, "agent", f"Then it is {number + 2}.", metrics=later),
        ],
        "final_metrics": {"total_steps": 5},
        "extra": {"reward": 0.5 * (number % 3)},
        **more,
    }


def helper(name: str = "explorer", id: str = "sub-1", number: int = 0) -> Line:
    """The trajectory of a sub-agent."""
    metrics, _ = sampled(asking(("system", "Answer briefly."), ("user", f"List folder {number}.")), "It is empty.")
    steps = [
        step(1, "system", "Answer briefly."),
        step(2, "user", f"List folder {number}."),
        step(3, "agent", "It is empty.", metrics=metrics),
    ]
    return {"schema_version": "ATIF-v1.7", "trajectory_id": id, "agent": {"name": name, "version": "1"}, "steps": steps}


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "How warm it is.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def called(number: int = 0, **more: Any) -> Line:
    """Two calls at once, whose results come in another order, an observation of no call, copied context, a call of no model."""
    calls = [
        {"tool_call_id": f"c{at}", "function_name": "weather", "arguments": {"city": city}} for at, city in enumerate(("Oslo", "Rome"))
    ]
    results = [{"source_call_id": "c1", "content": "20"}, {"source_call_id": "c0", "content": [{"type": "text", "text": f"{number}"}]}]
    return {
        "schema_version": "ATIF-v1.6",
        "agent": {"name": "a", "version": "1", "tool_definitions": [WEATHER], "extra": {"seed": 1}},
        "steps": [
            step(1, "user", f"How warm is it in Oslo, trip {number}?"),
            step(2, "agent", "", reasoning_content="I ask for both.", tool_calls=calls, observation={"results": results}),
            step(3, "agent", f"It is {number} degrees.", is_copied_context=True),
            step(4, "user", "And tomorrow?"),
            step(5, "agent", f"Warm, as on day {number}.", observation={"results": [{"content": "The user smiles."}]}),
            step(6, "agent", "Good.", llm_call_count=0),
            step(7, "agent", "Good bye.", extra={"retries": 0}),
        ],
        **more,
    }


# Several, for the workspaces in which bugs are planted: whole ones and some that are set aside.


def sessions() -> list[list[Line]]:
    cut = [claude(7)[:-1], claude(8)[4:], [*claude(9), {"type": "telepathy"}], [*claude(10), *sidechain()], [*claude(11), *branch()]]
    return [*(make(number) for make in SESSIONS.values() for number in range(3)), *cut]


def branches() -> list[list[Line]]:
    """Sessions of which a part is read."""
    compacted = _linked([user("It was corrected.", isCompactSummary=True), assistant("m9", text("Good."))], None, "k")
    other = {**pi(4)[2], "id": "x", "parentId": "e0", "message": {"role": "user", "content": "Never mind."}}
    answer = {**pi(4)[5], "id": "y", "parentId": "x"}
    kept = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]}]
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I go on."}]}
    more = [{"type": "compacted", "payload": {"message": "x", "replacement_history": kept}}, {"type": "response_item", "payload": said}]
    return [
        [*claude(1), *branch()],
        [*claude(2), *sidechain()],
        [*claude(3), *compacted],
        claude(4)[:-1],
        [*pi(4), other, answer],
        [*codex(5), *more],
    ]


def chats() -> list[Line]:
    return [*(called(number) for number in range(4)), *(trajectory(number) for number in range(3)), called(9, schema_version="ATIF-v2.0")]


def traces() -> list[Line]:
    lossy = trajectory(8)
    lossy["steps"][3]["message"] = "Count"
    return [*(trajectory(number) for number in range(4)), {**trajectory(5), "subagent_trajectories": [helper(number=5)]}, lossy]
