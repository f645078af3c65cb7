"""Rows of real form for the workspaces: what data sets hold, odd rows and rows that are rejected among them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

Row = dict[str, Any]
ASKED = (
    "How do I keep basil alive on a window sill?",
    "Explain why the sky is red in the evening.",
    "写一首关于秋天的短诗。",
    "What does `zip(*rows)` do?\n\nPlease show an example.",
    "Wie weit ist der Mond entfernt?",
    "Name three rivers in Africa.",
    "My train leaves at 7:45 and takes 95 minutes. When do I arrive?",
    "Is 91 a prime number?",
)
SAID = (
    "Water it when the top of the soil is dry, and turn the pot once a week.",
    "The light passes through more air, which scatters blue away.\nSo red is left.",
    "落叶随风去，\n秋水映长天。",
    "It turns rows into columns:\n```python\nlist(zip(*[(1, 2), (3, 4)]))\n```",
    "Im Mittel sind es 384.400 km.",
    "The Nile, the Congo and the Niger.",
    "At 9:20.",
    "No: 91 = 7 · 13.",
)
SYSTEMS = ("You are a patient gardener.", "Answer in one sentence.", "")


def asked(number: int) -> str:
    return f"{ASKED[number % len(ASKED)]} ({number})"


def said(number: int) -> str:
    return f"{SAID[number % len(SAID)]} [{number}]"


def message(role: str, content: Any, **more: Any) -> Row:
    return {"role": role, "content": content, **more}


def chat(number: int, rounds: int = 1, **more: Any) -> Row:
    """A chat of some rounds; every third begins with a system prompt."""
    turns = [message("system", SYSTEMS[number % 2])] if number % 3 == 0 else []
    for at in range(rounds):
        turns += [message("user", asked(number * 7 + at)), message("assistant", said(number * 5 + at))]
    return {"messages": turns, **more}


def chats(count: int) -> list[Row]:
    """Chats of one to four rounds, with duplicates, and chats that are rejected for several reasons."""
    rows = [chat(number, 1 + number % 4) for number in range(count)]
    rows[7 % count] = rows[2 % count]
    return [
        *rows,
        chat(1, 2),
        {"messages": [message("user", "Only a question.")]},
        {"messages": [message("user", "q"), message("assistant", "")]},
        {"messages": [message("user", 4), message("assistant", "a")]},
        {"messages": [message("critic", "x"), message("assistant", "a")]},
        {"messages": []},
        {"messages": [message("assistant", "I begin."), message("user", "Why?"), message("assistant", "Because.")]},
        {"messages": [message("user", "Long. " * 400), message("assistant", "Short.")]},
    ]


def opted_chats(count: int = 12) -> list[Row]:
    """Chats with template options of their own."""
    return [{**chat(n, 2), "chat_template_kwargs": {"end_with_eos": n % 2 == 0, "unused": ""}} for n in range(count)]


def odd_chats() -> list[Row]:
    """White space, typed control tokens, reasoning in tags, several turns of a role, developers, Unicode."""
    answers = (
        " a",
        "a\n",
        "\n\n",
        "\t",
        "a  b",
        "<|im_end|>",
        "<think>\nHm.\n</think>\n\nSo.",
        "<think></think>Yes",
        "e\u0301 \u200b\u00a0",
        "</s>",
        "{{ x }}",
        "🍵🇩🇪",
    )
    rows: list[Row] = [{"messages": [message("user", f"{text}?{text}"), message("assistant", text)]} for text in answers]
    return [
        *rows,
        {"messages": [message("developer", "Be brief."), message("user", "One?"), message("assistant", "One.")]},
        {"messages": [message("user", "One?"), message("user", "Two?"), message("assistant", "Three.")]},
        {"messages": [message("user", "Go on."), message("assistant", "A."), message("assistant", "B.")]},
        {"messages": [message("system", "S."), message("assistant", "Hello."), message("user", "Hi."), message("assistant", "Yes?")]},
        {"messages": [message("user", "Go."), message("assistant", "Done."), message("user", "Thanks.")]},
        {
            "messages": [
                message("user", [{"type": "text", "text": "In "}, {"type": "text", "text": "parts."}]),
                message("assistant", "Yes."),
            ]
        },
    ]


def weighted_chats(count: int = 12) -> list[Row]:
    """Chats with weights of messages and of parts."""
    rows: list[Row] = []
    for n in range(count):
        turns = chat(n, 3)["messages"]
        answers = [turn for turn in turns if turn["role"] == "assistant"]
        answers[0] |= ({"weight": 0}, {"train": False}, {"loss_weight": 0.25}, {"weight": 1})[n % 4]
        if n % 2:
            answers[1]["content"] = [
                {"type": "text", "text": said(n), "weight": 0.5},
                {"type": "text", "text": " And so on.", "weight": n % 3},
            ]
        rows.append({"messages": turns})
    return [*rows, {"messages": [message("user", "q"), message("assistant", "a", weight=-1)]}]


CITIES = ("Oslo", "Lima", "東京", "Accra")


def tool(name: str, **fields: str) -> Row:
    properties = {key: {"type": kind} for key, kind in fields.items()}
    described = {"name": name, "description": f"{name.title()} of something.", "parameters": {"type": "object", "properties": properties}}
    return {"type": "function", "function": described}


TOOLS = [tool("weather", city="string", unit="string"), tool("time", city="string"), tool("add", a="number", b="number")]


def call(name: str, identity: str, **arguments: Any) -> Row:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_chats(count: int = 12, texts: bool = True) -> list[Row]:
    """Chats with one call or parallel ones, whose results come in another order; every other one thinks before it calls."""
    rows: list[Row] = []
    for n in range(count):
        city, other = CITIES[n % 4], CITIES[(n + 1) % 4]
        calls = [call("weather", f"a{n}", unit="C", city=city)]
        results = [message("tool", json.dumps({"celsius": n}), tool_call_id=f"a{n}")]
        if n % 3 == 1:
            calls.append(call("time", f"b{n}", city=other))
            results.insert(0, message("tool", f"{n}:00", tool_call_id=f"b{n}"))
        if n % 3 == 2:
            calls = [call("add", f"c{n}", b=n, a=1.5), call("add", f"d{n}", a=2, b=[n, {"x": None}])]
            results = [message("tool", f"{n} in all", tool_call_id=f"d{n}"), message("tool", f"-{n} left", tool_call_id=f"c{n}")]
        turns = [message("user", f"How is it in {city}, and what is {n} and a half?")]
        thought = {"reasoning_content": f"I must look up {city}."} if n % 2 else {}
        turns += [message("assistant", "Let me see." if texts and n % 4 == 0 else None, tool_calls=calls, **thought), *results]
        turns += [
            message("assistant", f"It is {n} degrees in {city}."),
            *([message("user", "Thanks!"), message("assistant", f"Welcome, {n}.")] if n % 4 else []),
        ]
        rows.append({"messages": turns, "tools": TOOLS[: 1 + n % 3] if n % 3 != 1 else TOOLS[:2]})
        if n % 3 == 2:
            rows[-1]["tools"] = TOOLS
    lost = message("assistant", None, tool_calls=[call("time", "z", city="Oslo")])
    return [
        *rows,
        {"messages": [message("user", "q"), lost, message("tool", "1", tool_call_id="y"), message("assistant", "a")], "tools": TOOLS},
    ]


def logged(provider: str) -> list[Row]:
    """Chats with calls as logs of a provider; one of them has two system prompts."""
    rows: list[Row] = []
    for n, chat in enumerate(tool_chats()):
        said, tools = [*[message("system", SYSTEMS[1])] * (n == 4), *chat["messages"]], [each["function"] for each in chat["tools"]]
        if provider == "anthropic":
            turns, system = [_blocks(each) for each in said], (SYSTEMS[0], [{"text": SYSTEMS[0]}], None)[n % 3]
            request = {
                "system": system,
                "messages": turns[:-1],
                "tools": [{"name": f["name"], "input_schema": f["parameters"]} for f in tools],
            }
            rows.append({"request": request, "response": turns[-1]})
        else:
            items = [item for each in said for item in _items(each)]
            request = {"instructions": SYSTEMS[0], "input": items[:-1], "tools": [{"type": "function", **f} for f in tools]}
            rows.append({"request": request, "response": {"output": items[-1:]}})
    return rows


def _blocks(said: Row) -> Row:
    """A message as Anthropic writes it."""
    if said["role"] == "tool":
        return message("user", [{"type": "tool_result", "tool_use_id": said["tool_call_id"], "content": said["content"]}])
    thoughts = [{"type": "thinking", "thinking": said["reasoning_content"], "signature": "x"}] if "reasoning_content" in said else []
    calls = [
        {"type": "tool_use", "id": each["id"], "name": each["function"]["name"], "input": each["function"]["arguments"]}
        for each in said.get("tool_calls", ())
    ]
    texts = [{"type": "text", "text": said["content"]}] if said["content"] else []
    return message(said["role"], [*thoughts, *texts, *calls] if thoughts or calls else said["content"])


def _items(said: Row) -> list[Row]:
    """A message as the items of OpenAI's Responses."""
    if said["role"] == "tool":
        return [{"type": "function_call_output", "call_id": said["tool_call_id"], "output": said["content"]}]
    thoughts = [{"type": "summary_text", "text": said["reasoning_content"]}] if "reasoning_content" in said else []
    calls = [
        {
            "type": "function_call",
            "call_id": each["id"],
            "name": each["function"]["name"],
            "arguments": json.dumps(each["function"]["arguments"]),
        }
        for each in said.get("tool_calls", ())
    ]
    texts = [{"type": "message", **message(said["role"], said["content"])}] if said["content"] else []
    return [*([{"type": "reasoning", "summary": thoughts}] if thoughts else []), *texts, *calls]


