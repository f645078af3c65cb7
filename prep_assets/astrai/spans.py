"""Tokens and masks of the house's own path (``--masking spans``): one render of the whole conversation, one tokenization, then spans.

Templates see the whole conversation and the special tokens' texts; only contents and the stop token of a trained turn are trained, never a
header; a control token that somebody typed into the content is plain text; a record in which nothing is trained is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.astrai.columns import Row, Tokens, row_of
from prep_assets.astrai.config import Section, Source
from prep_assets.astrai.fields import as_plain_text, nothing_there, require_equal_groups, text_at, values_at
from prep_assets.astrai.task import Task
from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import COMPLETION, PROMPT, TEXT, Region, Sample, Turn
from prep_assets.schemas.chat import ChatFormat
from prep_assets.schemas.fields import as_list, needed, value_at
from prep_assets.schemas.images import no_images
from prep_assets.templates.chat_template import ChatTemplate, load_template
from prep_assets.templates.rendering import Rendered, render
from prep_assets.templates.written import bind
from prep_assets.tokenization.encode import Encoder
from prep_assets.tokenization.engines import choose_engine
from prep_assets.tokenization.policy import MaskPolicy
from prep_assets.tokenization.vocabulary import Vocabulary

_WEIGHTS = {"train": 1.0, "mask": 0.0, "$role": None}
_Plan = dict[str, list[Rendered] | npt.NDArray[np.float32]]


class SpansBuilder:
    """Records → tokens and masks by spans.

    Raises:
        ConfigError: a source with templated and plain sections: a conversation is rendered by the template or not at all.
    """

    def __init__(self, task: Task, vocabulary: Vocabulary) -> None:
        for key, source in task.sources.items():
            if source.is_templated and not all(section.template for section in source.sections):
                raise ConfigError(
                    f"{key}: --masking spans renders a record once, so all its sections have template true, or none. See --masking astrai"
                )
        self._task = task
        templated = any(source.is_templated for source in task.sources.values())
        # plain fields need no template; the completion among them ends with the end-of-text token
        self._template = load_template("tokenizer", vocabulary) if templated else ChatTemplate("none", "", vocabulary.special)
        vocabulary = bind(vocabulary, self._template)
        pipeline = task.pipeline
        policy = MaskPolicy(pipeline.mask, pipeline.mask_default)
        self._encoder = Encoder(vocabulary, choose_engine(vocabulary), policy, trains=False)

    def build(self, payloads: Sequence[Mapping[str, Any]]) -> list[Row | Refused]:
        """Tokenize a batch; see `Builder.build`."""
        plans = [self._plan_or_refusal(payload) for payload in payloads]
        rendered = [one for plan in plans if isinstance(plan, dict) for part in plan.values() if isinstance(part, list) for one in part]
        encoded = iter(self._encode(rendered))
        return [self._assemble(plan, encoded) if isinstance(plan, dict) else plan for plan in plans]

    def _plan_or_refusal(self, row: Mapping[str, Any]) -> _Plan | Refused:
        try:
            require_equal_groups(self._task, row)
            return {key: self._output(source, row) for key, source in self._task.sources.items()}
        except Refused as refusal:
            refusal.stage = refusal.stage or "schema"
            return refusal

    def _output(self, source: Source, row: Mapping[str, Any]) -> list[Rendered] | npt.NDArray[np.float32]:
        section = source.sections[0]
        if source.is_value:
            return values_at(row, section.field)
        if source.list_field:
            elements = as_list(value_at(row, section.field), section.field)
            return [self._render(self._element(section, element, f"{section.field}[{i}]")) for i, element in enumerate(elements)]
        turns = [turn for section in source.sections for turn in self._section(section, row)]
        if not turns:
            raise nothing_there(source, row)
        return [self._render(turns)]

    def _section(self, section: Section, row: Mapping[str, Any]) -> list[Turn]:
        if not section.template:
            text = text_at(row, section.field)
            return [_plain(section, text)] if text.strip() else []
        return _chat(section, value_at(row, section.field), section.field)

    @staticmethod
    def _element(section: Section, value: object, where: str) -> list[Turn]:
        if section.template:
            return _chat(section, value, where)
        return [_plain(section, needed(as_plain_text(value, where), "empty_answer", where))]

    def _render(self, turns: Sequence[Turn]) -> Rendered:
        return render(Sample(tuple(turns)), self._template)

    def _encode(self, rendered: Sequence[Rendered]) -> list[Tokens | Refused]:
        encoded = self._encoder.encode(rendered)
        results: list[Tokens | Refused | None] = [None] * len(rendered)
        for position, refusal in encoded.refused:
            results[position] = refusal
        for i, position in enumerate(encoded.kept):
            part = slice(int(encoded.offsets[i]), int(encoded.offsets[i + 1]))
            loss = encoded.loss[part]
            fractional = loss[(loss != 0) & (loss != 1)]
            results[int(position)] = (
                Refused("fractional_weight", f"a message has loss weight {fractional[0]:g}; AstrAI's mask knows 0 and 1", stage="tokenize")
                if len(fractional)
                else Tokens(encoded.ids[part], loss.astype(np.uint8))
            )
        return [result for result in results if result is not None]

    def _assemble(self, plan: _Plan, encoded: Any) -> Row | Refused:
        outputs: dict[str, Tokens | list[Tokens] | npt.NDArray[np.float32]] = {}
        refusal: Refused | None = None
        for key, planned in plan.items():
            if isinstance(planned, np.ndarray):
                outputs[key] = planned
                continue
            # every result is taken from the iterator, also after a refusal: the next record's follow
            results = [next(encoded) for _ in planned]
            refusal = refusal or next((result for result in results if isinstance(result, Refused)), None)
            outputs[key] = results if self._task.sources[key].list_field else results[0]
        return refusal or self._trained(row_of(self._task, outputs))

    def _trained(self, row: Row) -> Row | Refused:
        """`row`, unless an output that could be trained has no trained token within ``max_seq_len``."""
        for key, source in self._task.sources.items():
            can_train = any(section.action in ("train", "$role") for section in source.sections)
            if can_train and not source.is_value and not row.cells[self._task.mask_key(key)].values.any():
                limit = self._task.pipeline.preprocessing.max_seq_len
                return Refused("nothing_to_train", f"{key!r} has no trained token among its first {limit:,}", stage="tokenize")
        return row


def _chat(section: Section, value: object, where: str) -> list[Turn]:
    weight = _WEIGHTS[section.action]
    turns = ChatFormat().turns(value, where, no_images())
    if weight is None:
        return list(turns)
    return [Turn(t.role, tuple(Region(r.kind, r.text, weight) for r in t.regions), t.name, t.tool_call_id) for t in turns]


def _plain(section: Section, text: str) -> Turn:
    return Turn(PROMPT if section.action == "mask" else COMPLETION, (Region(TEXT, text, _WEIGHTS[section.action]),))
