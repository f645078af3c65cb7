"""Instructions: ``alpaca``, ``alpaca_pairwise``, ``dolly``, and ModelLink's handlers of this kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prep_assets.errors import ConfigError, Refused, require_known
from prep_assets.samples import ASSISTANT, TEXT, USER, Pair, Prompt, Region, Row, Sample, Turn, document, turn
from prep_assets.schemas.fields import as_list, as_mapping, as_text, needed, text_of, texts_of, value_at
from prep_assets.schemas.messages import sharegpt, sharegpt_options
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.rewards import JUDGED, NUMBER, plain_number
from prep_assets.schemas.turns import chat_sample, offered, pair_of, reasoning_regions, with_system

# ``alpaca``, ``alpaca_pairwise`` and ``dolly``: instruction, input, output, and where a row has them system and history.

JOIN = "\n\n"
EXAMPLE = {"instruction": "Translate into French.", "input": "Good morning", "output": "Bonjour"}


@schema("alpaca", gives=Sample, example=EXAMPLE)
def alpaca(
    *,
    prompt_key: str = "instruction",
    query_key: str | None = "input",
    response_key: str = "output",
    system_key: str | None = "system",
    history_key: str | None = "history",
    join: str = JOIN,
    strip: bool = True,
) -> Convert:
    """An instruction with its answer: [system], [history], user, assistant, who may reason first (``thinking``, ``Complex_CoT`` …).

    Options:
        prompt_key: the instruction.
        query_key: the input, if any; null: none.
        response_key: the answer.
        system_key: the system prompt, if any; null: none.
        history_key: earlier `[question, answer]` pairs; null: none.
        join: separator of instruction and input: a blank line (train-llm-from-scratch), or a line break (LLaMA-Factory, ModelLink).
        strip: strip every text.
    """
    require_joined(join != JOIN, query_key)

    def convert(row: Row) -> Sample:
        prompt = alpaca_prompt(row, prompt_key, query_key, system_key, history_key, join, strip)
        answer = needed(text_of(row, response_key), "empty_answer", response_key)
        answer_region = Region(TEXT, answer.strip() if strip else answer)
        return chat_sample(row, (*prompt, Turn(ASSISTANT, (*reasoning_regions(row, "", None), answer_region))))

    return convert


def require_joined(is_set: bool, query_key: str | None) -> None:
    """Raise where `join` is set (`is_set`) and there is no second field to join."""
    if is_set and query_key is None:
        raise ConfigError(
            "join stands between the instruction and a second field, which null ignores here. Name the field, or leave join out"
        )


def alpaca_prompt(
    row: Row, prompt_key: str, query_key: str | None, system_key: str | None, history_key: str | None, join: str, strip: bool
) -> tuple[Turn, ...]:
    """The turns before the answer of an Alpaca row: [system], [history], user."""

    def normalize(text: str) -> str:
        return text.strip() if strip else text

    instruction = text_of(row, prompt_key)
    question = join.join(normalize(text) for text in (instruction, _optional(row, query_key)) if text.strip())
    needed(question, "empty_prompt", prompt_key)
    system = normalize(_optional(row, system_key))
    history = _history(row, history_key)
    history_turns = (turn(role, normalize(text)) for pair in history for role, text in zip((USER, ASSISTANT), pair, strict=True))
    return with_system((*history_turns, turn(USER, question)), system)


def _optional(row: Row, key: str | None) -> str:
    return "" if key is None else text_of(row, key, required=False)


def _history(row: Row, key: str | None) -> list[tuple[str, str]]:
    value = None if key is None else row.get(key)
    if value is None:
        return []
    pairs = []
    for number, pair in enumerate(as_list(value, str(key))):
        where = f"{key}[{number}]"
        if len(texts := as_list(pair, where)) != 2:
            raise Refused("wrong_type", f"{where!r} has {len(texts)} elements, needs a question and an answer")
        question, answer = (as_text(text, where) for text in texts)
        pairs.append((needed(question, "empty_prompt", where), needed(answer, "empty_answer", where)))
    return pairs


def alpaca_keys(map_keys: Mapping[str, str] | None, answers: tuple[str, ...]) -> dict[str, Any]:
    """ModelLink's ``--map-keys`` for Alpaca rows as options of `alpaca`.

    Raises:
        ConfigError: a key that the handler does not have.
    """
    allowed = ("prompt", "query", "system", "history", *answers)
    for key in map_keys or {}:
        require_known("map_keys has no key", key, allowed, "Allowed")
    return {f"{key}_key": column for key, column in (map_keys or {}).items()}


@schema("AlpacaStyleInstructionHandler", gives=Sample, example=EXAMPLE)
def alpaca_style_instruction_handler(*, map_keys: Mapping[str, str] | None = None) -> Convert:
    """ModelLink's handler: `alpaca` with a line break between instruction and input, nothing stripped.

    Options:
        map_keys: columns for ``prompt``, ``query``, ``response``, ``history``, ``system``.
    """
    return alpaca(**alpaca_keys(map_keys, ("response",)), join="\n", strip=False)


@schema("GeneralInstructionHandler", gives=Sample, example=EXAMPLE)
def general_instruction_handler() -> Convert:
    """ModelLink's handler: `alpaca` with a line break between instruction and input, nothing stripped, without system and history."""
    return alpaca(system_key=None, history_key=None, join="\n", strip=False)