PRIVATE = (
    "maria.lopez@correo.es",
    "maria [at] correo [dot] es",
    "m.lopez&#64;correo.es",
    "ana@münchen.de",
    "+34 612 345 678",
    "0034 612 345 678 2024-05-06",
    "030 901820-12",
    "8.8.8.8",
    "2606:4700:4700::1111",
    "4111 1111 1111 1111 12/27",
    "4111\u202f1111\u202f1111\u202f1111",
    "4111-1111-1111-1111 5500 0000 0000 0004",
    "DE89 3704 0044 0532 0130 00 EUR",
    "de89370400440532013000",
    "12345678Z",
    "123-45-6789",
    "CPF 529.982.247-25",
    "AKIA" + "Q7" * 8,
    "https://hooks.slack.com/services/T0000/B0000/" + "x1" * 12,
    "sk-" + "a1B2" * 12,
)
"""Values of every kind, plain, with what often stands beside them, and in disguise."""
PUBLIC = ("git@github.com:keeper/lamp.git", "192.168.1.1", "4111 1111 1111 1112", "48.8566, 2.3522", "DE88 3704 0044 0532 0130 00")
"""What looks like them and is nobody's."""


def private(count: int = 24) -> list[Row]:
    """Chats with private values in questions, answers, names, arguments of calls and their results."""
    rows: list[Row] = []
    for n in range(count):
        value, other = PRIVATE[n % len(PRIVATE)], PUBLIC[n % len(PUBLIC)]
        turns = [message("user", f"{asked(n)} Bitte antworten Sie an {value}, oder an {other}, danke.", name=f"user {n}")]
        if n % 3 == 1:
            turns += [message("assistant", None, tool_calls=[call("time", f"t{n}", city=f"Oslo, {value}", card=4111111111111111)])]
            turns += [message("tool", json.dumps({"who": value, "where": other}), tool_call_id=f"t{n}")]
        turns += [message("assistant", f"{said(n)} Ask {value} or {PRIVATE[(n + 7) % len(PRIVATE)]}.")]
        rows.append({"messages": turns, **({"tools": [tool("time", city="string", card="integer")]} if n % 3 == 1 else {})})
    return [*rows, rows[3], {"messages": [message("user", PRIVATE[0]), message("critic", PRIVATE[4])]}]


