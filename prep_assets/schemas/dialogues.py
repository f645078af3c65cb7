"""Chats in formats of their own: ``moss``, ``hh``, ``belle``, ``llama3_chat``, ``common_words_mask``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from prep_assets.errors import Refused
from prep_assets.samples import (
    ASSISTANT,
    COMPLETION,
    PROMPT,
    SYSTEM,
    TEXT,
    THINKING,
    TOOL,
    TOOL_CALL,
    USER,
    Pair,
    PlainChat,
    Region,
    Row,
    Sample,
    Turn,
    turn,
)
from prep_assets.schemas.fields import as_list, as_mapping, needed, text_of, texts_of, value_at, whole
from prep_assets.schemas.reader import PlainPairs, reads_plain
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.turns import (
    OPENAI_ROLES,
    call_text,
    pair_of,
    require_alternation,
    require_answer,
    role_at,
    turns_of,
    with_system_of,
)

# ``moss``: moss-003 conversations, with or without plugins.

PARAMETERS = {"Search": "query", "Calculate": "expression", "Solve": "equation", "Text2Image": "description"}
_BETWEEN = r"\s*(?:[,，;；]\s*)?"
_COMMAND = re.compile(rf'({"|".join(PARAMETERS)})\("((?:[^"\\]|\\.)*)"\){_BETWEEN}', re.DOTALL)
_NO_COMMAND = re.compile(rf"None\b(?:\.\s*\Z)?{_BETWEEN}(?=\Z|{'|'.join(PARAMETERS)})")
NOTHING = "None"
"""The text of an empty field. A tool may answer with it, too."""

MOSS_EXAMPLE = {
    "meta_instruction": "You are an AI assistant whose name is MOSS.\n",
    "chat": {
        "turn_1": {
            "Human": "<|Human|>: What is 12 * 12?<eoh>\n",
            "Inner Thoughts": "<|Inner Thoughts|>: I should calculate it.<eot>\n",
            "Commands": '<|Commands|>: Calculate("12*12")<eoc>\n',
            "Tool Responses": '<|Results|>:\nCalculate("12*12") => 144\n<eor>\n',
            "MOSS": "<|MOSS|>: It is 144.<eom>\n",
        }
    },
}


@schema("moss", gives=Sample, example=MOSS_EXAMPLE, aliases=("MOSSMultiTurnHandler", "MOSSInstructionHandler"))
def moss(*, chat_key: str = "chat", system_key: str | None = None, plugins: bool = False) -> Convert:
    """The turns of a MOSS conversation: user, assistant, user, assistant …, freed of MOSS's own markers and stripped.

    Options:
        chat_key: object of turns, in the order of the file.
        system_key: the system prompt, such as `meta_instruction`; null for none, as in ModelLink.
        plugins: keep inner thoughts, commands and tool responses as thinking, tool calls and tool turns.
    """

    def convert(row: Row) -> Sample:
        turns: list[Turn] = []
        if system_key is not None:
            turns.append(turn(SYSTEM, needed(text_of(row, system_key), "empty_prompt", system_key).strip()))
        for name, exchange in as_mapping(value_at(row, chat_key), chat_key).items():
            if exchange:
                turns.extend(_exchange_turns(as_mapping(exchange, f"{chat_key}.{name}"), f"{chat_key}.{name}", plugins))
        require_answer(turns)
        return Sample(tuple(turns))

    return convert


def _exchange_turns(exchange: Mapping[str, Any], where: str, plugins: bool) -> list[Turn]:
    human, answer = texts_of(exchange, "Human", "MOSS")
    user = needed(human.replace("<eoh>", "").replace("<|Human|>: ", "").strip(), "empty_turn", f"{where}.Human")
    text = needed(answer.replace("<|MOSS|>:", "").replace("<eom>", "").strip(), "empty_answer", f"{where}.MOSS")
    thinking, tool_turns = _plugin_use(exchange, where) if plugins else ((), ())
    if tool_turns:
        return [turn(USER, user), *tool_turns, turn(ASSISTANT, text)]
    return [turn(USER, user), Turn(ASSISTANT, (*thinking, Region(TEXT, text)))]


def _plugin_use(exchange: Mapping[str, Any], where: str) -> tuple[tuple[Region, ...], tuple[Turn, ...]]:
    """The thinking region of an exchange, and the assistant and tool turns of its commands; both may be empty."""
    marks = (("<|Inner Thoughts|>:", "<eot>"), ("<|Commands|>:", "<eoc>"), ("<|Results|>:", "<eor>"))
    texts_and_marks = zip(texts_of(exchange, "Inner Thoughts", "Commands", "Tool Responses"), marks, strict=True)
    thought, commands, results = (text.replace(opening, "").replace(closing, "").strip() for text, (opening, closing) in texts_and_marks)
    thinking = (Region(THINKING, thought),) if thought not in ("", NOTHING) else ()
    texts = _call_texts(commands, f"{where}.Commands")
    if not texts:
        if results not in ("", NOTHING):
            raise Refused("role_order", f"{where!r} has results of tools and no commands: {results[:60]!r}")
        return thinking, ()
    calls = tuple(Region(TOOL_CALL, text) for text in texts)
    return thinking, (Turn(ASSISTANT, (*thinking, *calls)), turn(TOOL, results))


def _call_texts(commands: str, where: str) -> list[str]:
    """The texts of calls written as ``Search("a"), Calculate("1+1")``, also one a line.

    An argument is taken verbatim up to the next quotation mark without a backslash, since its backslashes are LaTeX. A ``None`` instead of calls or
    among them is skipped: the published results answer the others. A call of anything but one string (two of them, ``"{}".format(2)``) is rejected:
    no published result says what it means."""
    texts, position = [], 0
    while position < len(commands):
        call = _COMMAND.match(commands, position)
        if call is None and (nothing := _NO_COMMAND.match(commands, position)):
            position = nothing.end()
            continue
        if call is None:
            problem = f"{where!r} has something other than {', '.join(PARAMETERS)} of one string: {commands[:60]!r}"
            raise Refused(
                "bad_tool_call", f"{problem}. Write such calls, or None, or leave out the plugins of all rows with plugins: false"
            )
        texts.append(call_text({"name": call[1], "arguments": {PARAMETERS[call[1]]: call[2]}}, where))
        position = call.end()
    return texts


# ``hh`` and ``belle``: chats written as one text, with a mark before each turn.

HUMAN_MARK = "\n\nHuman:"
ASSISTANT_MARK = "\n\nAssistant:"
MARKS = {HUMAN_MARK: USER, ASSISTANT_MARK: ASSISTANT}

EXAMPLE = {
    "chosen": "\n\nHuman: What is the capital of Peru?\n\nAssistant: Lima.",
    "rejected": "\n\nHuman: What is the capital of Peru?\n\nAssistant: I don't know.",
}


@schema("hh", gives=Pair, example=EXAMPLE)
def hh(
    *,
    chosen_key: str = "chosen",
    rejected_key: str = "rejected",
    prompt_check: Literal["strict", "chosen"] = "strict",
    split_turns: bool = False,
) -> Convert:
    """Both dialogues split at their last ``\\n\\nAssistant:``; what stands before it is the prompt.

    Options:
        chosen_key: the dialogue that ends with the better answer.
        rejected_key: the dialogue that ends with the worse answer.
        prompt_check: `strict` rejects dialogues whose prompts differ; `chosen` takes the chosen one's, as train-llm-from-scratch does.
        split_turns: make the prompt a chat; otherwise it is one user turn with its marks.
    """

    keys = (chosen_key, rejected_key)

    def convert(row: Row) -> Pair:
        chosen, rejected = (_split_answer(text, key) for text, key in zip(texts_of(row, *keys), keys, strict=True))
        if chosen[0].strip() != rejected[0].strip() and prompt_check == "strict":
            raise Refused("prompts_differ", f"the prompts end {chosen[0][-50:]!r} and {rejected[0][-50:]!r}")
        if not rejected[0].strip():
            raise Refused("empty_prompt", f"the prompt of {rejected_key!r} is empty")
        prompt = turns_of(split_marked(chosen[0], MARKS, chosen_key)) if split_turns else (turn(USER, chosen[0].strip()),)
        return pair_of(row, with_system_of(row, prompt), *((turn(ASSISTANT, answer),) for _, answer in (chosen, rejected)))

    def split(row: Row) -> tuple[PlainChat | None, object, object] | None:
        if type(row[chosen_key]) is not str or type(row[rejected_key]) is not str:
            return None
        (prompt, mark, chosen), (rejected_prompt, rejected_mark, rejected) = (row[key].rpartition(ASSISTANT_MARK) for key in keys)
        prompt = prompt.strip()
        if not mark or not rejected_mark or not prompt or prompt != rejected_prompt.strip() or HUMAN_MARK in chosen + rejected:
            return None
        return PlainChat((USER,), (prompt,)), chosen.strip(), rejected.strip()

    return convert if split_turns else reads_plain(convert, PlainPairs(frozenset(keys), split))


def _split_answer(text: str, key: str) -> tuple[str, str]:
    prompt, mark, answer = text.rpartition(ASSISTANT_MARK)
    if not mark:
        raise Refused("no_assistant_turn", f"{key!r} has no {ASSISTANT_MARK!r}; it ends {text[-50:]!r}")
    return prompt, answer_alone(answer, HUMAN_MARK, key).strip()


def answer_alone(answer: str, human_mark: str, where: str) -> str:
    """`answer`, rejected (``role_order``) where it holds a human's turn: the dialogue does not end with the assistant."""
    if human_mark in answer:
        raise Refused("role_order", f"{where!r} ends with a human's turn: {answer[answer.rindex(human_mark) :][:60]!r}")
    return answer


