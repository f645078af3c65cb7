"""The vocabulary of all rooms: the forms that one example takes on its way from a file to a token store.

    Record ──schema──▶ Sample | Pair | Prompt | Group ──template──▶ Rendered ──tokenizer──▶ Encoded (arrays, in batches)

All text data has one canonical form: a list of `Turn`s, each a list of `Region`s. It is the *semantic data array* of Cerebras Model Zoo,
typed. Every class here is frozen and slotted; none knows of files, tokenizers or Dagster. Those that every row needs are msgspec's structs, which are made
several times as fast as data classes; nothing that they hold refers back to them, so that no search for garbage has to look at them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from msgspec import Struct

TEXT = "text"
THINKING = "thinking"
TOOL_CALL = "tool_call"
IMAGE = "image"

SYSTEM = "system"
USER = "user"
ASSISTANT = "assistant"
TOOL = "tool"
DOCUMENT = "document"
PROMPT = "prompt"
COMPLETION = "completion"

UNATTENDED = -1.0
"""The weight of a token that is not attended. Such a token is never trained, so one number says both: above 0 trained, 0 not, below 0 not attended."""


class Record(Struct, frozen=True, gc=False):
    """One raw row of a source file.

    Attributes:
        file: position of the file in its domain's sorted file list.
        row: zero-based row within the file (a line of JSONL, an element of a JSON list, a row of a table).
        payload: the row itself, as its format's reader gives it.
    """

    file: int
    row: int
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of text inside a turn that is treated alike.

    Attributes:
        kind: `TEXT`, `THINKING` (reasoning before an answer), `TOOL_CALL` (text is the JSON ``{"name", "arguments"}``), `IMAGE`
            (text is a path), or a name of the data set's own, which is treated as text. The JSON of a call may hold an ``"id"`` too.
        text: the content, exactly as the source has it.
        loss_weight: weight of its tokens in the loss; `None` leaves it to the mask policy of the turn's role.
        attend: whether its tokens are attended to. What is not attended to is never trained.
        drop: whether it is left out before rendering (LLaVA's first phase drops the prompt's text).
        size: width and height of an image in pixels, as its row or its file says; `None` where neither does.
        placeholder: what stands for an image in the render, where that depends on its size; ``""`` where all images have the same.
    """

    kind: str
    text: str
    loss_weight: float | None = None
    attend: bool = True
    drop: bool = False
    size: tuple[int, int] | None = None
    placeholder: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message.

    Attributes:
        role: `SYSTEM`, `USER`, `ASSISTANT`, `TOOL` (rendered by the chat template); `DOCUMENT` (pretraining text), `PROMPT` and
            `COMPLETION` (tokenized as they are, no template); or a role of the data set's own, passed to the template as it is.
        regions: its content in order.
        name: name of the speaker or the tool, where the source gives one.
        tool_call_id: which call a `TOOL` turn answers, where the source gives one.
    """

    role: str
    regions: tuple[Region, ...]
    name: str | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """The text of all regions that are not dropped, joined; of an image that is its path, which is not text to train on."""
        return "".join(region.text for region in self.regions if not region.drop)


@dataclass(frozen=True, slots=True)
class Tokenized:
    """The token ids and loss weights that a row brings ready made.

    Attributes:
        ids: of the whole example.
        weights: the loss weight of each id.
        text: what the ids say, control tokens written out; `None` where the row has no such text.
    """

    ids: tuple[int, ...]
    weights: tuple[float, ...]
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """A document, an instruction with its answer, or a chat.

    Attributes:
        turns: at least one; none are needed where `tokenized` is there.
        tools: JSON schemas of the tools on offer, passed to the chat template.
        label: desirable or not, for unpaired preference data (KTO); `None` elsewhere.
        documents: what an answer may be drawn from, passed to the chat template.
        template_options: variables of the chat template for this row alone (its ``chat_template_kwargs``).
        tokenized: ids and weights, stored as they are; `turns` then only prove them. `None` where the turns are tokenized.
    """

    turns: tuple[Turn, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    label: bool | None = None
    documents: tuple[Mapping[str, Any], ...] = ()
    template_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    tokenized: Tokenized | None = None


class PlainChat(Struct, frozen=True, gc=False):
    """A sample whose turns are one text each, with nothing beside: the form of most rows, in two columns.

    Attributes:
        roles, texts: of each turn.
    """

    roles: tuple[str, ...]
    texts: tuple[str, ...]

    def sample(self) -> Sample:
        """The sample that it is."""
        return Sample(tuple(turn(role, text) for role, text in zip(self.roles, self.texts, strict=True)))


@dataclass(frozen=True, slots=True)
class Pair:
    """A preference pair: two answers to one prompt.

    Attributes:
        tools, documents, template_options: as of a `Sample`.
        margin: by how much the reward of `chosen` must lie above that of `rejected`, where the source says so.
    """

    prompt: tuple[Turn, ...]
    chosen: tuple[Turn, ...]
    rejected: tuple[Turn, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    documents: tuple[Mapping[str, Any], ...] = ()
    template_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    margin: float | None = None


class PlainPair(Struct, frozen=True, gc=False):
    """A pair in which each turn is one text and nothing more: a prompt in columns, and two answers of one turn each."""

    prompt: PlainChat
    chosen: str
    rejected: str

    def pair(self) -> Pair:
        """The pair that it is."""
        return Pair(self.prompt.sample().turns, (turn(ASSISTANT, self.chosen),), (turn(ASSISTANT, self.rejected),))


@dataclass(frozen=True, slots=True)
class Prompt:
    """An RL prompt: a sample without its answer, and what a right answer is.

    Attributes:
        gold: the answer as an exact string (a decimal for numbers, never a float); ``""`` where a reward model judges.
        verifier: which verifier compares an answer with `gold`.
        tools, documents, template_options: as of a `Sample`.
    """

    prompt: tuple[Turn, ...]
    gold: str
    verifier: str = "number"
    tools: tuple[Mapping[str, Any], ...] = ()
    documents: tuple[Mapping[str, Any], ...] = ()
    template_options: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Sampled:
    """The token ids that a model sampled for a group.

    Attributes:
        responses: ids of each response.
        prompt: ids of the prompt; `None` where the template gives them.
        logprobs: of each response, the log-probability of each of its tokens; `None` where the source has none.
    """

    responses: tuple[tuple[int, ...], ...]
    prompt: tuple[int, ...] | None = None
    logprobs: tuple[tuple[float, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A prompt with several responses and a reward for each (offline GRPO).

    Attributes:
        sampled: the token ids of a rollout, which are stored as they are; `None` where the texts are tokenized.
        tools, documents, template_options: as of a `Sample`.
    """

    prompt: tuple[Turn, ...]
    responses: tuple[tuple[Turn, ...], ...]
    rewards: tuple[float, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    documents: tuple[Mapping[str, Any], ...] = ()
    template_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    sampled: Sampled | None = None


@dataclass(frozen=True, slots=True)
class Contrast:
    """A query with texts that belong to it and texts that do not, for embedding models.

    Attributes:
        positives, negatives: the texts. A text that is only to be embedded has neither, and an `id`.
        id: what a text that is only to be embedded is called.
        instruction: what queries are asked for, where the source says so.
        positive_scores, negative_scores: a teacher's score of each text; none where the source has none.
    """

    query: str
    positives: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    id: int | None = None
    instruction: str | None = None
    positive_scores: tuple[float, ...] = ()
    negative_scores: tuple[float, ...] = ()


Example = Sample | Pair | Prompt | Group | Contrast


_Example = TypeVar("_Example", Sample, Pair, Prompt, Group, Example)


def over_turns(example: _Example, change: Callable[[Sequence[Turn]], tuple[Turn, ...]]) -> _Example:
    """`example` with each of its conversations changed; one of anything else as it is."""
    if isinstance(example, Sample):
        return replace(example, turns=change(example.turns))
    if isinstance(example, Prompt):
        return replace(example, prompt=change(example.prompt))
    if isinstance(example, Pair):
        return replace(example, prompt=change(example.prompt), chosen=change(example.chosen), rejected=change(example.rejected))
    if isinstance(example, Group):
        return replace(example, prompt=change(example.prompt), responses=tuple(map(change, example.responses)))
    return example  # a schema of somebody's own may give anything; the family says what it needs


def turn(role: str, text: str, *, loss_weight: float | None = None) -> Turn:
    """A turn of one text region."""
    return Turn(role, (Region(TEXT, text, loss_weight),))


def document(text: str) -> Sample:
    """A pretraining document: one turn, one region."""
    return Sample((Turn(DOCUMENT, (Region(TEXT, text),)),))