def private_documents() -> list[Row]:
    """Documents with each private value, and with what looks like one."""
    return [{"text": f"Wie vereinbart erreichen Sie ihn unter {value}.\n{said(n)}"} for n, value in enumerate((*PRIVATE, *PUBLIC))]


def thoughts(count: int = 12) -> list[Row]:
    """Chats whose answers have reasoning, in a field, in a part or in tags."""
    rows: list[Row] = []
    for n in range(count):
        answers = (
            message("assistant", said(n), reasoning_content=f"First {n}.\nThen more."),
            message("assistant", [{"type": "thinking", "thinking": f"Hm {n}."}, {"type": "text", "text": said(n)}]),
            message("assistant", f"<think>\nLet me see {n}.\n</think>\n\n{said(n)}"),
            message("assistant", said(n)),
        )
        rows.append({"messages": [message("user", asked(n)), answers[n % 4], message("user", asked(n + 1)), answers[(n + 1) % 4]]})
    rows[3]["messages"] = [{**said, "index": 90 - 7 * at} for at, said in enumerate(rows[3]["messages"])]  # the numbers of a data set
    return rows


def instructions(count: int = 24) -> list[Row]:
    rows: list[Row] = [
        {"instruction": asked(n), "input": ("", f"Use {n} words.", " \n", None)[n % 4], "output": said(n)} for n in range(count)
    ]
    past = {"system": "Be brief.", "history": [[asked(3), said(3)], [asked(4), said(4)]]}
    return [*rows, {**rows[1], **past, "instruction": "And now?"}, {**rows[2], "output": ""}, {**rows[3], "instruction": 3}, rows[5]]


