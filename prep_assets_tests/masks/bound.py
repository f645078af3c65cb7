"""Templates bound to tokenizers, and the whole way from samples to proven masks, as the pipeline goes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.config.family import REASONING_TAGS
from prep_assets.config.mask import MaskPolicy
from prep_assets.data.files import SourceFile
from prep_assets.pipeline.conversations import Conversations
from prep_assets.pipeline.examples import Item
from prep_assets.pipeline.media import RecordFiles
from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.proofs.mask import UNWEIGHED, Conversation, Left, prove_identity, prove_masks
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import Record, Sample
from prep_assets.text.certify import certify, policy_faults
from prep_assets.text.conversation import SpecialInContent, control_pattern, treat
from prep_assets.text.encode import Encoded, Encoder
from prep_assets.text.engines import Engines, choose_engine
from prep_assets.text.load_template import load_template
from prep_assets.text.render import InlineReasoning
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import Vocabulary, load_vocabulary

SHIPPED = Path(__file__).resolve().parents[2] / "configs" / "tokenizer"

IM = ("<|im_start|>", "<|im_end|>")
CONTROL: Mapping[str, tuple[str, ...]] = {
    "alpaca": (),
    "chatml": IM,
    "deepseek-r1": ("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>"),
    "default": (),
    "gemma": ("<bos>", "<start_of_turn>", "<end_of_turn>"),
    "glm4": ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>"),
    "llama2": ("<s>", "</s>"),
    "llama3": ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "mistral": (
        *("<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]"),
        *("[/TOOL_RESULTS]",),
    ),
    "phi": ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
    "plain": (),
    "qwen": IM,
    "qwen3": IM,
    "vicuna": ("<s>", "</s>"),
}
"""The control tokens that each named template writes itself, besides the tokenizer's begin- and end-of-text tokens."""


@dataclass(frozen=True)
class Bound:
    """A template with a tokenizer that has its control tokens."""

    vocabulary: Vocabulary
    engines: Engines
    template: ChatTemplate


@cache
def _opened(directory: Path) -> tuple[Vocabulary, Engines]:
    vocabulary = load_vocabulary(str(directory))
    return vocabulary, choose_engine(vocabulary)


@cache
def bind(directory: Path, template: str) -> Bound:
    """The tokenizer in `directory`, given the control tokens of a named template. Ordinary text is not touched by them, so the engines stay."""
    from tokenizers import Tokenizer

    opened, engines = _opened(directory)
    backend = Tokenizer.from_str(opened.backend.to_str())
    backend.add_special_tokens(list(CONTROL[template]))
    vocabulary = Vocabulary(f"{directory.name} for {template}", backend, opened.special, None)
    return Bound(vocabulary, engines, load_template(template, vocabulary))


def bind_source(source: str, *, directory: Path = SHIPPED, added: Sequence[str] = (), **options: Any) -> Bound:
    """A template of a test's own with the tokenizer in `directory`, to which control tokens are `added`."""
    from tokenizers import Tokenizer

    vocabulary, engines = _opened(directory)
    if added:
        backend = Tokenizer.from_str(vocabulary.backend.to_str())
        backend.add_special_tokens(list(added))
        vocabulary = Vocabulary(f"{directory.name} with {len(added)} tokens", backend, vocabulary.special, None)
    return Bound(vocabulary, engines, ChatTemplate("own", source, vocabulary.special, options, tuple(sorted(vocabulary.control))))


@dataclass
class Refusals:
    """What a quarantine is to the pipeline: where refused records go."""

    of: dict[int, tuple[str, str]] = field(default_factory=dict)

    def add(self, id: str, stage: str, reason: str, detail: str, payload: Any, *, length: int | None = None) -> None:
        self.of[int(id.rpartition(":")[2]) - 1] = (reason, detail)


@dataclass(frozen=True)
class Outcome:
    """What became of samples.

    Attributes:
        kept: positions of the samples that are in `encoded`.
        refused: reason and detail of every other one, by position.
        control_tokens: how many control tokens were counted in contents.
        left_out: how many turns lost their reasoning.
    """

    kept: list[int]
    encoded: Encoded
    refused: Mapping[int, tuple[str, str]]
    control_tokens: int
    left_out: int

    @property
    def reasons(self) -> Counter[str]:
        return Counter(reason for reason, _ in self.refused.values())

    def ids(self, at: int) -> npt.NDArray[np.uint32]:
        return self.encoded.ids[self.encoded.offsets[at] : self.encoded.offsets[at + 1]]

    def loss(self, at: int) -> npt.NDArray[np.float32]:
        return self.encoded.loss[self.encoded.offsets[at] : self.encoded.offsets[at + 1]]


