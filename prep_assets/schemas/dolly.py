"""``dolly``: databricks-dolly-15k."""

from __future__ import annotations

from prep_assets.samples import Sample
from prep_assets.schemas.alpaca import JOIN, alpaca
from prep_assets.schemas.registry import Convert, schema

EXAMPLE = {
    "instruction": "When did Virgin Australia start operating?",
    "context": "Virgin Australia commenced services on 31 August 2000 as Virgin Blue.",
    "response": "On 31 August 2000.",
    "category": "closed_qa",
}


@schema("dolly", gives=Sample, example=EXAMPLE)
def dolly(
    *, instruction_key: str = "instruction", context_key: str | None = "context", response_key: str = "response", join: str = JOIN
) -> Convert:
    """An instruction, with its context after a blank line where it has one, and the response; all stripped.

    Options:
        instruction_key: field with the instruction.
        context_key: field with the context, which may be absent or blank; null where there is none.
        response_key: field with the response.
        join: what stands between instruction and context.
    """
    return alpaca(
        prompt_key=instruction_key, query_key=context_key, response_key=response_key, system_key=None, history_key=None, join=join
    )