def shares(count: int = 20) -> list[Row]:
    rows: list[Row] = []
    for n in range(count):
        turns = [{"from": "human", "value": asked(n)}, {"from": "gpt", "value": said(n)}]
        if n % 3 == 1:
            turns += [
                {"from": "human", "value": "Add."},
                {"from": "function_call", "value": json.dumps({"name": "add", "arguments": {"b": n, "a": 1}})},
            ]
            turns += [{"from": "observation", "value": f"{n + 1}"}, {"from": "gpt", "value": f"It is {n + 1}."}]
        rows.append(
            {
                "conversations": turns,
                **({"system": SYSTEMS[0]} if n % 2 else {}),
                **({"tools": json.dumps(TOOLS[2:])} if n % 3 == 1 else {}),
            }
        )
    return [*rows, {"conversations": [{"from": "human", "value": "q"}, {"from": "nobody", "value": "a"}]}, rows[0]]


def shared_pairs(count: int = 16) -> list[Row]:
    return [
        {
            **row,
            "conversations": row["conversations"][:-1],
            "chosen": row["conversations"][-1],
            "rejected": {"from": "gpt", "value": f"Bad {n}."},
        }
        for n, row in enumerate(shares(count)[:count])
    ]


def judged(count: int = 16) -> list[Row]:
    rows: list[Row] = [
        {"instruction": asked(n), "input": ("", f"In {n} words.")[n % 2], "chosen": said(n), "rejected": said(n + 1)} for n in range(count)
    ]
    return [*rows, {**rows[0], "system": "S.", "history": [["a", "b"]]}, {**rows[1], "rejected": rows[1]["chosen"]}]


def pairs(count: int = 24) -> list[Row]:
    """Pairs as texts, some with a margin; equal sides, an empty one, duplicates, long ones."""
    rows: list[Row] = [{"prompt": asked(n), "chosen": said(n), "rejected": said(n + 3)} for n in range(count)]
    rows = [row | ({"margin": n / 7} if n % 3 else {}) for n, row in enumerate(rows)]
    return [*rows, rows[4], {**rows[0], "rejected": rows[0]["chosen"]}, {**rows[1], "chosen": " "}, {**rows[2], "rejected": "Long. " * 300}]