def split_marked(text: str, marks: Mapping[str, str], where: str) -> list[tuple[str, str]]:
    """Split `text` at `marks` (mark to role) into ``(role, text)`` of each turn; texts are stripped.

    Raises:
        Refused: ``leading_text`` where text comes before the first mark.
    """
    pattern = re.compile("|".join(re.escape(mark) for mark in marks))
    matches = list(pattern.finditer(text))
    leading = text[: matches[0].start()] if matches else text
    if leading.strip():
        raise Refused("leading_text", f"{where!r} begins {leading[:60]!r}, before the first of {', '.join(map(repr, marks))}")
    ends = [match.start() for match in matches[1:]] + [len(text)] * bool(matches)
    return [(marks[match[0]], text[match.end() : end].strip()) for match, end in zip(matches, ends, strict=True)]


BELLE = {"instruction": "Human:你好\nAssistant:你好！有什么可以帮你？\nHuman:讲个笑话\nAssistant:", "input": "", "output": "从前有座山……"}


@schema("belle", gives=Sample, example=BELLE, aliases=("BelleMultiTurnInstructionHandler",))
def belle(
    *, instruction_key: str = "instruction", output_key: str = "output", human_mark: str = "Human:", assistant_mark: str = "Assistant:"
) -> Convert:
    """The turns inside the instruction, whose last ``Assistant:`` is answered by the output; all stripped.

    Options:
        instruction_key: the chat, `Human:…Assistant:…Human:…Assistant:`.
        output_key: the last answer.
        human_mark: mark before a user's turn.
        assistant_mark: mark before an assistant's turn.
    """

    def convert(row: Row) -> Sample:
        past, answer = texts_of(row, instruction_key, output_key)
        turns = split_marked(past, {human_mark: USER, assistant_mark: ASSISTANT}, instruction_key)
        if not turns or turns[-1] != (ASSISTANT, ""):
            raise Refused("role_order", f"{instruction_key!r} must end with {assistant_mark!r}; it ends {past[-60:]!r}")
        turns[-1] = (ASSISTANT, answer_alone(answer, f"\n{human_mark}", output_key).strip())
        sample = Sample(turns_of(turns))
        require_alternation(sample.turns, ends_with_answer=True)
        return sample

    return convert


