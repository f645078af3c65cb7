"""Texts of source rows in what a store holds: every schema of the registry, by its example rows, clean and with each text changed in turn."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.proofs import plain_reading
from prep_assets.proofs.plain_reading import ReadRows, plain_turns
from prep_assets.proofs.rebuilt import sorts_arguments
from prep_assets.proofs.source_fields import (
    CALLERS,
    CALLS,
    REASONINGS,
    ROLES,
    Unlike,
    in_call_order,
    is_call,
    is_wrapped,
    offered_fault,
    step_rewards,
)
from prep_assets.proofs.source_rows import Reading
from prep_assets.proofs.source_texts import CALL, EARLIER, Held, Missing, Policy, Said, missing, single
from prep_assets.samples import (
    ASSISTANT,
    COMPLETION,
    DOCUMENT,
    MEDIA,
    SEPARATOR,
    TOOL_CALL,
    Contrast,
    Example,
    Pair,
    Prompt,
    Region,
    Sample,
    Tokenized,
    Turn,
    changed,
)
from prep_assets.schemas.fields import unread, view_of
from prep_assets.schemas.registry import convert_with, schemas
from prep_assets_tests.cells import cells
from prep_assets_tests.corpus.rows import CASES
from prep_assets_tests.proofs.conversations import template

TAGS = (("<think>", "</think>"),)
TRAINED = (ASSISTANT, COMPLETION, DOCUMENT)


def shown(turns: Sequence[Turn]) -> tuple[bytes, dict[float, bytes]]:
    """All texts of turns, and those of each weight, with a mark before each turn."""
    whole, weighed = "", dict[float, str]()
    for turn in turns:
        whole, weighed = f"{whole}\x01", {weight: f"{text}\x01" for weight, text in weighed.items()}
        for region in turn.regions:
            if not region.drop and region.kind not in MEDIA:
                weight = single(float(turn.role in TRAINED) if region.loss_weight is None else region.loss_weight)
                whole, weighed[weight] = whole + region.text, weighed.get(weight, "") + region.text
    return whole.encode(), {weight: text.encode() for weight, text in weighed.items()}


def held(example: Example, name: str) -> dict[str, Held]:
    """What a store holds of an example, side by side, as plainly as can be."""
    offered = b"" if isinstance(example, Contrast) else json.dumps([*example.tools, *example.documents], ensure_ascii=False).encode()
    if isinstance(example, Sample):
        text, weighed = shown(example.turns)
        label = {} if example.label is None else {"label": Held(json.dumps(example.label).encode())}
        return {"": Held(offered + text, weighed), **label}
    if isinstance(example, Contrast):
        sides = {"query": example.query, "positives": "\n".join(example.positives), "negatives": "\n".join(example.negatives)}
        return {side: Held(text.encode()) for side, text in {**sides, "instruction": example.instruction or ""}.items()}
    prompt = offered + shown(example.prompt)[0]
    if isinstance(example, Prompt):
        fields = {"gold": json.dumps(example.gold), "verifier": json.dumps(example.verifier), "arguments": example.arguments}
        return {"prompt": Held(prompt), **{side: Held(text.encode()) for side, text in fields.items()}}
    labels = {}
    if isinstance(example, Pair):
        answers = {"chosen": example.chosen, "rejected": example.rejected}
    else:
        kept = [number for number in range(len(example.responses)) if not example.labels or example.labels[number] is not None]
        order = sorted(kept, key=lambda number: -example.rewards[number]) if name == "group_list" else kept
        answers = {f"responses[{at}]": example.responses[number] for at, number in enumerate(order)}
        labels["rewards"] = Held(json.dumps([example.rewards[number] for number in order]).encode())
        labels |= {f"label[{at}]": Held(json.dumps(example.labels[number]).encode()) for at, number in enumerate(order) if example.labels}
    whole = {side: Held(prompt + shown(turns)[0], shown((*example.prompt, *turns))[1], len(prompt)) for side, turns in answers.items()}
    return {"prompt": Held(prompt), **labels, **whole}


def rows() -> Iterator[tuple[str, Mapping[str, Any], dict[str, Any]]]:
    """Schema, row and options of every case, and the example of each schema."""
    for name, cases in CASES.items():
        yield from ((name, case[0], dict(*case[1:-1])) for case in cases)
    yield from ((name, schema.example, {}) for name, schema in schemas().items())


ALL = [pytest.param(*case, id=f"{case[0]}-{number}") for number, case in enumerate(rows())]


def read(name: str, row: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[Example, list[Said]]:
    """The example that a schema makes of a row, and what the row says; what the schema leaves unread is ignored, as a configuration must."""
    view = view_of(row)
    example = convert_with(name, options)(view)
    assert example is not None
    ignored = frozenset(path for path, _ in unread(view))
    gives = "Pair" if name in ("group_list", "group_kto") else type(example).__name__  # lines of preferences
    return example, Reading(name, options, gives, TAGS, ignored).texts(row)


def fault(said: Sequence[Said], sides: Mapping[str, Held]) -> Missing | None:
    lost = list[Said]()
    found = missing(said, sides, lost, policy=Policy({"assistant": True, "user": False}))
    return found or (Missing(lost[0], "is lost") if lost else None)


@cells(("name", "row", "options"), ALL)
def test_clean_rows_hold(name: str, row: Mapping[str, Any], options: dict[str, Any]) -> None:
    example, said = read(name, row, options)
    assert fault(said, held(example, name)) is None


def in_turn(example: Example) -> Iterator[tuple[str, Example]]:
    """The example with each of its texts changed, and with each taken out; with turns of a conversation swapped, and sides."""
    if isinstance(example, Contrast):
        yield "query", changed(example, query="\x02")
        for name in ("positives", "negatives"):
            for number in range(len(getattr(example, name))):
                yield (
                    name,
                    changed(example, **{name: tuple("\x02" if at == number else text for at, text in enumerate(getattr(example, name)))}),
                )
        return
    for name in ("turns", "prompt", "chosen", "rejected"):
        for spoiled in _spoiled(getattr(example, name, ())):
            yield name, changed(example, **{name: spoiled})
    for number, response in enumerate(getattr(example, "responses", ())):
        for spoiled in _spoiled(response):
            answers = tuple(spoiled if at == number else each for at, each in enumerate(example.responses))
            yield f"responses[{number}]", changed(example, responses=answers)
    if isinstance(example, Pair):
        yield "sides", changed(example, chosen=example.rejected, rejected=example.chosen)
    if isinstance(example, Prompt) and example.gold:
        yield "gold", changed(example, gold=f"1{example.gold}")
    if isinstance(example, Sample) and example.label is not None:
        yield "label", changed(example, label=not example.label)
    if example.tools and len(example.tools[-1]["function"]["name"]) > 1:
        yield "tools", changed(example, tools=example.tools[:-1])
    if example.tools and "harbour" in example.tools[-1]["function"].get("parameters", {}).get("properties", {}):
        bare = {"type": "function", "function": {**example.tools[-1]["function"], "parameters": {}}}
        yield "parameters", changed(example, tools=(*example.tools[:-1], bare))
    for document in example.documents:
        yield "documents", changed(example, documents=tuple(each for each in example.documents if each is not document))


def _spoiled(turns: Sequence[Turn]) -> Iterator[tuple[Turn, ...]]:
    for number, turn in enumerate(turns):
        for at, region in enumerate(turn.regions):
            beside_call = any(each.kind == TOOL_CALL for each in turn.regions)
            short = (
                len(region.text) < 2 and (turn.role == "system" or beside_call)
            ) or '{"name":"g",' in region.text  # stands in other words, too
            of_row = region.text not in OF_TAGS and region.kind != SEPARATOR
            if region.text.strip() and region.kind not in MEDIA and not region.drop and not short and of_row:
                for regions in ((changed(region, text="\x02"),), ()):
                    spoiled = changed(turn, regions=(*turn.regions[:at], *regions, *turn.regions[at + 1 :]))
                    yield (*turns[:number], spoiled, *turns[number + 1 :])


OF_TAGS = ("<image>", "</image>", "<|image|>")
"""Written around a part; no row has them."""
BY_IDS = ("agent_steps", "atif_group", "verifiers_trace")
"""Schemas whose rows hold ids, which `runs` compares."""


@cells(("name", "row", "options"), [case for case in ALL if case.values[0] not in BY_IDS])
def test_each_text_is_missed(name: str, row: Mapping[str, Any], options: dict[str, Any]) -> None:
    example, said = read(name, row, options)
    unseen = [what for what, spoiled in in_turn(example) if fault(said, held(spoiled, name)) is None]
    assert unseen == []


def test_every_schema_has_an_entry() -> None:
    assert [name for name in schemas() if not Reading(name, {}, "Sample").columns] == []


@pytest.mark.parametrize("more", ["\nBut that is wrong.", "\n#### 6", " #### 6", " or 6"])
@pytest.mark.parametrize("name", ["gsm8k", "gsm8k_prompt"])
def test_text_behind_a_final_answer_is_missed(name: str, more: str) -> None:
    row = {"question": "How many?", "answer": "Two and <<2+3=5>>three.\n#### 5"}
    example, said = read(name, row, {})
    assert fault(said, held(example, name)) is None
    said = Reading(name, {}, type(example).__name__).texts({**row, "answer": row["answer"] + more})
    assert fault(said, held(example, name)) is not None


def test_calls_between_tags_are_calls_and_results_stand_without_tags() -> None:
    """Read for a store whose template writes calls; for any other they are text."""
    call = '<tool_call>\n{"arguments": {"a": 2}, "name": "add"}\n</tool_call>\n'
    turns = (
        ("user", "2?"),
        ("assistant", f"I add.\n{call}"),
        ("tool", "<tool_response>\n4\n</tool_response>"),
        ("assistant", "<tool_call>{'name': 'sub', 'parameters': {'b': True}}</tool_call>"),
        ("tool", "5"),
        ("assistant", f"As {call}"),
        *(("assistant", text) for text in ("x</tool_call>", "<tool_call>{}</tool_call></tool_call>", f"y</tool_call>\n{call}")),
    )
    row = {"messages": [{"role": role, "content": text} for role, text in turns]}

    def texts(calls: bool) -> list[tuple[str, str]]:
        return [(said.kind, said.text.strip()) for said in Reading("messages", {}, "Sample", TAGS, calls=calls).texts(row)]

    assert texts(True) == [
        ("text", "2?"),
        ("text", "I add."),
        *(("call", each) for each in ("add", "a", "2")),
        ("text", "4"),
        *(("call", each) for each in ("sub", "b", "true")),
        ("text", "5"),
        ("text", f"As {call}".strip()),
        *(("text", each) for each in ("x</tool_call>", "<tool_call>{}</tool_call></tool_call>", "y</tool_call>")),
        *(("call", each) for each in ("add", "a", "2")),
    ]
    assert texts(False) == [("text", text.strip()) for _, text in turns]


def _thinking(*turns: tuple[str, str, str]) -> list[Said]:
    """Questions, with reasoning and answer of each."""
    kinds = (("user", "text"), ("assistant", "reasoning"), ("assistant", "text"))
    return [
        Said(f"{turn}.{kind}", "", 2 * turn + (role == "assistant"), kind, text, None, role)
        for turn, texts in enumerate(turns)
        for (role, kind), text in zip(kinds, texts, strict=True)
    ]


def test_reasoning_that_a_template_drops_and_a_later_turn_repeats_hides_no_text() -> None:
    said = _thinking(("How large?", "I must compute.", "Twelve."), ("And now?", "I must compute.", "Fifteen."))
    lost = list[Said]()
    assert missing(said, {"": Held(b"How large?|Twelve.|And now?|I must compute.Fifteen.")}, lost) is None
    assert [each.turn for each in lost] == [1]
    for spoiled in (b"How large?|And now?|I must compute.Fifteen.", b"How large?|Twelve.|I must compute.Fifteen.|And now?"):
        assert missing(said, {"": Held(spoiled)}, []) is not None, spoiled


def test_reasoning_that_is_said_once_stands_in_its_turn() -> None:
    said = _thinking(("How large?", "I must compute.", "Twelve."), ("And now?", "Again.", "Fifteen."))
    fault = missing(said, {"": Held(b"How large?|Twelve.|And now?|I must compute.Again.Fifteen.")}, [])
    assert fault is not None and fault.said.text == "And now?"
    lost = list[Said]()
    assert missing(said, {"": Held(b"How large?|Twelve.|And now?|Again.Fifteen.")}, lost) is None and lost == [said[1]]


ASKED, SAID = Said("q", "", 0, "text", " Two? ", None, "user"), Said("a", "", 1, "text", "Two.", None, "assistant")
LONG = "One and two and three and four and five and six and seven and eight."
RIGHT = {"": Held(b"|Two?|Two.|", {0.0: b"|Two?|", 1.0: b"Two.|"})}
TRAINS = Policy({"assistant": True, "user": False})
NOWHERE = "stands nowhere in it, on the side of the whole record"
BEFORE = "stands before the text in front of it, on the side of the whole record"
MISSING: list[tuple[list[Said], Mapping[str, Held], str]] = [
    ([ASKED, SAID], RIGHT, ""),
    ([SAID._replace(side="chosen")], RIGHT, "'a' says 'Two.', which is of 'chosen', which the record does not have"),
    ([ASKED, SAID], {"": Held(b"|Two.|")}, "'q' says 'Two?', which stands nowhere in it, on the side of the whole record"),
    (
        [SAID._replace(side="chosen", text=LONG)],
        {"chosen": Held(b"Two.")},
        f"'a' says {LONG[:60]!r}, which stands nowhere in it, on the side chosen",
    ),
    (
        [ASKED, SAID],
        {"": Held(b"Two.|Two?|")},
        "'a' says 'Two.', which stands before the text in front of it, on the side of the whole record",
    ),
    ([ASKED, SAID], {"": Held(b"Two?|Two.", {1.0: b"Two?|Two."})}, "'q' says 'Two?', which must be untrained, and is not"),
    ([ASKED, SAID], {"": Held(b"Two?|Two.", {0.0: b"Two?|Two."})}, "'a' says 'Two.', which must be trained, and is not"),
    ([SAID._replace(weight=0.25)], RIGHT, "'a' says 'Two.', which must be trained with weight 0.25, and is not"),
    ([Said("g", "gold", 0, "exact", '"2"')], {"gold": Held(b"2")}, ""),
    (
        [Said("g", "gold", 0, "exact", '"2"')],
        {"gold": Held(f'"{LONG}"'.encode())},
        f"'g' says '\"2\"', which is {LONG[:59]!r} in the store".replace(" is 'O", " is '\"O"),
    ),
    ([Said("n", "", 0, "anywhere", "née")], {"": Held(b"n\\u00e9e")}, ""),
    *(
        (
            [Said("n", "", 0, "text", "née", None, role)],
            {"": Held(b"n\\u00e9e")},
            "" if role == "tool" else f"'n' says 'née', which {NOWHERE}",
        )
        for role in ("tool", "user", "assistant")
    ),
    *(([Said("n", "", 0, "anywhere", text)], {"": Held(text.title().encode())}, "") for text in ("true", "false")),
    ([Said("n", "", 0, "anywhere", "add")], {"": Held(b"Add")}, "'n' says 'add', which stands nowhere in the record"),
    ([Said("n", "", 0, "anywhere", "née")], {"a": Held(b"ne"), "b": Held(b"e")}, "'n' says 'née', which stands nowhere in the record"),
    ([Said("t", "", 0, "tool", "add")], {"prompt": Held(b"ad"), "more": Held(b"d")}, "'t' says 'add', which stands nowhere in the record"),
    (
        [Said("t", "", 0, "tool", "b"), Said("t", "", 0, "tool", "a")],
        {"": Held(b"a b")},
        "'t' says 'a', which stands nowhere in the record",
    ),
    ([Said("t", "", 0, "tool", "add"), Said("c", "", 0, "call", "add")], {"": Held(b"add add")}, ""),
    (
        [Said("t", "", 0, "tool", "add"), Said("c", "", 0, "call", "add")],
        {"": Held(b"add")},
        "'t' says 'add', which stands in calls, and is not on offer",
    ),
    # tokens of documents, prompts and completions may lie over their ends
    *(
        ([Said("d", "", 0, "text", "0123456789abcdefgh", 0.5, role)], {"": Held(b"0123456789abcdefgh", {0.5: weighed})}, says)
        for role, weighed, says in (
            *((role, b"89", "") for role in ("document", "prompt", "completion")),
            ("document", b"8", "'d' says '0123456789abcdefgh', which must be trained with weight 0.5, and is not"),
            ("assistant", b"0123456789abcdefg", "'d' says '0123456789abcdefgh', which must be trained with weight 0.5, and is not"),
        )
    ),
    ([Said("d", "", 0, "text", "0123456789abcdef", 0.5, "document")], {"": Held(b"0123456789abcdef", {1.0: b"0123456789abcdef"})}, ""),
    # in their order within a turn, as often, and behind the turns before
    ([SAID, SAID._replace(text="One.")], {"": Held(b"One.Two.")}, f"'a' says 'One.', which {BEFORE}"),
    ([SAID, SAID], {"": Held(b"Two.")}, f"'a' says 'Two.', which {BEFORE}"),
    ([SAID, SAID], {"": Held(b"Two.Two.")}, ""),
    ([SAID, SAID], {"": Held(b"Two.Two.", {0.0: b"Two.", 1.0: b"Two."})}, "'a' says 'Two.', which must be trained, and is not"),
    (
        [SAID, SAID._replace(turn=2, text="One.")],
        {"": Held(b"Two.One.Two.", {0.0: b"Two.", 1.0: b"One.Two."})},
        "'a' says 'One.', which must be trained, and is not",
    ),
    ([SAID, SAID._replace(turn=2, text="One.")], {"": Held(b"Two.One.", {1.0: b"Two.One."})}, ""),
    # tools stand in their order, what may stand anywhere stands before them, too, and no label says it
    ([Said("t", "", 0, "tool", "b"), Said("n", "", 0, "anywhere", "a")], {"": Held(b"a b")}, ""),
    ([Said("n", "", 0, "anywhere", "b"), Said("t", "", 0, "tool", "a")], {"": Held(b"a b")}, ""),
    (
        [Said("n", "", 0, "anywhere", "true")],
        {"": Held(b"q"), "label": Held(b"true")},
        "'n' says 'true', which stands nowhere in the record",
    ),
    ([Said("n", "", 0, "anywhere", "true")], {"prompt": Held(b"q"), "label": Held(b"true")}, ""),
    (
        [Said("n", "", 0, "anywhere", "a b")],
        {"prompt": Held(b"a"), "label": Held(b"b")},
        "'n' says 'a b', which stands nowhere in the record",
    ),
    # a field is what the row says: as JSON, or as a number that people write
    *(
        (
            [Said("g", "gold", 0, "exact", row)],
            {"gold": Held(held.encode())},
            "" if same else f"'g' says {row!r}, which is {held!r} in the store",
        )
        for row, held, same in (
            *((row, held, True) for row, held in (("5", '"5"'), ("5", "5.0"), ('"$5"', '"5"'), ('"1,000."', '"1000"'), ('"a"', ' "a"'))),
            *((row, held, True) for row, held in (("1e22", '"10000000000000000000000"'), ("0.5", '".5"'), ('" \u22125"', '"-5"'))),
            *((row, held, False) for row, held in (("5", '"6"'), ("true", "1"), ("1", "true"), ("true", '"1"'), ('"a"', '"b"'))),
            *((row, held, False) for row, held in (("null", '"None"'), ('"1,0"', '"10"'), ("[5]", "5"), ('"5 kg"', '"5"'))),
        )
    ),
    ([Said("g", "gold", 0, "exact", "null")], {"gold": Held(b"")}, ""),
]
"""Texts of a row, what a record holds, and what is missing."""


@pytest.mark.parametrize(("said", "sides", "says"), MISSING)
def test_what_is_missing(said: list[Said], sides: Mapping[str, Held], says: str) -> None:
    found = missing(said, sides, [], policy=TRAINS)
    assert ("" if found is None else str(found)) == says


def test_a_text_of_which_nothing_is_left_when_it_is_spelled_is_not_missed() -> None:
    for said in (SAID, SAID._replace(kind="anywhere")):
        assert missing([said], {"": Held(b"x", {1.0: b""})}, [], lambda text: b"", TRAINS) is None


@pytest.mark.parametrize(
    ("row", "right", "wrong"),
    [
        ({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "weight": 0.25}]}, 0.25, 1.0),
        ({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "loss_scale": 0.3}, single(0.3), 1.0),
        ({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "weight": 3}], "weight": 0.5}, 1.5, 3.0),
        ({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}, 1.0, 2.0),
    ],
)
def test_the_size_of_a_weight_counts(row: Mapping[str, Any], right: float, wrong: float) -> None:
    _, said = read("messages", row, {})
    assert fault(said, {"": Held(b"qa", {0.0: b"q", right: b"a"})}) is None
    assert "must be trained" in str(fault(said, {"": Held(b"qa", {0.0: b"q", wrong: b"a"})}))


def test_options_that_take_weights_away() -> None:
    call = Said("", "", 0, CALL, "weather", 1.0, "assistant")
    assert Policy(calls=False).weight(call, by_role=True) == 0
    assert Policy(last_only=True).weight(call, by_role=True) is None
    assert Policy({"assistant": True}).weight(call._replace(weight=None), by_role=True) == 1


def test_ignored_fields_are_not_read() -> None:
    """Without their types the turns of an array are one document."""
    content = [{"type": "user", "content": [{"text": "q"}]}, {"type": "assistant", "content": [{"text": "a"}]}]
    for ignore, roles in ((frozenset[str](), ["user", "assistant"]), (frozenset({"semantic_data_array.type"}), ["document"] * 2)):
        said = Reading("semantic", {}, "Sample", ignore=ignore).texts({"semantic_data_array": content})
        assert [each.role for each in said] == roles


@pytest.mark.parametrize(
    ("region", "turn", "options", "weights"),
    [
        ({"text": "a"}, {}, {}, [None]),
        ({"text": "a"}, {"semantic_loss_weight": [0.5]}, {"semantic_loss_weight": {"text": 2}}, [0.5]),
        ({"text": "a"}, {}, {"semantic_loss_weight": {"text": 2}}, [2.0]),
        ({"text": "a"}, {"semantic_attention_mask": [0]}, {}, [0.0]),
        ({"text": "a"}, {}, {"semantic_attention_mask": {"text": False}}, [0.0]),
        ({"text": "a"}, {"semantic_attention_mask": [1]}, {"semantic_attention_mask": {"text": False}}, [None]),
        ({"image": "a.png", "include_tags": True}, {}, {}, [0.0, 0.0]),
        ({"text": "a"}, {"semantic_drop_mask": [1]}, {}, []),
        ({"text": "a"}, {"type": "user"}, {}, [None]),
    ],
)
def test_weights_of_regions(region: dict[str, Any], turn: dict[str, Any], options: dict[str, Any], weights: list[float | None]) -> None:
    """Images and what is not attended are not trained; of all else the role decides."""
    said = Reading("semantic", options, "Sample").texts({"semantic_data_array": [{**turn, "content": [region]}]})
    assert [each.weight for each in said] == weights


@pytest.mark.parametrize("meta", ["x", 5, None, {"other": "x"}, [{"other": "x"}], {"system": "s"}, [{"system": "s"}]])
def test_a_dotted_name_of_a_column(meta: Any) -> None:
    said = Reading("messages", {"system_key": "meta.system"}, "Sample").texts({**QUESTION, "meta": meta})
    of_meta = [each.text for each in said if each.path == "meta.system"]
    assert of_meta == (["s"] if "'s'" in repr(meta) else []) and [each.text for each in said[-2:]] == [" q ", "aa"]


CHATS = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}, {"role": "user", "content": "3+3?"}]
PLAIN = [
    ("gsm8k", "Sample", {"question": "2+2?", "answer": "2 and 2 <<2+2=4>>are 4.\n#### 4"}, ["user", "assistant", "assistant"]),
    ("gsm8k", "Sample", {"question": "2+2?", "answer": "#### 4"}, ["user", "assistant"]),
    (
        "sharegpt",
        "Sample",
        {"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}], "id": "7"},
        ["user", "assistant"],
    ),
    ("llava", "Sample", {"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]}, ["user", "assistant"]),
    (
        "lines of pairs",
        "Pair",
        {"prompt": CHATS, "chosen": [{"role": "assistant", "content": "6"}], "rejected": [{"role": "assistant", "content": "7"}]},
        ["user", EARLIER, "user", "chosen", "rejected"],
    ),
    (
        "lines of pairs",
        "Pair",
        {
            "prompt": [{"role": "system", "content": "Add."}, *CHATS[:2], {"role": "tool", "content": "4"}],
            "chosen": [{"role": "assistant", "content": "6"}],
            "rejected": [{"role": "assistant", "content": "7"}],
        },
        ["system", "user", EARLIER, "tool", "chosen", "rejected"],
    ),
]
"""Schema, type, row, roles of its texts."""


@pytest.mark.parametrize(("name", "gives", "row", "roles"), PLAIN)
def test_plain_rows_say_what_they_say_read_one_by_one(name: str, gives: str, row: Mapping[str, Any], roles: list[str]) -> None:
    reading = Reading(name, {}, gives, TAGS)
    plain = reading.plain(row)
    assert plain is not None
    assert [role for _, role in plain] == roles
    said = reading.texts(row)
    assert [text.strip() for text, _ in plain] == [each.text.strip() for each in said]
    for (_, role), each in zip(plain, said, strict=True):
        assert (each.side == role) == (role in ("chosen", "rejected"))
        assert (each.weight == 0) == (role == EARLIER)


HUMAN = [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]
VALUES: list[Any] = [CHATS, CHATS[:1], HUMAN, [], None, 7, "a", [None], [{"role": "user", "content": 1}], [*CHATS, {"role": "user"}]]
VALUES += [[{"role": role, "content": "a"}] for role in ("function_call", "who", "tool")]
VALUES += [[{"role": "user", "content": " "}], [{**CHATS[0], "name": "b"}], [CHATS[0], HUMAN[1]]]


@pytest.mark.parametrize("name", ["messages", "sharegpt"])
@given(st.lists(st.tuples(st.sampled_from(VALUES), st.sampled_from([{}, {"id": "7"}, {"other": "b"}])), max_size=5))
def test_plain_rows_of_a_block_are_those_read_alone(name: str, given: list[tuple[Any, dict[str, str]]]) -> None:
    reading = Reading(name, {}, "Sample", TAGS)
    column = "messages" if name == "messages" else "conversations"
    rows = ReadRows([{column: value, **others} for value, others in given])
    assert reading.plain_rows(rows) == [reading.plain(row) for row in rows]
    assert rows.turns("id", "a", "b") == [plain_turns(row.get("id")) for row in rows]


def test_messages_of_a_block_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, reading = ReadRows([{"messages": CHATS}] * 3), Reading("messages", {}, "Sample", TAGS)
    turns = rows.turns("messages", "role", "content")
    monkeypatch.setattr(plain_reading, "turns_of_rows", lambda *_: pytest.fail("read again"))
    assert reading.plain_rows(rows) == [reading.plain(row) for row in rows] and rows.turns("messages", "role", "content") is turns


def test_options_for_a_template_make_no_plain_row() -> None:
    row = {"messages": CHATS, "id": "7"}
    assert Reading("messages", {}, "Sample", TAGS).plain(row) is not None
    assert Reading("messages", {}, "Sample", TAGS).plain({**row, "chat_template_kwargs": {"mode": "m"}}) is None


def test_texts_with_marks_of_turns_make_no_plain_row() -> None:
    assert Reading("hh", {}, "Pair", TAGS).plain({"chosen": TURNS, "rejected": TURNS}) is None


def test_the_whole_line_of_a_plain_pair() -> None:
    reading, row = Reading("preference", {}, "Pair", TAGS), {"prompt": " p", "chosen": "c", "rejected": "r\n"}
    roles = {"prompt": "user", "chosen": "assistant", "rejected": "assistant"}
    assert reading.line(row, "text") == row
    assert reading.line(row, "messages") == {side: [{"role": roles[side], "content": text}] for side, text in row.items()}
    chats = Reading("lines of pairs", {}, "Pair", TAGS)
    for *_, whole, _ in PLAIN[4:]:
        assert chats.line(whole, "messages") == whole and chats.line(whole, "text") is None
    assert reading.line({**row, "tools": [{}]}, "text") is None and Reading("preference", {}, "Group").line(row, "text") is None


def test_of_a_row_of_a_users_schema_nothing_is_known() -> None:
    """Not even where none of its columns has a text."""
    reading, row = Reading("of a user", {}, "Pair"), {"id": 7, "seed": None}
    assert reading.plain(row) is None and reading.plain_rows(ReadRows([row])) == [None]
    assert reading.sides(row) is None and reading.line(row, "messages") is None


def test_answers_that_hold_other_roles_are_read_one_by_one() -> None:
    row = {"prompt": CHATS[:1], "chosen": CHATS, "rejected": CHATS[1:2]}
    assert Reading("lines of pairs", {}, "Pair", TAGS).plain(row) is None


def test_arguments_that_a_template_sorts() -> None:
    """As Gemma 4's does, by Jinja's ``dictsort``."""
    call = {"function": {"name": "add", "arguments": {"B": 1, "_a": [{"d": 2, "C": 3}]}}}
    row = {"messages": [{"role": "user", "content": "Add."}, {"role": "assistant", "tool_calls": [call]}]}
    as_text = {"name": "add", "arguments": json.dumps(call["function"]["arguments"])}
    typed = [f"<tool_call>{json.dumps(each)}</tool_call>" for each in (call["function"], as_text)]
    written = [{"messages": [row["messages"][0], {"role": "assistant", "content": text}]} for text in typed]
    for sorts, leaves in ((False, ["add", "B", "1", "_a", "d", "2", "C", "3"]), (True, ["add", "_a", "C", "3", "d", "2", "B", "1"])):
        said = Reading("messages", {}, "Sample", sorts=sorts).texts(row)
        assert [each.text for each in said if each.kind == CALL] == leaves
        for each in written:
            found = Reading("messages", {}, "Sample", sorts=sorts, calls=True).texts(each)
            assert [said.text for said in found if said.kind == CALL] == leaves
    in_order = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}"
    names = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | dictsort }}{% endfor %}{% endfor %}"
    strict = "{% for m in messages if m.role not in ['user', 'assistant', 'tool'] %}{{ raise_exception('no') }}{% endfor %}"
    for source, sorts in (
        (in_order, False),
        (f"{strict}{in_order.replace('c.function', 'c.function.arguments | dictsort')}", True),
        (names.replace("arguments | dictsort", "arguments | dictsort | map('first') | join"), True),
        ("", False),
        ("{{ raise_exception('no') }}", False),
    ):
        assert sorts_arguments(template(source)) is sorts


# -- Fields of messages -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "options", "row", "rewards"),
    [
        ("stepwise", {}, {"labels": [True, False, 0.5]}, [1.0, 0.0, 0.5]),
        ("stepwise", {"labels_key": "l"}, {"l": [1], "labels": [0]}, [1.0]),
        ("math_shepherd", {}, {"input": "Q? a ки\nb ки\nc ки", "label": "Q? a +\nb -\nc +"}, [1.0, 0.0, 1.0]),
        ("math_shepherd", {"input_key": "i", "label_key": "l", "tag": "<s>"}, {"i": "a <s>b <s>", "l": "a -b +"}, [0.0, 1.0]),
        ("math_shepherd", {}, {"input": "no step", "label": "no step"}, []),
        ("messages", {}, {"labels": [True]}, None),
    ],
)
def test_rewards_of_steps(schema: str, options: dict[str, Any], row: Mapping[str, Any], rewards: list[float] | None) -> None:
    assert step_rewards(schema, options, row) == rewards


ASKS = Sample((Turn("user", (Region("text", "q"),)),), documents=({"title": "t", "text": "a"},), template_options={"mode": "m"})


@pytest.mark.parametrize(
    ("row", "example", "says"),
    [
        ({"documents": [{"title": "t", "text": "a", "note": None}], "chat_template_kwargs": {"mode": "m", "more": ""}}, ASKS, ""),
        ({"documents": {"title": ["t"], "text": ["a"]}, "chat_template_kwargs": '{"mode": "m", "more": []}'}, ASKS, ""),
        (
            {"documents": [{"title": "t"}], "chat_template_kwargs": {"mode": "m"}},
            ASKS,
            "its documents are [{'title': 't'}], and its schema gives [{'title': 't', 'text': 'a'}]",
        ),
        (
            {"documents": [{"title": "t", "text": "a"}], "chat_template_kwargs": " "},
            ASKS,
            "its template options are {}, and its schema gives {'mode': 'm'}",
        ),
        (
            {"chat_template_kwargs": {"mode": "x" * 300}},
            ASKS,
            f"its template options are {{'mode': '{'x' * 190}, and its schema gives {{'mode': 'm'}}",
        ),
        ({}, Sample(ASKS.turns), ""),
        ({"documents": [{"title": "t"}]}, Contrast("q", ("p",), ()), ""),
    ],
)
def test_what_a_template_is_given_beside_turns(row: Mapping[str, Any], example: object, says: str) -> None:
    assert offered_fault(row, example) == says


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *((text, True) for text in ('{"name": "f"}', ' [{"function": {"name": "f"}}]\n', '[{"name": "f"}, {"name": "g"}]')),
        *((text, False) for text in ("", "f()", "[]", "5", '"name"', '{"a": 1}', '[{"name": "f"}, {}]', '[{"name": "f"}, "name"]')),
    ],
)
def test_a_text_that_is_calls(text: str, found: bool) -> None:
    assert is_call(text) is found


@pytest.mark.parametrize(
    ("tool", "found"),
    [
        *((tool, True) for tool in ({"type": "function", "function": {"name": "f"}}, {"type": "web_search"})),
        *((tool, False) for tool in ({"name": "f"}, {"function": {"function": {"name": "f"}}}, {"name": "f", "function": "g"})),
    ],
)
def test_a_tool_that_is_wrapped_once(tool: dict[str, Any], found: bool) -> None:
    assert is_wrapped(tool) is found


def result(call: str | None, text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text, **({} if call is None else {"tool_call_id": call})}


def asks(*ids: str | None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"name": "f", **({} if each is None else {"id": each})} for each in ids], **more}


@pytest.mark.parametrize(
    ("messages", "order"),
    [
        ([asks("a", "b"), result("b", "2"), result("a", "1")], ["1", "2"]),
        (
            [asks("a"), asks("b"), result("b", "2"), result("a", "1"), asks("c", "d"), result("d", "4"), result("c", "3")],
            ["1", "2", "3", "4"],
        ),
        ([asks("a", None), result("b", "2"), result("a", "1")], ["2", "1"]),
        ([asks("a", "b"), result("b", "2"), result(None, "1")], ["2", "1"]),
        ([asks(None, None), result(None, "2"), result(None, "1")], ["2", "1"]),
        ([asks("a", "b"), result("d", "2"), result("c", "1")], ["2", "1"]),
        ([asks("a", "b"), result("b", "2"), result("c", "0"), result("a", "1")], ["0", "1", "2"]),
        ([asks("a", "b"), {"role": "user", "content": "u"}, result("b", "2"), result("a", "1")], ["2", "1"]),
        ([{"role": "assistant", "tool_calls": '[{"id": "a"}, {"id": "b"}]'}, result("b", "2"), result("a", "1")], ["1", "2"]),
        ([{"role": "assistant", "function_call": {"id": "a"}}, asks("b"), result("b", "2"), result("a", "1")], ["1", "2"]),
        (
            [
                {
                    "role": "assistant",
                    "content": [
                        {"type": each, "id": at} for at, each in zip("axbc", ("tool_use", "text", "tool_call", "tool_use"), strict=True)
                    ],
                },
                result("c", "3"),
                result("b", "2"),
                result("a", "1"),
            ],
            ["1", "2", "3"],
        ),
        ([result("b", "2"), result("a", "1")], ["2", "1"]),
    ],
)
def test_results_in_the_order_of_their_calls(messages: list[dict[str, Any]], order: list[str]) -> None:
    found = [*in_call_order(messages, lambda message: message["role"])]
    assert [each["content"] for each in found if each["role"] == "tool"] == order
    assert [each["role"] for each in found] == [each["role"] for each in messages]


# -- What a row says: path, side, turn, kind, text, weight and role of each text -----------------------------------------------------------

ROW: dict[str, Any] = {
    "messages": [
        {
            "role": "system",
            "content": "Be brief.",
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "add", "description": "Adds.\nTwo.", "parameters": {"properties": {"a": {}, "b": {}}}},
                }
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What?"},
                {"type": "image_url", "image_url": {"url": "1.png"}},
                {"type": "input_text", "value": "And this?"},
            ],
        },
        {
            "role": "assistant",
            "reasoning_content": "Hm.",
            "content": "I add. <think>Or not.</think> Yes.",
            "weight": 0.5,
            "tool_calls": [{"function": {"name": "add", "arguments": '{"a": 1, "b": [true, null, "x"]}'}}],
        },
        {"role": "tool", "name": "add", "content": "3"},
        {
            "role": "assistant",
            "content": [
                {"type": "reasoning", "value": "So."},
                {"type": "text", "text": "Three.", "loss_weight": 0},
                {"type": "tool_use", "name": "sub", "input": {"c": 2.5}},
            ],
        },
        {"role": "user", "content": "Sure?", "note": {"mood": "calm", "more": ["a"]}},
        {
            "role": "assistant",
            "content": None,
            "refusal": "No.",
            "reasoning_details": [{"type": "reasoning.text", "text": "Ah."}, {"type": "reasoning.summary", "summary": "Oh."}],
        },
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "abcdef", "weight": 0.5, "train_detail": [{"begin_offset": 2, "end_offset": 3, "train": True}]},
    ],
    "image": "1.png",
    "topic": "sums",
    "id": 5,
}
SPOKEN: list[tuple[Any, ...]] = [
    ("messages.content", "", 0, "anywhere", "Be brief.", None, ""),
    ("messages.tools.name", "", 0, "tool", "add", None, ""),
    *(("messages.tools.description", "", 0, "anywhere", line, None, "") for line in ("Adds.", "Two.")),
    *(("messages.tools.parameters", "", 0, "anywhere", name, None, "") for name in "ab"),
    *(("messages.content", "", 1, "text", text, None, "user") for text in ("What?", "And this?")),
    ("messages.reasoning_content", "", 2, "reasoning", "Hm.", 0.5, "assistant"),
    *(
        ("messages.content", "", 2, kind, text, 0.5, "assistant")
        for kind, text in (("text", "I add. "), ("reasoning", "Or not."), ("text", " Yes."))
    ),
    *(("messages.tool_calls", "", 2, "call", leaf, 0.5, "assistant") for leaf in ("add", "a", "1", "b", "true", "x")),
    ("messages.content", "", 3, "text", "3", None, "tool"),
    ("messages.content", "", 4, "reasoning", "So.", None, "assistant"),
    ("messages.content", "", 4, "text", "Three.", 0.0, "assistant"),
    *(("messages.content", "", 4, "call", leaf, None, "assistant") for leaf in ("sub", "c", "2.5")),
    ("messages.content", "", 5, "text", "Sure?", None, "user"),
    ("messages.note.mood", "", 5, "anywhere", "calm", None, ""),
    ("messages.note.more", "", 5, "anywhere", "a", None, ""),
    *(("messages.reasoning_details", "", 6, "reasoning", text, None, "assistant") for text in ("Ah.", "Oh.")),
    ("messages.refusal", "", 6, "text", "No.", None, "assistant"),
    ("messages.content", "", 7, "text", "Why?", None, "user"),
    *(("messages.content", "", 8, "text", text, weight, "assistant") for text, weight in (("ab", 0.0), ("cd", 0.5), ("ef", 0.0))),
    ("topic", "", 9, "anywhere", "sums", None, ""),
]
PAIR: dict[str, Any] = {
    "prompt": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2?"},
        {"role": "assistant", "content": "Two."},
        {"role": "user", "content": "3?"},
    ],
    "chosen": [{"role": "assistant", "content": "Three.", "weight": 0.5}],
    "rejected": "Four.",
    "margin": 0.5,
    "weight": 0.25,
    "mood": "calm",
}
GROUP: dict[str, Any] = {"prompt": "2?", "responses": ["Two.", [{"role": "assistant", "content": "Three."}]], "rewards": [1, 0]}
THOUGHTS = "<think>a</think>b<think>c</think>d"
ASKED_TWICE = {"instruction": "Sort.", "input": "3 1", "output": "1 3", "system": "s", "history": [["a", "b"]]}


@pytest.mark.parametrize(
    ("name", "gives", "row", "says"),
    [
        ("messages", "Sample", ROW, SPOKEN),
        (
            "preference",
            "Pair",
            PAIR,
            [
                ("prompt.content", "", 0, "anywhere", "Be brief.", None, ""),
                ("prompt.content", "prompt", 1, "text", "2?", None, "user"),
                ("prompt.content", "prompt", 2, "text", "Two.", 0.0, "assistant"),
                ("prompt.content", "prompt", 3, "text", "3?", None, "user"),
                ("chosen.content", "chosen", 4, "text", "Three.", 0.125, "assistant"),
                ("rejected", "rejected", 5, "text", "Four.", 0.25, "assistant"),
                ("margin", "margin", 6, "exact", "0.5", None, ""),
                ("mood", "", 6, "anywhere", "calm", None, ""),
            ],
        ),
        (
            "preference",
            "Pair",
            {"chosen": [{"role": "system", "content": "s"}, {"role": "assistant", "content": "a"}]},
            [
                ("chosen.content", "", 0, "anywhere", "s", None, ""),
                ("chosen.content", "chosen", 1, "text", "a", None, "assistant"),
            ],
        ),
        *(
            (
                "group_list",
                gives,
                GROUP,
                [
                    ("prompt", "prompt", 0, "text", "2?", None, "user"),
                    ("responses", "responses[0]", 1, "text", "Two.", None, "assistant"),
                    ("responses.content", "responses[1]", 3, "text", "Three.", None, "assistant"),
                    *rewards,
                ],
            )
            for gives, rewards in (("Group", []), ("Pair", [("responses", "rewards", 5, "exact", "[1.0, 0.0]", None, "")]))
        ),
        *(
            (
                name,
                "Sample",
                row,
                [
                    (asked, "", 0, "text", "q", None, question),
                    *(
                        (said, "", 1, kind, text, None, role)
                        for kind, text in (("reasoning", "a"), ("text", "b"), ("reasoning", "c"), ("text", "d"))
                    ),
                ],
            )
            for name, row, asked, question, said, role in (
                ("prompt_completion", {"prompt": "q", "completion": THOUGHTS}, "prompt", "prompt", "completion", "completion"),
                ("alpaca", {"instruction": "q", "output": THOUGHTS}, "instruction", "user", "output", "assistant"),
            )
        ),
        (
            "alpaca",
            "Sample",
            ASKED_TWICE,
            [
                ("system", "", 0, "anywhere", "s", None, ""),
                *(
                    ("history", "", 1 + (role == "assistant"), "text", text, None, role)
                    for text, role in (("a", "user"), ("b", "assistant"))
                ),
                *((name, "", 3 + at, "text", ASKED_TWICE[name], None, "user") for at, name in enumerate(("instruction", "input"))),
                ("output", "", 5, "text", "1 3", None, "assistant"),
            ],
        ),
    ],
)
def test_what_a_row_says(name: str, gives: str, row: dict[str, Any], says: list[tuple[Any, ...]]) -> None:
    assert [tuple(said) for said in Reading(name, {}, gives, TAGS).texts(row)] == says


ROLE_OF = {"q": "user", "a": "assistant", "r": "user"}
TURNS = "\n\nHuman: q\n\nAssistant: a\n\nHuman: r"


@pytest.mark.parametrize(
    ("name", "options", "row", "says"),
    [
        (
            "messages",
            {},
            {"messages": [{"role": "critic", "content": "q"}, {"content": "r"}]},
            [("messages.content", "", at, "text", text, "user") for at, text in enumerate("qr")],
        ),
        *(
            (
                "sharegpt",
                options,
                {"conversations": [{"from": "human", "value": "q"}, {"from": tag, "value": '{"name": "f"}'}], "ID": "7"},
                [("conversations.value", "", 0, "text", "q", "user"), ("conversations.value", "", 1, "call", "f", "assistant")],
            )
            for tag, options in (("function_call", {}), ("act", {"function_tag": "act"}))
        ),
        (
            "messages",
            {},
            {"messages": [{"role": "user", "content": THOUGHTS}]},
            [("messages.content", "", 0, "text", THOUGHTS, "user")],
        ),
        (
            "messages",
            {"messages_key": "a.b.c"},
            {"a": {"b": {"c": [{"role": "user", "content": "q"}]}}},
            [("a.b.c.content", "", 0, "text", "q", "user")],
        ),
        (
            "hh",
            {"prompt_check": "chosen"},
            {"chosen": f"{TURNS}\n\nAssistant: b", "rejected": f"{TURNS}\n\nAssistant: c"},
            [
                *(("chosen", "chosen", at, "text", f" {text}", "assistant") for at, text in enumerate("qarb")),
                ("rejected", "rejected", 4, "text", " c", "assistant"),
            ],
        ),
        *(
            (
                "group_list",
                {"marked_prompt": marked},
                {"prompt": TURNS, "responses": ["x"], "rewards": [1]},
                [*asked, ("responses", "responses[0]", len(asked), "text", "x", "assistant")],
            )
            for marked, asked in (
                (False, [("prompt", "prompt", 0, "text", TURNS, "user")]),
                (True, [("prompt", "prompt", at, "text", f" {text}", ROLE_OF[text]) for at, text in enumerate("qar")]),
            )
        ),
    ],
)
def test_what_a_row_says_with_options(name: str, options: dict[str, Any], row: dict[str, Any], says: list[tuple[Any, ...]]) -> None:
    said = Reading(name, options, "Pair" if name == "hh" else "Group" if name == "group_list" else "Sample", TAGS).texts(row)
    assert [(each.path, each.side, each.turn, each.kind, each.text, each.role) for each in said] == says


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"messages": [{"role": "user", "content": 5}]}, "TypeError: 'int' object is not iterable"),
        ({"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]}, "KeyError: 'name'"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "AttributeError: 'str' object has no attribute 'get'"),
    ],
)
def test_a_row_that_is_not_as_its_definition_says(row: dict[str, Any], why: str) -> None:
    with pytest.raises(Unlike) as raised:
        Reading("messages", {}, "Sample").texts(row)
    assert str(raised.value) == f"it cannot be read by the columns of messages: {why}"


QUESTION = {"messages": [{"role": "user", "content": " q "}, {"role": "assistant", "content": "aa"}]}


def example(*answer: Region, asked: str = "q", **more: Any) -> Sample:
    return Sample((Turn("user", (Region("text", asked),)), Turn("assistant", answer)), **more)


AA = Region("text", "aa")
SILENT = Sample((Turn("system", (Region("text", " "),)), *example(AA).turns))
PATH = {**QUESTION, "images": ["1.png"]}


@pytest.mark.parametrize(
    ("row", "made", "says"),
    [
        (QUESTION, example(AA), ""),
        (QUESTION, example(Region("text", "a"), Region("text", "a")), "its example says 'a a' as well"),
        (QUESTION, example(Region("text", "aaa")), "its example says 'a' as well"),
        (QUESTION, example(AA, AA), "its example says 'aa' as well"),
        (QUESTION, example(AA, Region("text", f"{'b' * 40} {'c' * 40}")), f"its example says {'b' * 40 + ' ' + 'c' * 19!r} as well"),
        (QUESTION, example(AA, Region("text", "x", drop=True), Region("tool_call", "{}"), Region("thinking", "t")), ""),
        (QUESTION, example(AA, asked=" \n q"), ""),
        (QUESTION, example(AA, asked="q <think>"), ""),  # which a build may write around reasoning
        (QUESTION, example(AA, asked="<image>q"), "its example says '<image>' as well"),
        *((PATH, example(AA, asked=f"{mark}q"), "") for mark in ("<image>", "<audio>", "<video>")),
        (QUESTION, example(Region("text", "b"), tokenized=Tokenized((1,), (1.0,), "b")), ""),
        ({"messages": [{"role": "user", "content": 5}]}, example(AA), ""),  # which is said where the row is compared
        (QUESTION, Prompt(example(AA, AA).turns, "5"), ""),  # of another kind than is read
        (QUESTION, SILENT, "its example has a system turn that says nothing, and it has none"),
        *(({**QUESTION, "system": system}, SILENT, "") for system in (" ", None)),
        *(({"messages": [{role: "system"}, *QUESTION["messages"]]}, SILENT, "") for role in ("role", "from")),
        ({**QUESTION, "note": "system"}, SILENT, "its example has a system turn that says nothing, and it has none"),
    ],
)
def test_what_an_example_says_beyond_its_row(row: dict[str, Any], made: Any, says: str) -> None:
    assert Reading("messages", {}, "Sample", TAGS).surplus(row, made) == says


@pytest.mark.parametrize(("options", "mark"), [({}, "<image>"), ({"image_token": "<img>"}, "<img>")])
@pytest.mark.parametrize("name", ["alpaca", "messages"])
def test_marks_of_files_are_no_surplus(name: str, options: dict[str, Any], mark: str) -> None:
    row = {"instruction": "q", "output": "aa", **PATH}
    says = [Reading(name, options, "Sample").surplus(row, example(AA, asked=f"{each}q")) for each in ("<image>", "<img>")]
    assert [not each for each in says] == [mark == "<image>", mark == "<img>"]


@pytest.mark.parametrize(("name", "more"), [("gsm8k", ("<think>", "</think>", "<answer>", "</answer>")), ("hh", ("Human:", "Assistant:"))])
def test_what_a_schema_writes_is_no_surplus(name: str, more: tuple[str, ...]) -> None:
    row, answers = {"question": "q", "answer": "aa"}, [Region("text", f"{each}aa") for each in more]
    reading = Reading(name, {}, "Sample")
    assert [reading.surplus(row, example(each)) for each in answers] == [""] * len(more)
    assert reading.surplus(row, example(Region("text", f"<b>{more[0]}aa"))) == "its example says '<b>' as well"


@pytest.mark.parametrize(("name", "known"), [("distilled", False), ("semantic", True), ("messages", True)])
def test_what_a_definition_of_outermost_objects_does_not_list_is_no_surplus(name: str, known: bool) -> None:
    """Unless it says what its schema writes."""
    assert (Reading(name, {}, "Sample").surplus({}, example(AA)) != "") is known


def test_blocks_of_calls_that_a_render_takes_out_are_no_surplus() -> None:
    for text in ("<tool_call>x</tool_call>", "<tool_response>x</tool_response>"):
        made = example(AA, Region("text", text))
        assert Reading("messages", {}, "Sample", TAGS, calls=True).surplus(QUESTION, made) == ""
        assert Reading("messages", {}, "Sample", TAGS).surplus(QUESTION, made) == f"its example says {text!r} as well"


@pytest.mark.parametrize(
    ("name", "options", "row", "column"),
    [
        ("messages", {}, {"messages": [], "images": ["1.png"]}, "images"),
        ("messages", {}, {"messages": [], "images": [None], "video": "x.mp4"}, "video"),
        ("messages", {}, {"messages": [], "images": [], "audios": None}, ""),
        ("messages", {"images_key": "pictures"}, {"messages": [], "pictures": "1.png"}, "pictures"),
        ("instruction", {"prompt_key": "image"}, {"image": "A text.", "response": "a"}, ""),
        ("of a user", {}, {"images": ["1.png"]}, ""),
    ],
)
def test_columns_with_files(name: str, options: dict[str, Any], row: dict[str, Any], column: str) -> None:
    assert Reading(name, options, "Sample").files_in(row) == column
    hidden = Reading(name, options, "Sample", ignore=frozenset({column}))
    assert hidden.files_in(row) == "" and Reading(name, options, "Sample", chosen_by=frozenset({column})).files_in(row) == ""


# -- What becomes of a column --------------------------------------------------------------------------------------------------------------

DOCUMENT = {"title": "t", "text": "x", "contents": "c", "note": "n", "id": 5}
DESCRIBED = {"name": "f", "description": "One.\nTwo.", "parameters": {"properties": {"a": {}, "b": {"description": "not said"}}}}
OFFERED: list[tuple[Any, ...]] = [
    ("tools.name", "", 0, "tool", "f", None, ""),
    *(("tools.description", "", 0, "anywhere", text, None, "") for text in ("One.", "Two.")),
    *(("tools.parameters", "", 0, "anywhere", text, None, "") for text in "ab"),
]


def spoken(path: str, *texts: tuple[str, str]) -> list[tuple[Any, ...]]:
    """Texts of turns of their own."""
    return [(path, "", at, "text", text, None, role) for at, (role, text) in enumerate(texts)]


@pytest.mark.parametrize(
    ("name", "options", "row", "says"),
    [
        *(
            ("messages", {}, {"documents": listed}, [(f"documents.{key}", "", 0, "anywhere", DOCUMENT[key], None, "") for key in keys])
            for listed, keys in (([DOCUMENT], ("title", "text", "contents")), ([{"text": "x"}, "y", {"title": 5}], ("text",)))
        ),
        *(
            ("messages", {}, {"tools": offer}, OFFERED)
            for offer in (
                *([DESCRIBED], DESCRIBED, json.dumps([DESCRIBED]), [{"type": "function", "function": DESCRIBED}]),
                [{"name": "f", "description": "One.\nTwo.", "input_schema": DESCRIBED["parameters"]}],
            )
        ),
        *(("messages", {}, {"tools": offer}, []) for offer in (" ", [], "null", [{"type": "web_search"}])),
        *(("messages", {}, {"tools": [{**DESCRIBED, "parameters": more}]}, OFFERED[:3]) for more in (None, [], "x", {"properties": None})),
        (
            "messages",
            {"tools_key": "offer"},
            {"offer": [{"name": "f"}], "note": {"tools": [{"name": "g"}], "more": [["x"]]}},
            [("offer.name", "", 0, "tool", "f", None, ""), ("note.more", "", 0, "anywhere", "x", None, "")],
        ),
        ("messages", {}, {"Tools": [{"name": "f"}], "images": ["1.png"], "margin": 5, "seed": 7}, [("Tools.name", *OFFERED[0][1:])]),
        ("text", {}, {"text": ["a", 5, "b"]}, [("text", "", 0, "text", each, None, "document") for each in "ab"]),
        (
            "text",
            {},
            {"text": [["a"], "b"]},
            [("text", "", 0, "text", "a", None, "document"), ("text", "", 1, "text", "b", None, "document")],
        ),
        ("text", {}, {"text": {"x": "a", "y": "b"}}, [("text", "", 0, "text", each, None, "document") for each in "ab"]),
        *(
            ("text", {}, {"text": value}, said)
            for value, said in ((5, spoken("text", ("document", "5"))), (True, []), (" ", []), (None, []))
        ),
        ("text", {}, {"text": b"a\xff"}, spoken("text", ("document", "a\N{REPLACEMENT CHARACTER}"))),
        (
            "belle",
            {},
            {"instruction": "Human:q\nAssistant:a\nHuman:r\nAssistant:", "output": "b"},
            [
                *spoken("instruction", ("user", "q\n"), ("assistant", "a\n"), ("user", "r\n")),
                ("output", "", 4, "text", "b", None, "assistant"),
            ],
        ),
        (
            "belle",
            {"human_mark": "H>", "assistant_mark": "A>"},
            {"instruction": "H>qA>aHuman:bH>r"},
            spoken("instruction", ("user", "q"), ("assistant", "aHuman:b"), ("user", "r")),
        ),
        *(
            (
                "SharegptPretrainHandler",
                {},
                {"conversations": [{"from": tag, "value": "q"}]},
                spoken("conversations.value", ("document", "q")),
            )
            for tag in ("human", "gpt")
        ),
        (
            "alpaca",
            {},
            {"history": [["q", "a"], ["r", "b"]]},
            spoken("history", ("user", "q"), ("assistant", "a"), ("user", "r"), ("assistant", "b")),
        ),
        ("gsm8k", {}, {"answer": "x<<1+1=2>>y #### 2"}, [("answer", "", 0, "text", each, None, "assistant") for each in ("xy ", " 2")]),
        ("kto", {}, {"label": True}, [("label", "label", 0, "exact", "true", None, "")]),
        (
            "AlpacaPretrainHandler",
            {},
            {"instruction": "q", "input": "", "output": "a"},
            [("instruction", "", 0, "text", "q", None, "document"), ("output", "", 2, "text", "a", None, "document")],
        ),
    ],
)
def test_what_becomes_of_a_column(name: str, options: dict[str, Any], row: dict[str, Any], says: list[tuple[Any, ...]]) -> None:
    assert [tuple(each) for each in Reading(name, options, "Sample").texts(row)] == says


ASKS_FOR = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
LEAVES = [("call", text) for text in ("f", "a", "1")]
MESSAGES: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    # reasoning: under the first name that says something, else details
    *(({"content": "x", name: "r"}, [("reasoning", "r"), ("text", "x")]) for name in REASONINGS),
    *(({"content": "x", name: said}, [("text", "x")]) for name in REASONINGS[:2] for said in ("", " ", None, 5)),
    ({"content": "x", "reasoning_content": " ", "thinking": "r", "thought": "s"}, [("reasoning", "r"), ("text", "x")]),
    ({"content": "x", "reasoning": "r", "reasoning_details": [{"text": "s"}]}, [("reasoning", "r"), ("text", "x")]),
    (
        {"content": "x", "reasoning_details": [{"text": "r", "summary": "s"}, {"data": "t"}]},
        [("reasoning", "r"), ("reasoning", "s"), ("text", "x")],
    ),
    # content
    *(({key: "x"}, [("text", "x")]) for key in ("content", "value")),
    ({"content": None, "value": "x"}, [("text", "x")]),
    *(({"content": said}, []) for said in (None, "", " ", [])),
    ({"content": b"x"}, [("text", "x")]),
    *(({"content": said, "refusal": "no"}, [("text", "no")]) for said in (None, "", [])),
    ({"content": "x", "refusal": "no"}, [("text", "x")]),
    ({"content": None, "refusal": None}, []),
    # calls
    *(
        ({"content": "x", name: asked}, [("text", "x"), *LEAVES])
        for name in CALLS
        for asked in ([ASKS_FOR], ASKS_FOR, json.dumps(ASKS_FOR))
    ),
    ({"tool_calls": [{"name": "f", "arguments": {"a": 1}}, ASKS_FOR]}, [*LEAVES, *LEAVES]),
    *(({"function_call": {"name": "f", key: '{"a": 1}'}}, LEAVES) for key in ("arguments", "parameters", "input")),
    *(({"function_call": {"name": "f", "arguments": none, "input": {"a": 1}}}, LEAVES) for none in (None, "", {})),
    ({"function_call": {"name": "f", "arguments": {"a": ["", {"b": None}, True]}}}, [("call", each) for each in ("f", "a", "b", "true")]),
    *(({"content": None, name: none}, []) for name in CALLS for none in (None, [], "")),
    # parts
    *(
        ({"content": [{"type": kind, key: "x"}]}, [("text", "x")])
        for kind in ("text", "input_text", None)
        for key in ("text", "value", "content")
    ),
    *(
        ({"content": [{"type": kind, key: "r"}]}, [("reasoning", "r")])
        for kind in ("reasoning", "thinking")
        for key in (kind, "text", "value")
    ),
    *(({"content": [{"type": kind, key: ASKS_FOR}]}, LEAVES) for kind in ("tool_call", "tool_use") for key in ("value", "tool_call")),
    *(({"content": [{"type": kind, "name": "f", "input": {"a": 1}}]}, LEAVES) for kind in ("tool_call", "tool_use")),
    *(({"content": [{"type": f"{kind}{end}", "value": "1.png"}]}, []) for kind in ("image", "audio", "video") for end in ("", "_url")),
    ({"content": [{"type": "text"}, {"type": "text", "text": None, "value": "x"}]}, [("text", "x")]),
    # what is no field of a message may stand anywhere
    ({"content": "x", "mood": "m"}, [("text", "x"), ("anywhere", "m")]),
    *(
        ({"content": "x", name: "f", "mood": ""}, [("text", "x")])
        for name in ("name", "tool_call_id", "status", "id", "weight", "signature")
    ),
    *(({"content": "x", name: [{"name": "g"}]}, [("text", "x"), ("tool", "g")]) for name in ("tools", "functions")),
    (
        {"content": "x", "role_of": "m", "about": {"a": ["n", {"b": "o", "id": "p"}]}},
        [("text", "x"), *(("anywhere", each) for each in "mno")],
    ),
]


@pytest.mark.parametrize(("message", "says"), MESSAGES)
def test_what_a_message_says(message: dict[str, Any], says: list[tuple[str, str]]) -> None:
    said = Reading("messages", {}, "Sample").texts({"messages": [{"role": "assistant", **message}]})
    assert [(each.kind, each.text) for each in said] == says
    assert {each.role for each in said} <= {"assistant", ""} and all(each.turn == 0 and each.weight is None for each in said)
    weighed = Reading("messages", {}, "Sample").texts({"messages": [{"role": "assistant", **message, "loss_weight": 0.5}]})
    if "weight" not in message:
        assert [each.weight for each in weighed] == [0.5 if each.role else None for each in said]


@pytest.mark.parametrize(
    ("options", "message", "role", "kind"),
    [
        *(({}, {"role": tag}, role, "text") for tag, role in ROLES.items() if role != "system" and tag not in CALLERS),
        *(({}, {key: "assistant"}, "assistant", "text") for key in ("role", "from", "type")),
        *(({}, {"role": tag}, "assistant", "call") for tag in CALLERS),
        ({}, {"role": b"tool_call"}, "assistant", "call"),
        ({}, {"role": None, "from": "gpt"}, "assistant", "text"),
        ({"role_key": "who"}, {"who": "gpt", "role": "user"}, "assistant", "text"),
        ({"roles": {"bot": "assistant"}}, {"role": "bot"}, "assistant", "text"),
        ({"roles": {"bot": "judge"}}, {"role": "bot"}, "user", "text"),
        *(({}, message, "user", "text") for message in ({}, {"role": 5}, {"role": "critic"})),
    ],
)
def test_who_says_a_message(options: dict[str, Any], message: dict[str, Any], role: str, kind: str) -> None:
    [said, *_] = Reading("messages", options, "Sample").texts({"messages": [{"content": '{"name": "f"}', **message}]})
    assert (said.role, said.kind) == (role, kind)


@pytest.mark.parametrize(
    ("name", "gives", "row", "sides"),
    [
        ("alpaca", "Pair", {"instruction": "q", "output": ["a", "b"]}, ["prompt", "chosen", "rejected"]),
        ("alpaca", "Sample", {"instruction": "q", "output": "a"}, ["", ""]),
        ("gsm8k", "Prompt", {"question": "q", "answer": "a #### 5"}, ["prompt", "gold"]),
        ("preference", "Pair", {"prompt": "q", "chosen": "a", "rejected": "b", "margin": 1}, ["prompt", "chosen", "rejected", "margin"]),
        ("preference", "Pair", {"prompt": "q", "chosen": "a", "rejected": "b", "id": "7", "seed": 5}, ["prompt", "chosen", "rejected"]),
        *(("kto", gives, {"prompt": "q", "completion": "a", "label": True}, ["", "", "label"]) for gives in ("Sample", "Pair")),
        ("lines of pairs", "Pair", {"prompt": "q", "chosen": "a", "rejected": "b"}, ["prompt", "chosen", "rejected"]),
        ("contrastive", "Contrast", {"anchor": "q", "pos": [{"text": "p"}], "hard_negatives": ["n"]}, ["query", "positives", "negatives"]),
        ("lines of prompts", "Prompt", {"prompt": "q", "gold": "5", "verifier": "number", "level": "hard"}, ["prompt"]),
        ("anthropic", "Sample", {"messages": [{"role": "user", "content": "q"}], "topic": "sums"}, ["", ""]),
        ("of a user", "Sample", {"a": "q", "b": ["x", 5], "tools": [{"name": "f"}], "documents": [{"text": "d"}]}, ["", "", "", ""]),
    ],
)
def test_on_which_side_a_text_stands(name: str, gives: str, row: dict[str, Any], sides: list[str]) -> None:
    assert [each.side for each in Reading(name, {}, gives).texts(row)] == sides


@pytest.mark.parametrize("more", [{"weight": 0}, {"name": "b"}, {"tool_calls": []}])
def test_messages_with_a_third_field_make_no_plain_row(more: dict[str, Any]) -> None:
    assert Reading("messages", {}, "Sample").plain({"messages": [CHATS[0], {**CHATS[1], **more}]}) is None


def test_a_dialogue_of_a_pair_without_a_prompt_is_read_by_its_marks() -> None:
    row = {"chosen": "a", "rejected": "b"}
    assert (
        Reading("preference", {}, "Pair").plain(row) is None and Reading("preference", {}, "Pair").plain({"prompt": "q", **row}) is not None
    )


@pytest.mark.parametrize(
    ("chosen_by", "row", "says"),
    [
        ("lang", {"lang": "en", "topic": "sums"}, ["sums"]),
        ("about.lang", {"about": {"lang": "en", "topic": "sums"}}, ["sums"]),
        ("text", {"text": "x", "topic": "sums"}, ["x", "sums"]),  # a column with texts is read all the same
        ("weight", {"text": "x", "weight": 2}, ["x"]),
    ],
)
def test_columns_that_choose_rows_are_no_texts(chosen_by: str, row: dict[str, Any], says: list[str]) -> None:
    said = Reading("text", {}, "Sample", chosen_by=frozenset({chosen_by})).texts(row)
    assert [each.text for each in said] == says and all(each.weight is None for each in said)


@pytest.mark.parametrize("marks", [("\n\nHuman:", "\n\nAssistant:"), ("H>", "A>")])
def test_turns_of_a_pair_in_one_text_each(marks: tuple[str, str]) -> None:
    human, assistant = marks
    options = {} if "Human" in human else {"user_mark": human, "assistant_mark": assistant}
    row = {"chosen": f"{human} q{assistant} a", "rejected": f"{human} q{assistant} b"}
    said = Reading("preference", options, "Pair").texts(row)
    assert [(each.side, each.turn, each.text) for each in said] == [
        *(("chosen", at, text) for at, text in enumerate((" q", " a"))),
        *(("rejected", at, text) for at, text in enumerate((" q", " b"), 2)),
    ]