def pairs_of_messages(count: int = 16) -> list[Row]:
    rows: list[Row] = []
    for n in range(count):
        prompt = chat(n, 1 + n % 2)["messages"][:-1]
        good = message("assistant", said(n), **({"reasoning_content": f"Hm {n}."} if n % 2 else {}))
        rows.append({"prompt": prompt, "chosen": [good], "rejected": [message("assistant", said(n + 2))]})
    tools = tool_chats(6)[:6]
    called = [
        {
            "prompt": row["messages"][:1],
            "chosen": row["messages"][1:2],
            "rejected": [message("assistant", "No idea.")],
            "tools": row["tools"],
        }
        for row in tools
    ]
    return [*rows, *called]


def labelled(count: int = 16) -> list[Row]:
    return [{"prompt": asked(n), "completion": said(n), "label": n % 3 > 0} for n in range(count)]


def scored(count: int = 16, answers: int = 3) -> list[Row]:
    scores = ([0.5, -0.25, 1.5], [1, 0, 0], [0.1, 0.2, 0.30000001], [-1, 2, 2])
    rows: list[Row] = [
        {
            "prompt": asked(n),
            "responses": [said(n + at) for at in range(2 + n % 2)][:answers],
            "rewards": scores[n % 4][: 2 + n % 2][:answers],
        }
        for n in range(count)
    ]
    return [*rows, {**rows[0], "rewards": [1]}, {**rows[1], "rewards": [1e39, 1, 2][: len(rows[1]["responses"])]}, rows[3]]


def compared(count: int = 16) -> list[Row]:
    return [
        {"context": asked(n), "response1": said(n), "response2": said(n + 1), "overall_preference": (-2, 1, 3, -1, 0)[n % 5]}
        for n in range(count)
    ]


def prompts(count: int = 24) -> list[Row]:
    golds = ("1,234", "$5", 18.0, 18, -0.5, " 7 ", "x", "12")
    rows: list[Row] = [{"prompt": asked(n), "gold": golds[n % len(golds)], "source": f"s{n % 2}"} for n in range(count)]
    return [
        *rows,
        rows[1],
        {**rows[0], "prompt": ""},
        {**rows[0], "prompt": [message("system", "S."), message("user", "2 + 2?")], "gold": "4"},
    ]


def problems(count: int = 24) -> list[Row]:
    rows: list[Row] = [
        {
            "question": f"Ann has {n} pears and buys {n + 2}. How many has she?",
            "answer": f"She has {n}+{n + 2}=<<{n}+{n + 2}={2 * n + 2}>>{2 * n + 2} pears.\n#### {2 * n + 2:,}",
        }
        for n in range(count)
    ]
    return [*rows, {**rows[0], "answer": "no gold"}, {**rows[1], "answer": "#### 3"}, rows[2]]