# ``llama3_chat``: text to which Llama 3's chat template was already applied, read back into turns.

ROLES = {**OPENAI_ROLES, "ipython": TOOL}
_TURN = re.compile(r"\s*<\|start_header_id\|>(.*?)<\|end_header_id\|>\n\n(.*?)<\|(?:eot|eom)_id\|>", re.DOTALL)
_AROUND = re.compile(r"\s*(?:<\|(?:begin_of_text|end_of_text)\|>\s*)*")

LLAMA3_CHAT_EXAMPLE = {
    "text": "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>"
}


@schema("llama3_chat", gives=Sample, example=LLAMA3_CHAT_EXAMPLE)
def llama3_chat(*, text_key: str = "text", strip: bool = True) -> Convert:
    """Each header with its text up to ``<|eot_id|>`` or ``<|eom_id|>`` as one turn.

    Options:
        text_key: the rendered chat.
        strip: strip every turn, as the template does.
    """

    def convert(row: Row) -> Sample:
        text = needed(text_of(row, text_key), "empty_text", text_key)
        turns: list[Turn] = []
        position = _end_of(_AROUND, text, 0)
        while match := _TURN.match(text, position):
            where = f"{text_key}, turn {len(turns)}"
            role = role_at({"header": match[1].strip()}, "header", ROLES, where)
            content = match[2].strip() if strip else match[2]
            turns.append(turn(role, needed(content, "empty_answer", where) if role == "assistant" else content))
            position = match.end()
        leftover = text[_end_of(_AROUND, text, position) :]
        if leftover:
            raise Refused("leftover_text", f"{text_key!r} has text outside of any turn: {leftover[:60]!r}")
        require_answer(turns)
        return Sample(tuple(turns))

    return convert