_FILE = SourceFile("made", "made", 0, "jsonl", None)


def run(
    bound: Bound,
    samples: Sequence[Sample],
    options: MaskOptions | None = None,
    special_in_content: SpecialInContent = "text",
    **limits: Any,
) -> Outcome:
    """Samples through the pipeline's own `Conversations`. Every sample is kept or refused, none both."""
    refusals = Refusals()
    encoder = Encoder(bound.vocabulary, bound.engines, policy_of(options or MaskOptions()), **limits)
    as_it_is = InlineReasoning("inline", REASONING_TAGS, shown=False)
    conversations = Conversations(bound.template, encoder, as_it_is, special_in_content, RecordFiles(None, None), refusals)  # type: ignore[arg-type]
    items = [Item(_FILE, Record(0, row, {}), sample) for row, sample in enumerate(samples)]
    kept, encoded = conversations.encode(items)
    positions = [item.record.row for item in kept]
    assert sorted([*positions, *refusals.of]) == list(range(len(samples)))
    assert len(encoded.offsets) == len(positions) + 1
    return Outcome(positions, encoded, refusals.of, conversations.control_tokens, conversations.reasoning_left_out)


def policy_of(options: MaskOptions) -> MaskPolicy:
    """The policy that carries out the options of a configuration."""
    return MaskPolicy(**asdict(options))


def prove(
    bound: Bound,
    samples: Sequence[Sample],
    outcome: Outcome,
    options: MaskOptions | None = None,
    special_in_content: SpecialInContent = "text",
) -> tuple[Verdict, Verdict]:
    """Both proofs over all kept rows, the mask's and that of the tokens' identity."""
    pattern = control_pattern(bound.vocabulary.control) if special_in_content == "strip" else None
    sources = [treat(samples[position], pattern, "strip")[0] for position in outcome.kept]
    rows = [
        Conversation(
            str(position),
            outcome.ids(at),
            outcome.loss(at),
            Left(derived := derive(source, options or MaskOptions(), bound.template), derived.expected),
        )
        for at, (position, source) in enumerate(zip(outcome.kept, sources, strict=True))
    ]
    fresh = [derive(source, MaskOptions(), bound.template, typed_controls=special_in_content == "allow") for source in sources]
    renders = [Conversation(row.id, row.ids, UNWEIGHED, Left(each, ())) for row, each in zip(rows, fresh, strict=True)]
    return prove_masks(rows, bound.vocabulary), prove_identity(renders, bound.vocabulary)


def assert_proven(
    bound: Bound, samples: Sequence[Sample], options: MaskOptions | None = None, special_in_content: SpecialInContent = "text"
) -> Outcome:
    """Run and prove; what was kept."""
    outcome = run(bound, samples, options, special_in_content)
    for verdict in prove(bound, samples, outcome, options, special_in_content):
        assert verdict.passed, verdict.summary
    return outcome


def trained(bound: Bound, outcome: Outcome, at: int = 0) -> list[str]:
    """The trained stretches of a kept row, decoded."""
    mask = outcome.loss(at) != 0
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0))
    ids = outcome.ids(at)
    return [bound.vocabulary.decode(ids[start:end]) for start, end in zip(edges[::2], edges[1::2], strict=True)]


def written(bound: Bound, outcome: Outcome, at: int = 0) -> str:
    """The text of a kept row, with its trained stretches in ⟦brackets⟧ and ⏎ for line breaks."""
    mask, ids = outcome.loss(at) != 0, outcome.ids(at)
    edges = [0, *(np.flatnonzero(np.diff(mask)) + 1).tolist(), len(mask)]
    parts = [(bound.vocabulary.decode(ids[start:end]), mask[start]) for start, end in pairwise(edges)]
    return "".join(f"⟦{text}⟧" if is_trained else text for text, is_trained in parts).replace("\n", "⏎")


def with_options(**changes: Any) -> MaskOptions:
    """The default options with some changed."""
    return replace(MaskOptions(), **changes)


def supported(bound: Bound, options: MaskOptions) -> MaskOptions:
    """The options, or the default ones where the template cannot support these."""
    certify(bound.template)  # its probes show the ends of turns, of which a refusal's reason else depends on the chats before it
    unfit = policy_faults(bound.template, train_on_eos=options.train_on_eos, train_headers=options.train_headers)
    return MaskOptions() if unfit else options
