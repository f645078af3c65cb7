"""Columns of stores, as the web UI shows them: name, type, description."""

SOURCES = (
    ("name", "string", "Path within the domain, the same on every machine."),
    ("size", "int64", "Bytes as stored."),
    ("sha256", "string", "Content hash."),
    ("rows", "int64", "Rows, readable or not."),
)
TOKENS = (("tokens", "int32[T]", "Token ids of all records, end to end."),)
MASKED_TOKENS = (*TOKENS, ("loss_mask", "uint8[T]", "Loss weight of each token: 1 is trained, 0 is not."))
PACKED = (
    ("tokens", "int32[N, row_len]", "Token ids; padding at the end of a row."),
    ("loss_mask", "int8[N, row_len]", "1 where a token is trained."),
    ("documents", "table", "row, row_offset, length, source, record, start of each piece of a document."),
)
PAIRS = (
    ("prompt", "string", "What both answers reply to."),
    ("chosen", "string", "The preferred answer."),
    ("rejected", "string", "The other answer."),
)
CONTRASTS = (
    ("query", "string", "What is asked."),
    ("positives", "list of string", "Texts that belong to it."),
    ("negatives", "list of string", "Texts that do not."),
)
PROMPTS = (("prompt", "string", "The question."), ("gold", "float64", "The right answer."))
GROUPS = (
    ("prompts", "int32[P]", "Token ids of the prompt, ended by the generation prompt."),
    ("responses", "list of int32[R]", "Token ids of each response."),
    ("masks", "list of uint8[R]", "1 where a token of a response is trained."),
    ("rewards", "float32[G]", "The reward of each response."),
)
