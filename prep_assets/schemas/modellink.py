"""ModelLink's handlers whose rows no other schema reads: texts for pretraining, prompts with reference answers, and LeetCode problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prep_assets.samples import ASSISTANT, USER, Prompt, Sample, document, turn
from prep_assets.schemas.alpaca import alpaca_keys, alpaca_prompt
from prep_assets.schemas.columns import offered
from prep_assets.schemas.fields import as_list, as_mapping, needed, text_of, texts_of, value_at
from prep_assets.schemas.gold import plain_number
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.rl_prompt import JUDGED, NUMBER
from prep_assets.schemas.sharegpt import sharegpt, sharegpt_options

_ALPACA = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the "
    "user's questions.USER: Below is an instruction that describes a task. Write a response that appropriately completes the request."
    "\n\n### Instruction:\n{instruction}\n\n{given}### Response: ASSISTANT: {response}"
)
_STACK_OVERFLOW = "In python, {title}\n### Question:\n{question}\n### Response:\n{answer}\n"
_ALPACA_KEYS = {"prompt_key": "instruction", "query_key": "input", "system_key": "system", "history_key": "history"}
REFERENCE = "reference"
"""The verifier of handlers that store a reference answer and leave it to the trainer how to compare."""


@schema("AlpacaPretrainHandler", gives=Sample, example={"instruction": "Add 2 and 2.", "input": "", "output": "4"})
def alpaca_pretrain_handler() -> Convert:
    """ModelLink's handler: an Alpaca row as one text. Without an input there is no input section; ModelLink writes ``###None`` there."""

    def convert(row: Mapping[str, Any]) -> Sample:
        instruction, response = (needed(text_of(row, key), "empty_text", key) for key in ("instruction", "output"))
        given = text_of(row, "input", required=False)
        section = f"### Input:\n{given}\n\n" if given else ""
        return document(_ALPACA.format(instruction=instruction, given=section, response=response))

    return convert


@schema(
    "StackOverflowPythonPretrainHandler",
    gives=Sample,
    example={"title": "Sort a list", "question_body": "How do I sort a list?", "answer_body": "Call sorted."},
)
def stack_overflow_python_pretrain_handler() -> Convert:
    """ModelLink's handler: title, question and answer as one text. ModelLink's own writes nothing."""

    def convert(row: Mapping[str, Any]) -> Sample:
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

    def convert(row: Mapping[str, Any]) -> Sample:
        texts = []
        for number, message in enumerate(as_list(value_at(row, "conversations"), "conversations")):
            fields = as_mapping(message, f"conversations[{number}]")
            for key in ("from", "role"):
                fields.get(key)  # every message is part of the text, whoever speaks
            texts.append(text_of(fields, "value" if fields.get("value") is not None else "content"))
        return document(needed("".join(texts), "empty_text", "conversations"))

    return convert


@schema("R1AlpacaStyleInstructionHandler", gives=Prompt, example={"instruction": "What is 12 * 12?", "input": "", "output": "144"})
def r1_alpaca(*, map_keys: Mapping[str, str] | None = None, verifier: str = REFERENCE) -> Callable[[Mapping[str, Any]], Prompt]:
    """MindSpeed-LLM's handler: system, history and question of an Alpaca row, its output as the reference answer.

    Options:
        map_keys: columns for ``prompt``, ``query``, ``response``, ``history``, ``system``.
        verifier: what compares an answer with the reference; ``number`` where it is one plain number.
    """
    keys = {**_ALPACA_KEYS, "response_key": "output", **alpaca_keys(map_keys, ("response",))}
    answer_key = keys.pop("response_key")

    def convert(row: Mapping[str, Any]) -> Prompt:
        gold = needed(text_of(row, answer_key), "no_gold", answer_key)
        return Prompt(alpaca_prompt(row, **keys, join="\n", strip=False), _gold(gold, verifier), verifier, **offered(row))

    return convert


@schema("PPOAlpacaStyleInstructionHandler", gives=Prompt, example={"instruction": "Write a haiku.", "input": ""})
def ppo_alpaca(*, map_keys: Mapping[str, str] | None = None) -> Callable[[Mapping[str, Any]], Prompt]:
    """MindSpeed-LLM's handler of prompts that a reward model judges: system, history and question of an Alpaca row. Its answer is not read.

    Options:
        map_keys: columns for ``prompt``, ``query``, ``history``, ``system``.
    """
    keys = {**_ALPACA_KEYS, **alpaca_keys(map_keys, ())}

    def convert(row: Mapping[str, Any]) -> Prompt:
        return Prompt(alpaca_prompt(row, **keys, join="\n", strip=False), "", JUDGED, **offered(row))

    return convert


EXAMPLE = {"conversations": [{"from": "human", "value": "What is 12 * 12?"}, {"from": "gpt", "value": "144"}]}


@schema("R1SharegptStyleInstructionHandler", gives=Prompt, example=EXAMPLE)
def r1_sharegpt(*, map_keys: Mapping[str, Any] | None = None, verifier: str = REFERENCE) -> Callable[[Mapping[str, Any]], Prompt]:
    """MindSpeed-LLM's handler: a ShareGPT conversation up to its last answer, which is the reference answer.

    Options:
        map_keys: columns for ``messages``, ``system``, ``tools``, and under ``tags`` the names of the tags.
        verifier: what compares an answer with the reference; ``number`` where it is one plain number.
    """
    read = sharegpt(**sharegpt_options(map_keys, ()))

    def convert(row: Mapping[str, Any]) -> Prompt:
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
    """The problem (the text before the first ``` fence, stripped), answered with code, a line break and the explanation.

    Options:
        problem_key: field with the problem and, after a fence, its code.
        code_key: field with the code.
        explanation_key: field with the explanation.
    """

    def convert(row: Mapping[str, Any]) -> Sample:
        problem, code, explanation = texts_of(row, problem_key, code_key, explanation_key)
        user = needed(problem.partition("```")[0].strip(), "empty_prompt", problem_key)
        needed(code, "empty_answer", code_key)
        return Sample((turn(USER, user), turn(ASSISTANT, f"{code}\n{explanation}")))

    return convert