PAIR_JOIN = "\n"
PAIR_EXAMPLE = {"instruction": "Name a prime number.", "input": "", "chosen": "7", "rejected": "9"}


@schema("alpaca_pairwise", gives=Pair, example=PAIR_EXAMPLE, variant_of="alpaca")
def alpaca_pairwise(
    *,
    prompt_key: str = "instruction",
    query_key: str | None = "input",
    chosen_key: str = "chosen",
    rejected_key: str = "rejected",
    system_key: str | None = "system",
    history_key: str | None = "history",
    join: str = PAIR_JOIN,
    strip: bool = False,
) -> Convert:
    """The prompt of an Alpaca row and two answers to it; of a row without ``chosen``, those of its ``output``, an array of the better and the worse one.

    Options:
        prompt_key: the instruction.
        query_key: the input, if any; null: none.
        chosen_key: the better answer.
        rejected_key: the worse answer.
        system_key: the system prompt; null: none.
        history_key: earlier `[question, answer]` pairs; null: none.
        join: separator of instruction and input.
        strip: strip every text.
    """
    require_joined(join != PAIR_JOIN, query_key)

    def convert(row: Row) -> Pair:
        prompt = alpaca_prompt(row, prompt_key, query_key, system_key, history_key, join, strip)
        both = _ranked_output(row) if row.get(chosen_key) is None and row.get("output") is not None else None
        answers = (text.strip() if strip else text for text in both or texts_of(row, chosen_key, rejected_key))
        return pair_of(row, prompt, *((turn(ASSISTANT, text),) for text in answers))

    return convert


def _ranked_output(row: Row) -> Sequence[str]:
    """The two answers under ``output``, the better one first (LLaMA-Factory's older layout)."""
    if len(answers := as_list(row["output"], "output", "an array of the better and the worse answer")) != 2:
        raise Refused("several_answers", f"'output' has {len(answers)} answers, a pair has two. Rank more of them with group_list")
    return [as_text(answer, "output") for answer in answers]


@schema("AlpacaStylePairwiseHandler", gives=Pair, example=PAIR_EXAMPLE)
def alpaca_style_pairwise_handler(*, map_keys: Mapping[str, str] | None = None) -> Convert:
    """ModelLink's handler: `alpaca_pairwise` with its ``--map-keys``.

    Options:
        map_keys: columns for ``prompt``, ``query``, ``history``, ``system``, ``chosen``, ``rejected``.
    """
    return alpaca_pairwise(**alpaca_keys(map_keys, ("chosen", "rejected")))


