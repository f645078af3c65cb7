"""The public functions that are more than another name for something: see `prep_assets`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

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

    from prep_assets.stores.open import Store
    from prep_assets.text.template import ChatTemplate
    from prep_assets.text.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class RenderedChat(Rendered):
    """A rendered chat, and what it was rendered with, so that `encode` needs nothing else.

    Attributes:
        vocabulary, template: the tokenizer and the template.
    """

    vocabulary: Vocabulary = field(kw_only=True, repr=False)
    template: ChatTemplate = field(kw_only=True, repr=False)


@dataclass(frozen=True, slots=True)
class Tokens:
    """One chat as a trainer reads it.

    Attributes:
        ids: int64[T].
        loss_mask: float32[T]: the weight of each token in the loss; 0 where it is not trained.
    """

    ids: npt.NDArray[np.int64]
    loss_mask: npt.NDArray[np.float32]


def plan(workspace: Workspace, *assets: str, partition: str | None = None) -> list[Step]:
    """What `build` would do, in which order and why. Nothing is built."""
    return planned(workspace, stores_of(workspace, assets, partition))


def status(workspace: Workspace) -> dict[str, Status]:
    """What every store is at this moment, by name: ``sft_packed``, ``sft_tokens[gsm8k]``."""
    look = Statuses(workspace)
    every = [(asset, each) for asset in assets_of(workspace).values() for each in asset.partitions(workspace)]
    look.ahead(every)
    return {workspace.place(asset.name, each).label: look.at(asset, each) for asset, each in every}


def verify(workspace: Workspace, *assets: str, partition: str | None = None) -> dict[str, dict[str, Verdict]]:
    """Run every check of published stores once more: by store and by check, what it says. It is remembered, as `prep-assets verify` does."""
    from prep_assets.engine.events import Checked
    from prep_assets.engine.execute import check

    found: dict[str, dict[str, Verdict]] = {}
    for asset, each in stores_of(workspace, assets, partition):
        step = Step(asset, each, "current", "", requested=True)
        found[step.label] = {event.check: event.verdict for event in check(workspace, step) if isinstance(event, Checked)}
    return found


def load(path: Path | str, format: Any = None, keys: Sequence[str] | None = None) -> Store:
    """Open a store, or a folder of files in a known format: arrays by key, records, windows. See `prep_assets.stores.open.open_store`."""
    from prep_assets.stores.open import open_store

    return open_store(path, format, keys)


def render(
    messages: Sequence[Mapping[str, Any]],
    *,
    tokenizer: Path | str,
    template: str = "tokenizer",
    tools: Sequence[Mapping[str, Any]] = (),
    revision: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> RenderedChat:
    """One chat as text, with the place of every part of it.

    Args:
        messages: ``{"role": …, "content": …}``, with reasoning and tool calls in the usual fields.
        tokenizer: a folder, or a hub id with its commit in `revision`.
        template: ``tokenizer`` for its own chat template, the name of a shipped one, or the path of a ``.jinja`` file.
        options: further variables of the template.

    Raises:
        TemplateError: no such template, or one whose render does not show where the parts are.
        Refused: messages that cannot be rendered, with the reason.
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
    found = rendered(sample, bound)
    return RenderedChat(**{each.name: getattr(found, each.name) for each in fields(found)}, vocabulary=vocabulary, template=bound)


def encode(
    rendered: RenderedChat,
    *,
    mask: Mapping[str, Literal["train", "mask"]] | None = None,
    train_on_eos: Literal["turn", "last", "all", "none"] = "turn",
    max_seq_len: int | None = None,
) -> Tokens:
    """What `render` gives as token ids and loss mask, by the same tokenizer and template; the tokens that the template writes are control tokens.

    Args:
        mask: role → ``train`` or ``mask``; the assistant is trained where it is left out.
        train_on_eos: which stop tokens are trained: ``turn``, ``last``, ``all`` or ``none``.
        max_seq_len: a longer chat is refused.

    Raises:
        Refused: the reason why the chat cannot be used.
    """
    import numpy as np

    from prep_assets.text.encode import Encoder
    from prep_assets.text.engines import choose_engine
    from prep_assets.text.spans import MaskPolicy
    from prep_assets.text.template import bind

    vocabulary = bind(rendered.vocabulary, rendered.template)
    policy = MaskPolicy(mask, train_on_eos=train_on_eos) if mask else MaskPolicy(train_on_eos=train_on_eos)
    encoded = Encoder(vocabulary, choose_engine(vocabulary, reference_only=True), policy, max_seq_len).encode([rendered])
    for _, refusal in encoded.refused:
        raise refusal
    return Tokens(encoded.ids.astype(np.int64), encoded.loss)


@bounded_cache("tokenizers of functions", 4)
def _vocabulary(tokenizer: str, revision: str | None) -> Vocabulary:
    from prep_assets.text.vocabulary import load_vocabulary

    return load_vocabulary(tokenizer, base=Path.cwd(), revision=revision)
