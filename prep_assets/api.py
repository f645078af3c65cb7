"""Public functions that combine several modules; `prep_assets` exports them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from prep_assets.caches import bounded_cache
from prep_assets.engine.execute import stores_of
from prep_assets.engine.plan import Step
from prep_assets.engine.plan import plan as planned
from prep_assets.engine.status import Status, Statuses
from prep_assets.graph.graph import assets_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.text.spans import Rendered

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from prep_assets.text.template import ChatTemplate
    from prep_assets.text.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class RenderedChat(Rendered):
    """A rendered chat with its tokenizer and template, as `encode` takes it.

    Attributes:
        vocabulary, template: the tokenizer and the chat template.
    """

    vocabulary: Vocabulary = field(kw_only=True, repr=False)
    template: ChatTemplate = field(kw_only=True, repr=False)


class Tokens(Struct, frozen=True):
    """One chat as a trainer reads it.

    Attributes:
        ids: int64[T].
        loss_mask: float32[T]: loss weights; 0 where a token is not trained.
    """

    ids: npt.NDArray[np.int64]
    loss_mask: npt.NDArray[np.float32]


def plan(workspace: Workspace, *assets: str, partition: str | None = None) -> list[Step]:
    """The steps that `build` would take, in order and with reasons. Nothing is built."""
    return planned(workspace, stores_of(workspace, assets, partition))


def status(workspace: Workspace) -> dict[str, Status]:
    """Label of a store → its status: ``sft_packed``, ``sft_tokens[gsm8k]``."""
    statuses = Statuses(workspace)
    stores = [(asset, partition) for asset in assets_of(workspace).values() for partition in asset.partitions(workspace)]
    statuses.ahead(stores)
    return {workspace.place(asset.name, partition).label: statuses.at(asset, partition) for asset, partition in stores}


def verify(workspace: Workspace, *assets: str, partition: str | None = None) -> dict[str, dict[str, Verdict]]:
    """Run every check of published stores again, and record the verdicts: label of a store → check → verdict."""
    from prep_assets.engine.events import Checked
    from prep_assets.engine.execute import check

    verdicts: dict[str, dict[str, Verdict]] = {}
    for asset, key in stores_of(workspace, assets, partition):
        step = Step(asset, key, "current", "", requested=True)
        verdicts[step.label] = {event.check: event.verdict for event in check(workspace, step) if isinstance(event, Checked)}
    return verdicts


def render(
    messages: Sequence[Mapping[str, Any]],
    *,
    tokenizer: Path | str,
    template: str = "tokenizer",
    tools: Sequence[Mapping[str, Any]] = (),
    revision: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> RenderedChat:
    """Render one chat as text, with the span of every part.

    Args:
        messages: ``{"role": …, "content": …}``, with reasoning and tool calls in the usual fields.
        tokenizer: a folder, or a hub id with its commit in `revision`.
        template: ``tokenizer`` for its own chat template, the name of a shipped one, or the path of a ``.jinja`` file.
        options: further variables of the template.

    Raises:
        TemplateError: no such template, or one whose render does not show where parts are.
        Refused: the messages cannot be rendered, with the reason.
    """
    from prep_assets.samples import Sample
    from prep_assets.schemas.reader import apply
    from prep_assets.schemas.registry import convert_with
    from prep_assets.text.load_template import load_template
    from prep_assets.text.render import render as rendered

    row = {"messages": list(messages), **({"tools": list(tools)} if tools else {})}
    sample = apply(convert_with("messages", gives=Sample), row)
    assert isinstance(sample, Sample)
    vocabulary = _vocabulary(str(tokenizer), revision)
    bound = load_template(template, vocabulary, base=Path.cwd(), options=dict(options or {}))
    chat = rendered(sample, bound)
    return RenderedChat(
        **{attribute.name: getattr(chat, attribute.name) for attribute in fields(chat)}, vocabulary=vocabulary, template=bound
    )


def encode(
    rendered: RenderedChat,
    *,
    mask: Mapping[str, Literal["train", "mask"]] | None = None,
    train_on_eos: Literal["turn", "last", "all", "none"] = "turn",
    max_seq_len: int | None = None,
) -> Tokens:
    """Encode a rendered chat as token ids and loss mask; tokens that the template writes are control tokens.

    Args:
        mask: role → ``train`` or ``mask``; by default only the assistant is trained.
        train_on_eos: which stop tokens are trained: ``turn``, ``last``, ``all`` or ``none``.
        max_seq_len: tokens above which a chat is rejected.

    Raises:
        Refused: the chat is rejected, with the reason.
    """
    import numpy as np

    from prep_assets.config.mask import MaskPolicy
    from prep_assets.text.encode import Encoder
    from prep_assets.text.engines import choose_engine
    from prep_assets.text.template import bind

    vocabulary = bind(rendered.vocabulary, rendered.template)
    policy = MaskPolicy(mask=dict(mask), train_on_eos=train_on_eos) if mask else MaskPolicy(train_on_eos=train_on_eos)
    encoded = Encoder(vocabulary, choose_engine(vocabulary, reference_only=True), policy, max_seq_len).encode([rendered])
    for _, rejection in encoded.refused:
        raise rejection
    return Tokens(encoded.ids.astype(np.int64), encoded.loss)


@bounded_cache("tokenizers of functions", 4)
def _vocabulary(tokenizer: str, revision: str | None) -> Vocabulary:
    from prep_assets.text.vocabulary import load_vocabulary

    return load_vocabulary(tokenizer, base=Path.cwd(), revision=revision)