def golds() -> list[Row]:
    """Prompts of several verifiers, a right gold and a wrong one of each."""
    program = "def add(a, b):\n    return a + b"
    told: tuple[tuple[str, str, Any], ...] = (
        ("math", "\\frac{1}{2}", {}),
        ("math", "3 1/2", {}),
        ("math_bare", "\\frac{1}{2}", {}),
        ("math_bare", "a half, of course", {}),
        ("code", program, ["assert add(1, 2) == 3"]),
        ("code", f"Sure:\n```python\n{program}\n```", {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}),
        ("code", program, ["assert add(1, 2) == 3", "assert add(1, 2) == 4"]),
        ("code", "print(sum(map(int, input().split())))", {"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]}),
        ("code", "print(3)", {"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]}),
        ("ifeval", "No comma.", {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}),
        ("ifeval", "One, at least.", {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}),
        ("nobody", "7", {}),
    )
    return [{"prompt": asked(n), "gold": gold, "verifier": verifier, "told": given} for n, (verifier, gold, given) in enumerate(told)]


ANSWERS = (
    "18",
    "18.0",
    "19",
    "0.5",
    "1/2",
    "50%",
    "1,234",
    "1234 meters",
    "5 hours",
    "5 seconds",
    "(3, 4)",
    "34",
    "10-20",
    "-10",
    "€12",
    "12",
)


def answered() -> list[Row]:
    """Prompts with golds, and answers of chats: to every second one its gold, written in the same way, to the next one another, equal or not."""
    return [
        {"prompt": f"Sum {n}?", "gold": ANSWERS[n // 2 * 2 % len(ANSWERS)], "answer": f"So it is \\boxed{{{answer}}}."}
        for n, answer in enumerate(ANSWERS)
    ]


def faulty_pairs() -> list[Row]:
    """Sixty pairs of a good answer and a bad one, and some whose labels are swapped, that refuse, are alike, or call tools that are not on offer."""
    good = [
        {"prompt": [message("user", f"What is {n}?")], "chosen": [message("assistant", f"It is the number {n}, clearly.")]}
        for n in range(60)
    ]
    rows: list[Row] = [{**row, "rejected": [message("assistant", f"No idea about {n}!")]} for n, row in enumerate(good)]
    rows += [
        {**row, "prompt": [message("user", f"And {n}?")], "chosen": row["rejected"], "rejected": row["chosen"]}
        for n, row in enumerate(rows[:2])
    ]
    said = ("I'm sorry, but I cannot help with that.", "It is the number 3, clearly!", "It is the number 3, clearly.")
    rows += [
        {
            "prompt": [message("user", f"{asked(n)}?")],
            "chosen": [message("assistant", said[n % 3])],
            "rejected": [message("assistant", said[(n + 1) % 3])],
        }
        for n in range(3)
    ]
    calls = [call("add", "a", a=1, b=2), call("ad", "b", a=1), call("add", "c", a="one"), call("add", "d", x=1)]
    for n, made in enumerate(calls):
        turns = [message("assistant", None, tool_calls=[made])]
        rows.append({"prompt": [message("user", asked(n))], "chosen": turns, "rejected": [message("assistant", "No.")], "tools": TOOLS[2:]})
    return rows


def contrasts(count: int = 24, *, graded_too: bool = False) -> list[Row]:
    rows: list[Row] = [{"query": asked(n), "pos": [said(n)], "neg": [said(n + 1), said(n + 2)][: 1 + n % 2]} for n in range(count)]
    rows = [row | {"prompt": f"Find answer {n % 2}."} for n, row in enumerate(rows)]
    graded = {**rows[1], "query": "Which?", "pos_scores": [0.75], "neg_scores": [0.5, 0.25]}
    return [
        *rows,
        *([graded] if graded_too else []),
        {**rows[0], "pos": []},
        {**rows[1], "neg": [rows[1]["pos"][0]]},
        rows[3],
        {**rows[4], "query": rows[4]["pos"][0]},
    ]


def documents(count: int = 40) -> list[Row]:
    """Documents of a line to many, with a field that chooses rows; duplicates, short and blank ones."""
    rows: list[Row] = [
        {"text": "\n".join(said(n + at) for at in range(1 + n % 9)), "source": f"s{n % 2}", "score": n % 5} for n in range(count)
    ]
    return [
        *rows,
        rows[3],
        {**rows[0], "text": ""},
        {**rows[0], "text": "x"},
        {**rows[0], "text": " \n"},
        {**rows[0], "text": f"  {said(1)}  "},
        {**rows[0], "text": None},
    ]


def steps(count: int = 12) -> list[Row]:
    texts = ("First, 3 * 4 is 12.", "Then 2 + 12 is 14.", "So it is 14.")
    return [
        {"prompt": asked(n), "completions": list(texts[: 1 + n % 3]), "labels": [bool((n + at) % 2) for at in range(1 + n % 3)]}
        for n in range(count)
    ]


Encode = Callable[[str], list[int]]
"""A text → the ids of the tokenizer of runs."""


def _scores(count: int) -> list[float]:
    return [-0.25 * (1 + place % 4) for place in range(count)]


def traces(encode: Encode, count: int = 6) -> list[Row]:
    """Runs as graphs of messages: answers tried twice, and two beginnings of one prompt."""

    def given(parent: int | None, text: str) -> Row:
        ids = encode(("" if parent is None else "\n") + f"<|im_start|>user\n{text}<|im_end|>\n")
        return {
            "parent": parent,
            "message": message("user", text),
            "sampled": False,
            "token_ids": ids,
            "mask": [False] * len(ids),
            "logprobs": [],
        }

    def sampled(parent: int, text: str) -> Row:
        head, ids = encode("<|im_start|>assistant\n"), encode(f"{text}<|im_end|>")
        return {
            "parent": parent,
            "message": message("assistant", text),
            "sampled": True,
            "token_ids": head + ids,
            "mask": [False] * len(head) + [True] * len(ids),
            "logprobs": _scores(len(ids)),
        }

    rows: list[Row] = []
    for n in range(count):
        nodes = [
            given(None, asked(n)),
            sampled(0, f"I ask {n}."),
            given(1, "the tool says 4"),
            sampled(2, said(n)),
            sampled(2, f"Maybe {n}."),
            sampled(0, "No idea."),
        ]
        rows.append({"nodes": nodes, "rewards": {"right": {"score": 1.0, "weight": 0.5}, "short": {"score": -0.25}}})
    return rows


def runs(encode: Encode, count: int = 5) -> list[Row]:
    """Runs call by call: the second call goes on with the first, another agent is asked between, and the last begins anew."""

    def called(turns: list[Row], answer: str, before: list[int], **more: Any) -> Row:
        text = "".join(f"<|im_start|>{turn['role']}\n{turn['content']}<|im_end|>\n" for turn in (turns[-1:] if before else turns))
        ids = encode(f"{answer}<|im_end|>")
        tokens = {
            "prompt_ids": [*before, *encode(("\n" if before else "") + f"{text}<|im_start|>assistant\n")],
            "completion_ids": ids,
            "completion_mask": [1] * len(ids),
            "completion_logprobs": _scores(len(ids)),
        }
        return {"prompt": turns, "completion": [message("assistant", answer)], "tokens": tokens, **more}

    def run(n: int, reward: float) -> Row:
        first = called([message("user", asked(n))], f"I ask {n}.", [])
        helper = called([message("user", f"Look {n} up.")], f"Found {n}.", [], extras={"agent": "helper"})
        turns = [*first["prompt"], *first["completion"], message("user", "the tool says 4")]
        second = called(turns, said(n), [*first["tokens"]["prompt_ids"], *first["tokens"]["completion_ids"]])
        return {"trajectory": [first, helper, second, called([message("user", f"You know {n}.")], f"Then {n}.", [])], "reward": reward}

    return [{"runs": [run(n, 1.0), run(n, -0.5)]} for n in range(count)]


def taught(encode: Encode, count: int = 9) -> list[Row]:
    """Ids with a teacher's likeliest entries at each."""
    rows: list[Row] = []
    for n in range(count):
        ids = encode(said(n))
        entries = [[], *([token, 9 + at % 3] if at % 4 else [token] for at, token in enumerate(ids[1:]))]
        rows.append({"input_ids": ids, "token_ids": entries, "top_values": [[-0.5, -2.0][: len(each)] for each in entries]})
    return rows


def ids_with_labels(encode: Encode, count: int = 12) -> list[Row]:
    ids = [encode(said(n)) for n in range(count)]
    rows: list[Row] = [{"input_ids": each, "labels": [-100, -100, *each[2:]]} for each in ids[: count // 2]]
    rows += [{"prompt_ids": each[:3], "completion_ids": each[3:], "completion_mask": [1] * (len(each) - 3)} for each in ids[count // 2 :]]
    return [*rows, {"input_ids": [65, 66], "labels": [-100, 67]}]


def varied(value: Any, number: int) -> Any:
    """A row of a table of examples with longer texts, so that there are several of it."""
    words = {
        "q": asked,
        "a": said,
        "good": said,
        "bad": lambda n: said(n + 1),
        "s": lambda n: f"System {n}.",
        "x": lambda n: said(n + 2),
        "b": lambda n: said(n + 4),
    }
    if isinstance(value, str):
        word = value.strip()
        return value.replace(word, words[word](number)) if word in words else value
    if isinstance(value, Mapping):
        kept = ("role", "from", "type", "name", "id", "tool_call_id")
        return {key: each if key in kept else varied(each, number) for key, each in value.items()}
    return [varied(each, number) for each in value] if isinstance(value, list | tuple) else value
