"""ModelLink's handlers that make pretraining text of instruction rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prep_assets.samples import Sample, document
from prep_assets.schemas.fields import as_list, as_mapping, needed, text_of, value_at
from prep_assets.schemas.registry import Convert, schema

_ALPACA = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the "
    "user's questions.USER: Below is an instruction that describes a task. Write a response that appropriately completes the request."
    "\n\n### Instruction:\n{instruction}\n\n{given}### Response: ASSISTANT: {response}"
)
_STACK_OVERFLOW = "In python, {title}\n### Question:\n{question}\n### Response:\n{answer}\n"


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