def _end_of(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position


@schema("llama3_1_chat_formatted_data_hook", gives=Sample, example=LLAMA3_CHAT_EXAMPLE)
def llama3_1_chat_formatted_data_hook(*, chat_key: str = "text") -> Convert:
    """Cerebras' hook for such text.

    Options:
        chat_key: field with the rendered chat.
    """
    return llama3_chat(text_key=chat_key)


# ``common_words_mask``: answers whose commonest words are read but not trained.

COMMON_WORDS = ("the", "be", "to", "of", "and", "a", "in", "that", "have", "I", "am")
_WORD = re.compile(r"\s*\S+(?:\s+\Z)?")


@schema("common_words_mask", gives=Sample, example={"prompt": "Who are you?", "completion": "I am the keeper of keys."})
def common_words_mask(*, prompt_key: str = "prompt", completion_key: str = "completion", words: Sequence[str] = COMMON_WORDS) -> Convert:
    """A prompt and a completion whose runs of common words weigh 0 and whose other runs weigh 1.

    Options:
        prompt_key: the prompt.
        completion_key: the completion.
        words: the common words.
    """

    def convert(row: Row) -> Sample:
        return weighed_words(text_of(row, prompt_key), text_of(row, completion_key), words)

    return convert


def weighed_words(prompt: str, completion: str, words: Sequence[str]) -> Sample:
    """A prompt turn and a completion turn in runs of common words and others. Space before a word belongs to it; no character is lost or changed."""
    needed(prompt, "empty_prompt", "the prompt")
    needed(completion, "empty_answer", "the completion")
    common = frozenset(words)
    runs = groupby(_WORD.findall(completion), key=lambda word: word.strip() in common)
    regions = tuple(Region(TEXT, "".join(run), 0.0 if is_common else 1.0) for is_common, run in runs)
    return Sample((turn(PROMPT, prompt), Turn(COMPLETION, regions)))


@schema(
    "ultra_chat_common_words_mask_hook",
    gives=Sample,
    example={
        "prompt": "Who are you?",
        "messages": [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "I am Max."}],
    },
)
def ultra_chat_common_words_mask_hook(
    *, prompt_key: str = "prompt", completion_key: str = "messages", later_messages: Literal["refuse", "leave_out"] = "refuse"
) -> Convert:
    """Cerebras' hook for UltraChat: the completion is the second message of a chat, whose first one is the prompt.

    Options:
        prompt_key: field with the prompt.
        completion_key: field with the array of messages.
        later_messages: whether a chat of more than two messages is refused, or what comes after the second is left out.
    """

    def convert(row: Row) -> Sample:
        messages = [as_mapping(value, completion_key) for value in as_list(value_at(row, completion_key), completion_key)]
        prompt = text_of(row, prompt_key)
        if len(messages) < 2:
            raise Refused("no_assistant_turn", f"{completion_key!r} has {len(messages)} messages, the answer is the second")
        asked, answered = (texts_of(message, "role", "content") for message in messages[:2])
        if (asked[0], answered[0]) != ("user", "assistant"):
            raise Refused("role_order", f"{completion_key!r} begins with messages of {asked[0]!r} and {answered[0]!r}")
        if asked[1].strip() != prompt.strip():
            raise Refused("prompts_differ", f"the first message is {asked[1][:60]!r}, {prompt_key!r} is {prompt[:60]!r}")
        if messages[2:] and later_messages == "refuse":
            raise Refused("later_messages", f"{completion_key!r} has {len(messages)} messages; the answer is the second")
        whole(messages[2:])
        return weighed_words(prompt, answered[1], COMMON_WORDS)

    return convert