DOLLY = {
    "instruction": "When did Virgin Australia start operating?",
    "context": "Virgin Australia commenced services on 31 August 2000 as Virgin Blue.",
    "response": "On 31 August 2000.",
    "category": "closed_qa",
}


@schema("dolly", gives=Sample, example=DOLLY)
def dolly(
    *, instruction_key: str = "instruction", context_key: str | None = "context", response_key: str = "response", join: str = JOIN
) -> Convert:
    """An instruction, with its context after a blank line where it has one, and the response; all stripped.

    Options:
        instruction_key: the instruction.
        context_key: the context, if any; null: none.
        response_key: the response.
        join: separator of instruction and context.
    """
    return alpaca(
        prompt_key=instruction_key, query_key=context_key, response_key=response_key, system_key=None, history_key=None, join=join
    )


# ModelLink's handlers whose rows no other schema reads: texts for pretraining, prompts with reference answers, and LeetCode problems.

_ALPACA = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the "
    "user's questions.USER: Below is an instruction that describes a task. Write a response that appropriately completes the request."
    "\n\n### Instruction:\n{instruction}\n\n{given}### Response: ASSISTANT: {response}"
)
_STACK_OVERFLOW = "In python, {title}\n### Question:\n{question}\n### Response:\n{answer}\n"
_ALPACA_KEYS = {"prompt_key": "instruction", "query_key": "input", "system_key": "system", "history_key": "history"}
REFERENCE = "reference"
"""The verifier of handlers that store a reference answer and leave the comparison to the trainer."""


@schema("AlpacaPretrainHandler", gives=Sample, example={"instruction": "Add 2 and 2.", "input": "", "output": "4"})
def alpaca_pretrain_handler() -> Convert:
    """ModelLink's handler: an Alpaca row as one text. Without an input there is no input section; ModelLink writes ``###None`` there."""

    def convert(row: Row) -> Sample:
        instruction, response = (needed(text_of(row, key), "empty_text", key) for key in ("instruction", "output"))
        query = text_of(row, "input", required=False)
        section = f"### Input:\n{query}\n\n" if query else ""
        return document(_ALPACA.format(instruction=instruction, given=section, response=response))

    return convert


@schema(
    "StackOverflowPythonPretrainHandler",
    gives=Sample,
    example={"title": "Sort a list", "question_body": "How do I sort a list?", "answer_body": "Call sorted."},
)
def stack_overflow_python_pretrain_handler() -> Convert:
    """ModelLink's handler: title, question and answer as one text. ModelLink's own writes nothing."""

    def convert(row: Row) -> Sample:
        title, question, answer = (needed(text_of(row, key), "empty_text", key) for key in ("title", "question_body", "answer_body"))
        return document(_STACK_OVERFLOW.format(title=title, question=question, answer=answer))

    return convert


@schema(
    "SharegptPretrainHandler",
    gives=Sample,
    example={"conversations": [{"from": "human", "value": "Hi. "}, {"from": "gpt", "value": "Hello!"}]},
)
def sharegpt_pretrain_handler() -> Convert:
    """MindSpeed-LLM's handler: the values of all messages, one directly after the other."""

    def convert(row: Row) -> Sample:
        texts = []
        for number, message in enumerate(as_list(value_at(row, "conversations"), "conversations")):
            fields = as_mapping(message, f"conversations[{number}]")
            for key in ("from", "role"):
                fields.get(key)  # every message is part of the text, whoever speaks
            texts.append(text_of(fields, "value" if fields.get("value") is not None else "content"))
        return document(needed("".join(texts), "empty_text", "conversations"))

    return convert


