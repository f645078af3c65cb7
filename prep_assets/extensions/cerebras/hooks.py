"""Read hooks of Cerebras Model Zoo for texts and chats, with their keyword arguments; ``llama3_chat`` and ``common_words_mask``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Literal

from prep_assets.errors import ConfigError, Refused
from prep_assets.extensions.preference.schemas import HUMAN_MARK, answer_alone, pair_with_system_of, preference
from prep_assets.samples import (
    ASSISTANT,
    COMPLETION,
    PROMPT,
    SYSTEM,
    TEXT,
    TOOL,
    USER,
    Contrast,
    Example,
    Pair,
    Region,
    Row,
    Sample,
    Turn,
    changed,
    turn,
)
from prep_assets.schemas.fields import as_list, as_mapping, as_text, needed, text_of, texts_of, value_at, whole, wrong_type
from prep_assets.schemas.messages import messages, prompt_completion
from prep_assets.schemas.registry import Convert, convert_with, schema, text_to_embed
from prep_assets.schemas.text import text
from prep_assets.schemas.turns import OPENAI_ROLES, pair_of, require_answer, role_at


@schema("text_read_hook", gives=Sample, example="text")
def text_read_hook(*, text_key: str = "text") -> Convert:
    """Cerebras' hook for pretraining text: `text` with the ends stripped.

    Options:
        text_key: field with the document.
    """
    return text(text_key=text_key, strip=True)


@schema("prompt_completion_text_read_hook", gives=Sample, example="prompt_completion")
def prompt_completion_text_read_hook(
    *, prompt_key: str = "prompt", completion_key: str = "completion", separator: str | None = None
) -> Convert:
    """Cerebras' hook for prompt and completion without a chat template, with a separator between them.

    Options:
        prompt_key: field with the prompt.
        completion_key: field with the completion.
        separator: what stands between them, never trained; null: the tokenizer's `sep_token`, else `<|sep|>`; empty: nothing.
    """
    return prompt_completion(prompt_key=prompt_key, completion_key=completion_key, separator=separator)


@schema("prompt_completion_chat_read_hook", gives=Sample, example="prompt_completion")
def prompt_completion_chat_read_hook(*, prompt_key: str = "prompt", completion_key: str = "completion") -> Convert:
    """Cerebras' hook for prompt and completion as a chat of one user and one assistant turn, both stripped.

    Options:
        prompt_key: field with the prompt.
        completion_key: field with the completion.
    """
    return prompt_completion(prompt_key=prompt_key, completion_key=completion_key, template=True, strip=True)


@schema("nlg_read_hook", gives=Sample, example={"context": "name : The Eagle |", "completion": " The Eagle is a pub."})
def nlg_read_hook(*, context_key: str = "context", completion_key: str = "completion") -> Convert:
    """Cerebras' hook for language generation from a context: token ids, as its own columns hold them, or text.

    Ids are read as by `tokenized`, so the domain names the tokenizer that made them (``tokenized_by``).

    Options:
        context_key: field with the context.
        completion_key: field with the completion.
    """
    read_text = prompt_completion(prompt_key=context_key, completion_key=completion_key)
    read_ids = convert_with("tokenized", {"prompt_ids_key": context_key, "completion_ids_key": completion_key})

    def convert(row: Row) -> Example | None:
        if all(isinstance(row.get(key), list | tuple) for key in (context_key, completion_key)):
            return read_ids(row)
        for key in (context_key, completion_key):
            if not isinstance(row.get(key), str | None):
                wrong_type(row.get(key), key, "a string, or token ids as the other side")
        return read_text(row)

    return convert


@schema("chat_read_hook", gives=Sample, example="messages")
def chat_read_hook(
    *, multi_turn_key: str = "messages", multi_turn_role_key: str = "role", multi_turn_content_key: str = "content"
) -> Convert:
    """Cerebras' hook for chats: user and assistant in pairs, their text stripped, an empty system turn left out.

    Options:
        multi_turn_key: field with the array of messages.
        multi_turn_role_key: field of a message with its role.
        multi_turn_content_key: field of a message with its content.
    """
    read = messages(messages_key=multi_turn_key, role_key=multi_turn_role_key, content_key=multi_turn_content_key, order="alternate")

    def convert(row: Row) -> Sample:
        sample = read(row)
        turns = tuple(_strip_turn(turn) for turn in sample.turns if turn.role != SYSTEM or turn.text.strip())
        return changed(sample, turns=turns)

    return convert


def _strip_turn(turn: Turn) -> Turn:
    if turn.role not in (USER, ASSISTANT):
        return turn
    return changed(turn, regions=tuple(changed(region, text=region.text.strip()) for region in turn.regions))


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


@schema("llama3_1_chat_formatted_data_hook", gives=Sample, example="llama3_chat")
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


ASSISTANT_ROLE = "assistant:"
DPO_EXAMPLE = {
    "chosen": "\n\nHuman: What is the capital of Peru?\n\nAssistant: Lima.",
    "rejected": "\n\nHuman: What is the capital of Peru?\n\nAssistant: I don't know.",
}


@schema("dpo_read_hook", gives=Pair, example=DPO_EXAMPLE)
def dpo_read_hook(
    *, chosen_key: str = "chosen", rejected_key: str = "rejected", prompt_key: str | None = None, assistant_role: str = ASSISTANT_ROLE
) -> Convert:
    """Cerebras' DPO hook: strings with a prompt, strings that begin with the prompt, or messages.

    Options:
        chosen_key: field with the better answer.
        rejected_key: field with the worse answer.
        prompt_key: field with the prompt; null for none.
        assistant_role: the mark after which the answer begins where there is no prompt field, in upper or lower case.
    """
    if prompt_key is not None and assistant_role != ASSISTANT_ROLE:
        raise ConfigError(f"assistant_role is where the prompt ends, and the prompt is in {prompt_key!r}. Leave one of the two out")
    read = preference(chosen_key=chosen_key, rejected_key=rejected_key, prompt_key=prompt_key)

    def convert(row: Row) -> Pair:
        if not all(isinstance(row.get(key), str) for key in (chosen_key, rejected_key)):
            return read(row)
        chosen, rejected = texts_of(row, chosen_key, rejected_key)
        if prompt_key is not None:
            prompt = as_text(value_at(row, prompt_key), prompt_key)
        else:
            prompt, chosen, rejected = _cut_at_mark(chosen, rejected, assistant_role)
        pair = pair_of(row, *((turn(role, text.strip()),) for role, text in ((USER, prompt), (ASSISTANT, chosen), (ASSISTANT, rejected))))
        return pair_with_system_of(row, "system", pair)

    return convert


def _cut_at_mark(chosen: str, rejected: str, mark: str) -> tuple[str, str, str]:
    marks = list(re.finditer(re.escape(mark), chosen, re.IGNORECASE))
    if not marks:
        raise Refused("no_assistant_turn", f"chosen has no {mark!r}; it ends {chosen[-50:]!r}")
    end = marks[-1].end()
    if rejected[:end] != chosen[:end]:
        detail = f"the prompts, up to the last {mark!r} of chosen, end {chosen[:end][-50:]!r} and {rejected[:end][-50:]!r}"
        raise Refused("prompts_differ", detail)
    return chosen[:end], answer_alone(chosen[end:], HUMAN_MARK, "chosen"), answer_alone(rejected[end:], HUMAN_MARK, "rejected")


@schema("ques_embed_gen_hook", gives=Contrast, example={"question": "What is 2 + 2?", "id": 7})
def ques_embed_gen_hook(*, question_key: str = "question") -> Convert:
    """Cerebras' hook of RAFT for questions to be embedded, each with its ``id``.

    Options:
        question_key: field with the question.
    """
    return lambda row: text_to_embed(value_at(row, question_key), value_at(row, "id"))


@schema("ctx_embed_gen_hook", gives=Contrast, example={"context": "Two and two are four.", "id": 7})
def ctx_embed_gen_hook(*, context_key: str = "context") -> Convert:
    """Cerebras' hook of RAFT for contexts to be embedded, each with its ``id``.

    Options:
        context_key: field with the context.
    """
    return lambda row: text_to_embed(value_at(row, context_key), value_at(row, "id"))
