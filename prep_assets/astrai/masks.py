"""Tokens and masks: as AstrAI makes them (``--masking astrai``), and by the way of this package (``--masking spans``).

AstrAI: a chat is one beginning-of-text token, never trained, and then each message **rendered alone** and encoded alone; the whole rendered message,
its header included, has the mask of its role. An instruction is two fields encoded one after the other, a text one:

    chat          <bos> [system span] [user span] [assistant span] …       mask 0 | by role
    instruction   encode(prompt, with special tokens) encode(response)     mask of prompt | mask of response
    text          encode(text, with special tokens)                        no mask

Source of the algorithm: AstrAI's preprocessing documentation, "Mask Algorithm".

Spans: one render of the whole conversation, one tokenization. Templates see the whole conversation and the texts of the special tokens; only contents
and the stop token of a trained turn are trained, never a header; a control token that somebody typed into the content is plain text; a record in
which nothing is trained is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prep_assets.astrai.columns import Builder, Row, Tokens, messages_at, nothing_there, require_length
from prep_assets.astrai.config import Section, Source
from prep_assets.astrai.task import Task
from prep_assets.errors import ConfigError, Refused, TemplateError
from prep_assets.samples import Sample, Turn
from prep_assets.schemas.fields import as_text, needed, value_at
from prep_assets.schemas.sections import chat_turns, plain_text, plain_turn
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.load import load_template
from prep_assets.templates.rendering import Rendered, render
from prep_assets.templates.written import bind
from prep_assets.tokenization.encode import Encoder
from prep_assets.tokenization.engines import choose_engine
from prep_assets.tokenization.policy import MaskPolicy
from prep_assets.tokenization.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class _Piece:
    """Text that is encoded on its own: with special tokens or without, trained or not."""

    text: str
    special: bool
    train: bool


class AstraiBuilder(Builder[list[_Piece]]):
    """Records → tokens and masks as AstrAI's documentation describes them. Pieces are encoded one by one and joined."""

    def __init__(self, task: Task, vocabulary: Vocabulary, ignore: Sequence[str] = ()) -> None:
        super().__init__(task, ignore)
        self._backend = vocabulary.encoder
        self._template = MessageTemplate(vocabulary) if any(source.is_templated for source in task.sources.values()) else None
        bos = vocabulary.special.get("bos_token")
        self._bos = [] if bos is None else [vocabulary.backend.token_to_id(bos)]

    def sequence(self, source: Source, row: Mapping[str, Any]) -> list[_Piece]:
        pieces: list[_Piece] = []
        for section in source.sections:
            if section.template:
                pieces += self._messages(row.get(section.field), section, section.field)
            else:
                pieces += self._text(row, section, first=not pieces)
        if not any(piece.text.strip() for piece in pieces):
            raise nothing_there(source, row)
        if self.task.is_text:
            require_length(self.task, [piece.text for piece in pieces])
        return pieces

    def element(self, section: Section, value: object, where: str) -> list[_Piece]:
        """A sequence of its own, without special tokens."""
        if section.template:
            return self._messages(value, section, where)
        return [_Piece(needed(plain_text(value, where), "empty_answer", where), False, section.action == "train")]

    def _messages(self, value: object, section: Section, where: str) -> list[_Piece]:
        assert self._template is not None
        render, trains = self._template.render, self.task.trains
        return [_Piece(render(message), False, trains(section.action, message["role"])) for message in messages_at(value, where)]

    def _text(self, row: Mapping[str, Any], section: Section, *, first: bool) -> list[_Piece]:
        must_be_string = self.task.typed and self.task.is_text
        text = as_text(value_at(row, section.field), section.field) if must_be_string else plain_text(row.get(section.field), section.field)
        if not text.strip() and not self.task.typed:
            return []
        special = first if section.add_special_tokens is None else section.add_special_tokens
        return [_Piece(text, special, section.action == "train")]

    def encode(self, texts: Sequence[tuple[str, list[_Piece]]]) -> list[Tokens | Refused]:
        encoded: dict[tuple[str, bool], list[int]] = {}
        for special in (False, True):
            alone = list(dict.fromkeys(piece.text for _, pieces in texts for piece in pieces if piece.special is special))
            found = self._backend.encode_batch_fast(alone, add_special_tokens=special)
            encoded.update({(text, special): encoding.ids for text, encoding in zip(alone, found, strict=True)})
        return [self._tokens(key, pieces, encoded) for key, pieces in texts]

    def _tokens(self, key: str, pieces: list[_Piece], encoded: Mapping[tuple[str, bool], list[int]]) -> Tokens | Refused:
        source = self.task.sources[key]
        begins = source.is_templated and not source.list_field
        ids = list(self._bos) if begins else []
        mask = [0] * len(ids)
        for piece in pieces:
            found = encoded[piece.text, piece.special]
            ids += found
            mask += [int(piece.train)] * len(found)
        shortest = 2 if begins else 1
        if len(ids) < shortest:
            return Refused("empty", f"{key!r} comes to {len(ids)} tokens, at least {shortest} are needed", stage="tokenize")
        return Tokens(np.array(ids, np.uint32), np.array(mask, np.uint8))


class MessageTemplate:
    """A tokenizer's chat template, for one message at a time, in a sandbox.

    AstrAI compiles templates with plain ``jinja2.Template``: without ``trim_blocks`` and ``lstrip_blocks``, which transformers sets, and with
    no variables but ``messages`` and ``add_generation_prompt``; ``bos_token`` and ``eos_token`` are undefined and come out empty. So one
    template can render otherwise there than in transformers, and here it renders as it does in AstrAI.

    Raises:
        TemplateError: the tokenizer has none, or it is not valid Jinja.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        from jinja2 import TemplateSyntaxError

        if vocabulary.chat_template is None:
            raise TemplateError(f"tokenizer {vocabulary.name} has no chat_template in its tokenizer_config.json; chats need one")
        try:
            self._template = _environment().from_string(vocabulary.chat_template)
        except TemplateSyntaxError as error:
            raise TemplateError(f"the chat template of {vocabulary.name}, line {error.lineno}: {error.message}") from error

    def render(self, message: Mapping[str, Any]) -> str:
        """The text of a conversation of this message alone, without a generation prompt.

        Raises:
            Refused: the template fails on it, or says no.
        """
        from jinja2 import TemplateError as JinjaError

        try:
            return str(self._template.render(messages=[message], add_generation_prompt=False))
        except (JinjaError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise Refused("template_refuses", f"a {message.get('role')} message alone: {error}", stage="render") from error


def _environment() -> Any:
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Transformers' ``{% generation %}``, which marks answers and prints nothing."""

        tags = {"generation"}  # noqa: RUF012  (jinja reads it from the class)

        def parse(self, parser: Any) -> list[nodes.Node]:
            next(parser.stream)
            body: list[nodes.Node] = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return body

    return ImmutableSandboxedEnvironment(extensions=[Generation])


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
            elif (text := plain_text(row.get(section.field), section.field)).strip():
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
