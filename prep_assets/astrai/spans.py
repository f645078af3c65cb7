"""Tokens and masks of the house's own path (``--masking spans``): one render of the whole conversation, one tokenization, then spans.

Templates see the whole conversation and the special tokens' texts; only contents and the stop token of a trained turn are trained, never a
header; a control token that somebody typed into the content is plain text; a record in which nothing is trained is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from prep_assets.astrai.columns import Builder, Row, Tokens, nothing_there, text_at
from prep_assets.astrai.config import Section, Source
from prep_assets.astrai.task import Task
from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import Sample, Turn
from prep_assets.schemas.fields import needed, value_at
from prep_assets.schemas.sections import chat_turns, plain_text, plain_turn
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.load import load_template
from prep_assets.templates.rendering import Rendered, render
from prep_assets.templates.written import bind
from prep_assets.tokenization.encode import Encoder
from prep_assets.tokenization.engines import choose_engine
from prep_assets.tokenization.policy import MaskPolicy
from prep_assets.tokenization.vocabulary import Vocabulary


class SpansBuilder(Builder[Rendered]):
    """Records → tokens and masks by spans.

    Raises:
        ConfigError: a source with templated and plain sections: a conversation is rendered by the template or not at all.
    """

    def __init__(self, task: Task, vocabulary: Vocabulary, ignore: Sequence[str] = ()) -> None:
        super().__init__(task, ignore)
        for key, source in task.sources.items():
            if source.is_templated and not all(section.template for section in source.sections):
                raise ConfigError(
                    f"{key}: --masking spans renders a record once, so all its sections have template true, or none. See --masking astrai"
                )
        templated = any(source.is_templated for source in task.sources.values())
        # plain fields need no template; the completion among them ends with the end-of-text token
        self._template = load_template("tokenizer", vocabulary) if templated else ChatTemplate("none", "", vocabulary.special)
        vocabulary = bind(vocabulary, self._template)
        policy = MaskPolicy(task.pipeline.mask, task.pipeline.mask_default)
        self._encoder = Encoder(vocabulary, choose_engine(vocabulary), policy, trains=False)

    def sequence(self, source: Source, row: Mapping[str, Any]) -> Rendered:
        turns: list[Turn] = []
        for section in source.sections:
            if section.template:
                turns += chat_turns(value_at(row, section.field), section.field, section.action)
            elif (text := text_at(row, section.field)).strip():
                turns.append(plain_turn(text, section.action))
        if not turns:
            raise nothing_there(source, row)
        return render(Sample(tuple(turns)), self._template)

    def element(self, section: Section, value: object, where: str) -> Rendered:
        if section.template:
            turns = chat_turns(value, where, section.action)
        else:
            turns = (plain_turn(needed(plain_text(value, where), "empty_answer", where), section.action),)
        return render(Sample(turns), self._template)

    def encode(self, texts: Sequence[tuple[str, Rendered]]) -> list[Tokens | Refused]:
        encoded = self._encoder.encode([rendered for _, rendered in texts])
        results: dict[int, Tokens | Refused] = dict(encoded.refused)
        for i, position in enumerate(encoded.kept):
            part = slice(int(encoded.offsets[i]), int(encoded.offsets[i + 1]))
            results[int(position)] = _tokens(encoded.ids[part], encoded.loss[part])
        return [results[position] for position in range(len(texts))]

    def trained(self, row: Row) -> Row | Refused:
        """`row`, unless an output that could be trained has no trained token within ``max_seq_len``."""
        for key, source in self.task.sources.items():
            can_train = any(section.action in ("train", "$role") for section in source.sections)
            if can_train and not source.is_value and not row.cells[self.task.mask_key(key)].values.any():
                limit = self.task.pipeline.preprocessing.max_seq_len
                return Refused("nothing_to_train", f"{key!r} has no trained token among its first {limit:,}", stage="tokenize")
        return row


def _tokens(ids: Any, loss: Any) -> Tokens | Refused:
    fractional = loss[(loss != 0) & (loss != 1)]
    if len(fractional):
        return Refused("fractional_weight", f"a message has loss weight {fractional[0]:g}; AstrAI's mask knows 0 and 1", stage="tokenize")
    return Tokens(ids, loss.astype(np.uint8))
