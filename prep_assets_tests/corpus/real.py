"""What is known of real data sets by hand."""

from __future__ import annotations

MOSS_COLUMNS = ("num_turns", "category")


MOSS_PLUGINS = ("chat.*.Inner Thoughts", "chat.*.Commands", "chat.*.Tool Responses")


MOSS_WITHOUT_PLUGINS = (*MOSS_COLUMNS, "meta_instruction", *MOSS_PLUGINS)
"""What the schema `moss` leaves out of the published rows with its default options."""