@schema("R1AlpacaStyleInstructionHandler", gives=Prompt, example={"instruction": "What is 12 * 12?", "input": "", "output": "144"})
def r1_alpaca(*, map_keys: Mapping[str, str] | None = None, verifier: str = REFERENCE) -> Callable[[Row], Prompt]:
    """MindSpeed-LLM's handler: system, history and question of an Alpaca row, its output as the reference answer.

    Options:
        map_keys: columns for ``prompt``, ``query``, ``response``, ``history``, ``system``.
        verifier: what compares an answer with the reference; ``number`` where it is one plain number.
    """
    keys = {**_ALPACA_KEYS, "response_key": "output", **alpaca_keys(map_keys, ("response",))}
    answer_key = keys.pop("response_key")

    def convert(row: Row) -> Prompt:
        gold = needed(text_of(row, answer_key), "no_gold", answer_key)
        return Prompt(alpaca_prompt(row, **keys, join="\n", strip=False), _gold(gold, verifier), verifier, **offered(row))

    return convert


@schema("PPOAlpacaStyleInstructionHandler", gives=Prompt, example={"instruction": "Write a haiku.", "input": ""})
def ppo_alpaca(*, map_keys: Mapping[str, str] | None = None) -> Callable[[Row], Prompt]:
    """MindSpeed-LLM's handler of prompts that a reward model judges: system, history and question of an Alpaca row. Its answer is not read.

    Options:
        map_keys: columns for ``prompt``, ``query``, ``history``, ``system``.
    """
    keys = {**_ALPACA_KEYS, **alpaca_keys(map_keys, ())}

    def convert(row: Row) -> Prompt:
        return Prompt(alpaca_prompt(row, **keys, join="\n", strip=False), "", JUDGED, **offered(row))

    return convert


MODELLINK_EXAMPLE = {"conversations": [{"from": "human", "value": "What is 12 * 12?"}, {"from": "gpt", "value": "144"}]}


@schema("R1SharegptStyleInstructionHandler", gives=Prompt, example=MODELLINK_EXAMPLE)
def r1_sharegpt(*, map_keys: Mapping[str, Any] | None = None, verifier: str = REFERENCE) -> Callable[[Row], Prompt]:
    """MindSpeed-LLM's handler: a ShareGPT conversation up to its last answer, which is the reference answer.

    Options:
        map_keys: columns for ``messages``, ``system``, ``tools``, and under ``tags`` the names of the tags.
        verifier: what compares an answer with the reference; ``number`` where it is one plain number.
    """
    read = sharegpt(**sharegpt_options(map_keys, ()))

    def convert(row: Row) -> Prompt:
        sample = read(row)
        assert isinstance(sample, Sample) and sample.turns[-1].role == ASSISTANT
        *prompt, answer = sample.turns
        return Prompt(tuple(prompt), _gold(answer.text, verifier), verifier, sample.tools, sample.documents, sample.template_options)

    return convert


def _gold(text: str, verifier: str) -> str:
    return plain_number(text.strip()) if verifier == NUMBER else text


LEETCODE = {
    "code_with_problem": "Return the sum of two numbers.\n\n```python\ndef add(a, b):\n    return a + b\n```",
    "code_only": "def add(a, b):\n    return a + b\n",
    "explanation_only": "It adds the two numbers.",
}


@schema("leetcode_python", gives=Sample, example=LEETCODE, aliases=("LeetcodePythonInstructionHandler",))
def leetcode_python(
    *, problem_key: str = "code_with_problem", code_key: str = "code_only", explanation_key: str = "explanation_only"
) -> Convert:
    """The problem (the text before its code in ``` fences, stripped), answered with code, a line break and the explanation.

    Options:
        problem_key: the problem and, after a fence, its code.
        code_key: the code.
        explanation_key: the explanation.
    """

    def convert(row: Row) -> Sample:
        problem, code, explanation = texts_of(row, problem_key, code_key, explanation_key)
        user = needed(problem.partition("```")[0].strip(), "empty_prompt", problem_key)
        if after := "".join(problem.split("```")[2:]).strip():
            raise Refused("trailing_text", f"{problem_key!r} goes on behind its code, which would be lost: {after[:60]!r}")
        needed(code, "empty_answer", code_key)
        return Sample((turn(USER, user), turn(ASSISTANT, f"{code}\n{explanation}")))

    return convert
