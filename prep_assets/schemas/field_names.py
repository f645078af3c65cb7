"""Names of fields whose meaning is known wherever they stand."""

from __future__ import annotations

NEUTRAL = frozenset(
    {
        *("id", "_id", "idx", "index", "uid", "uuid", "guid", "__index_level_0__"),
        *("prompt_id", "question_id", "conversation_id", "example_id", "sample_id", "record_id", "row_id", "doc_id"),
        *("source", "dataset", "dataset_name", "url", "uri", "language", "lang", "licence", "license"),
        *("timestamp", "date", "created", "created_at", "updated_at", "split", "subset", "meta", "metadata"),
        *("hash", "md5", "sha1", "sha256"),
    }
)
"""They say where a row comes from and nothing that a model reads. Passed over and counted, in lower or upper case, at every level."""

MEDIA = ("images", "image", "videos", "video", "audios", "audio")
"""Columns of media. Without them a text is another text."""

REASONING = ("reasoning_content", "reasoning", "thinking", "thought", "tool_plan", "Complex_CoT")
"""Spellings of an assistant's reasoning, one text each. OpenRouter's ``reasoning_details`` is an array of parts."""

CALLS = ("tool_calls", "function_call", "function_calls")
"""Spellings of an assistant's tool calls."""

TOOLS = ("tools", "functions", "available_tools")
"""Columns with the tools on offer."""

TEMPLATE_OPTIONS = "chat_template_kwargs"
DOCUMENTS = "documents"
SYSTEM_PROMPT = "system"
LABELS = ("label", "kto_tag")
"""Columns that say whether an answer is a good one."""

WEIGHTS = ("loss_weight", "weight", "loss_mask")
FLAGS = ("train", "training", "loss")
"""Fields that say how much a row, a message or a part is trained: numbers, and true or false."""

DECISIVE = frozenset(
    {
        *(*MEDIA, *REASONING, "reasoning_details", *CALLS, *TOOLS, TEMPLATE_OPTIONS, DOCUMENTS, SYSTEM_PROMPT, *LABELS, *WEIGHTS, *FLAGS),
        *("history", "input", "context", "margin", "refusal", "prefix"),
    }
)
"""They decide what is trained, or are part of what an answer answers. A row is refused where its schema cannot carry one of them."""
