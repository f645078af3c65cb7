"""Column schemas, as the web UI shows them."""

from __future__ import annotations

import dagster as dg


def column(name: str, kind: str, description: str) -> dg.TableColumn:
    """One column of a table."""
    return dg.TableColumn(name, kind, description=description)


SOURCES = (
    column("name", "string", "Path within the domain, the same on every machine."),
    column("size", "int64", "Bytes as stored."),
    column("sha256", "string", "Content hash."),
    column("rows", "int64", "Rows, readable or not."),
)
TOKENS = (column("tokens", "int32[T]", "Token ids of all records, end to end."),)
MASKED_TOKENS = (*TOKENS, column("loss_mask", "uint8[T]", "Loss weight of each token: 1 is trained, 0 is not."))
PACKED = (
    column("tokens", "int32[N, row_len]", "Token ids; padding at the end of a row."),
    column("loss_mask", "int8[N, row_len]", "1 where a token is trained."),
    column("documents", "table", "row, row_offset, length, source, record, start of each piece of a document."),
)
PAIRS = (
    column("prompt", "string", "What both answers reply to."),
    column("chosen", "string", "The preferred answer."),
    column("rejected", "string", "The other answer."),
)
PROMPTS = (column("prompt", "string", "The question."), column("gold", "float64", "The right answer."))
GROUPS = (
    column("prompts", "int32[P]", "Token ids of the prompt, ended by the generation prompt."),
    column("responses", "list of int32[R]", "Token ids of each response."),
    column("masks", "list of uint8[R]", "1 where a token of a response is trained."),
    column("rewards", "float32[G]", "The reward of each response."),
)
