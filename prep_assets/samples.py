"""Records and examples, the data model of all rooms.

    Record ──schema──▶ Sample | Pair | Prompt | Group ──template──▶ Rendered ──tokenizer──▶ Encoded (arrays, in batches)

All text data has one canonical form: a list of `Turn`s, each a list of `Region`s. It is the *semantic data array* of Cerebras Model Zoo, typed. All classes
are frozen; none knows of files, tokenizers or Dagster. They are msgspec structs, which are created ten times as fast as dataclasses, and copied with
other fields by `changed`; they are never part of a reference cycle, so the garbage collector skips them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct, field, structs

Row = Mapping[str, Any]
"""A row of a source, or an object inside one; a line of a store."""
TEXT = "text"
THINKING = "thinking"
TOOL_CALL = "tool_call"
IMAGE, AUDIO, VIDEO = "image", "audio", "video"
SEPARATOR = "<separator>"
"""The kind of a region between a prompt and a completion without a chat template, in which control tokens are what they say; ``""`` is the tokenizer's
own separator."""
MEDIA = (IMAGE, AUDIO, VIDEO)
"""Kinds of regions whose text is the path of a file, for which a processor writes placeholders."""

SYSTEM = "system"
USER = "user"
ASSISTANT = "assistant"
TOOL = "tool"
DOCUMENT = "document"
PROMPT = "prompt"
COMPLETION = "completion"

UNATTENDED = -1.0
"""The weight of a token that is not attended to. Such a token is never trained, so one number is enough: above 0 trained, 0 not trained, below 0 not
attended to."""


class Record(Struct, frozen=True, gc=False):
    """One raw row of a source file.

    Attributes:
        file: position of the file in its domain's sorted file list.
        row: zero-based row within the file (a line of JSONL, an element of a JSON list, a row of a table).
        payload: the row, as the reader of its format returns it.
    """

    file: int
    row: int
    payload: Mapping[str, Any]


class Region(Struct, frozen=True, gc=False):
    """A part of a turn whose text is treated uniformly.

    Attributes:
        kind: `TEXT`, `THINKING` (reasoning before an answer), `TOOL_CALL` (text is the JSON ``{"name", "arguments"}``), one of
            `MEDIA` (text is a path), or a name that the data set chooses, which is treated as text. The JSON of a call may have an ``"id"`` too.
        text: the content, exactly as in the source.
        loss_weight: weight of its tokens in the loss; `None` leaves it to the mask policy of the turn's role.
        attend: whether its tokens are attended to. Tokens that are not are never trained.
        drop: whether it is left out before rendering (LLaVA's first phase drops the prompt's text).
        size: width and height of an image in pixels, from its row or its file; samples of audio and their rate, or frames of a video, their rate, width
            and height, from its file, or the seconds of either, from its row; `None` if unknown.
        placeholder: the text in place of a file in the render, if it depends on the file's size; ``""`` if all images have the same.
    """

    kind: str
    text: str
    loss_weight: float | None = None
    attend: bool = True
    drop: bool = False
    size: tuple[float, ...] | None = None
    placeholder: str = ""


class Spelled(dict[str, Any]):
    """A tool or the arguments of a call, with their JSON, so that nobody need serialize them again."""

    __slots__ = ("json",)

    def __init__(self, value: Mapping[str, Any], text: str) -> None:
        super().__init__(value)
        self.json = text


class Turn(Struct, frozen=True, gc=False):
    """One message.

    Attributes:
        role: `SYSTEM`, `USER`, `ASSISTANT`, `TOOL` (rendered by the chat template); `DOCUMENT` (pretraining text), `PROMPT` and
            `COMPLETION` (tokenized verbatim, without a template); or a role that the data set chooses, passed to the template unchanged.
        regions: its content in order.
        name: name of the speaker or the tool, if the source has one.
        tool_call_id: the call that a `TOOL` turn answers, if the source has one.
    """

    role: str
    regions: tuple[Region, ...]
    name: str | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """The joined text of all regions that are not dropped. For a file it is the path, which is not text to train on."""
        return "".join(region.text for region in self.regions if not region.drop)


class Tokenized(Struct, frozen=True, gc=False):
    """Token ids and loss weights from a row that is tokenized already.

    Attributes:
        ids: the token ids of the whole example.
        weights: the loss weight of each id.
        text: the text of the ids, with control tokens written out; `None` if the row has none.
    """

    ids: tuple[int, ...]
    weights: tuple[float, ...]
    text: str | None = None


class Listed(Struct, frozen=True, gc=False):
    """Entries of lists beside tokens (`prep_assets.stores.lists`), as a row says them.

    Attributes:
        counts: how many entries each token of the example has.
        values: by field, those of all entries end to end.
        of_trained: whether `counts` are of the trained tokens alone.
    """

    counts: tuple[int, ...]
    values: Mapping[str, tuple[float, ...]]
    of_trained: bool = False


class Sample(Struct, frozen=True, gc=False):
    """A document, an instruction with its answer, or a chat.

    Attributes:
        turns: one or more; may be empty with `tokenized`.
        tools: JSON schemas of the available tools, passed to the chat template.
        label: desirable or not, for unpaired preference data (KTO); `None` for other data.
        documents: sources for an answer (RAG), passed to the chat template.
        template_options: variables of the chat template for this row only (its ``chat_template_kwargs``).
        tokenized: ids and weights to store unchanged, which `turns` only prove; `None` if the turns are to be tokenized.
        lists: the entries of lists beside the tokens.
    """

    turns: tuple[Turn, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    label: bool | None = None
    documents: tuple[Mapping[str, Any], ...] = ()
    template_options: Mapping[str, Any] = field(default_factory=dict)
    tokenized: Tokenized | None = None
    lists: Listed | None = None


class PlainChat(Struct, frozen=True, gc=False):
    """A sample whose turns have one text each and nothing else, as most rows do, in two columns.

    Attributes:
        roles, texts: role and text of each turn.
    """

    roles: tuple[str, ...]
    texts: tuple[str, ...]

    def sample(self) -> Sample:
        """The same chat as a `Sample`."""
        return Sample(tuple(turn(role, text) for role, text in zip(self.roles, self.texts, strict=True)))


class Pair(Struct, frozen=True, gc=False):
    """A preference pair: two answers to one prompt.

    Attributes:
        tools, documents, template_options: as of a `Sample`.
        margin: the margin by which the reward of `chosen` must exceed that of `rejected`, if the source has one.
    """

    prompt: tuple[Turn, ...]
    chosen: tuple[Turn, ...]
    rejected: tuple[Turn, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    documents: tuple[Mapping[str, Any], ...] = ()
    template_options: Mapping[str, Any] = field(default_factory=dict)
    margin: float | None = None


class PlainPair(Struct, frozen=True, gc=False):
    """A pair whose turns have one text each and nothing else: a prompt in columns, and two answers of one turn each."""

    prompt: PlainChat
    chosen: str
    rejected: str

    def pair(self) -> Pair:
        """The same pair as a `Pair`."""
        return Pair(self.prompt.sample().turns, (turn(ASSISTANT, self.chosen),), (turn(ASSISTANT, self.rejected),))


class Prompt(Struct, frozen=True, gc=False):
    """An RL prompt with its gold answer and verifier.

    Attributes:
        gold: the answer as an exact string (a decimal for numbers, never a float); ``""`` if the row has none.
        verifier: name of the verifier that compares answers with `gold`.
        tools, documents, template_options: as of a `Sample`.
        arguments: what the verifier is told beside the answer, such as tests of code, as JSON; ``""`` for nothing.
    """

    prompt: tuple[Turn, ...]
    gold: str
    verifier: str = "number"
    tools: tuple[Mapping[str, Any], ...] = ()
    documents: tuple[Mapping[str, Any], ...] = ()
    template_options: Mapping[str, Any] = field(default_factory=dict)
    arguments: str = ""


class Sampled(Struct, frozen=True, gc=False):
    """The token ids that a model sampled for a group.

    Attributes:
        responses: ids of each response.
        prompt: ids of the prompt; `None` if they come from the template.
        logprobs: the log-probability of each token of each response; `None` if the source has none.
        masks: 1 for each token that the model sampled, 0 for one that its environment wrote; `None` if all were sampled.
        runs: of each response, the number of its run, and of its first call in it; empty if each response is a run.
        whole: whether the turns must say all that the ids do, beside what the chat template writes.
    """

    responses: tuple[tuple[int, ...], ...]
    prompt: tuple[int, ...] | None = None
    logprobs: tuple[tuple[float, ...], ...] | None = None
    masks: tuple[tuple[int, ...], ...] | None = None
    runs: tuple[tuple[int, int], ...] = ()
    whole: bool = False


class Group(Struct, frozen=True, gc=False):
    """A prompt with several responses and a reward for each (offline GRPO).

    Attributes:
        sampled: the token ids of a rollout, stored unchanged; `None` if the texts are to be tokenized.
        steps: of each response, its steps with a reward each; their texts, end to end, are that of its one turn. With `sampled`, its answers in their place.
            Empty where responses are judged as a whole.
        labels: of each response, desirable or not, `None` for one that is neither; empty where rewards say it. Such a group is as many labelled answers.
        tools, documents, template_options: as of a `Sample`.
    """

    prompt: tuple[Turn, ...]
    responses: tuple[tuple[Turn, ...], ...]
    rewards: tuple[float, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    documents: tuple[Mapping[str, Any], ...] = ()
    template_options: Mapping[str, Any] = field(default_factory=dict)
    sampled: Sampled | None = None
    steps: tuple[tuple[tuple[str, float], ...], ...] = ()
    labels: tuple[bool | None, ...] = ()


class Contrast(Struct, frozen=True, gc=False):
    """A query with positive and negative texts, for embedding models.

    Attributes:
        positives, negatives: the texts; empty for a text that is only to be embedded, which has an `id`.
        id: id of a text that is only to be embedded.
        instruction: the instruction of queries, if the source has one.
        positive_scores, negative_scores: a teacher's score of each text; empty if the source has none.
    """

    query: str
    positives: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    id: int | None = None
    instruction: str | None = None
    positive_scores: tuple[float, ...] = ()
    negative_scores: tuple[float, ...] = ()


Example = Sample | Pair | Prompt | Group | Contrast


changed = structs.replace
"""`changed(example, name=value)`: an example, or a part of one, with other values of some fields."""
_Example = TypeVar("_Example", Sample, Pair, Prompt, Group, Example)


def parts_of(example: object) -> tuple[tuple[Turn, ...], ...]:
    """All turns of an example: its prompt and each of its answers, or its one conversation; empty where it has none."""
    match example:
        case Sample():
            return (example.turns,)
        case Prompt():
            return (example.prompt,)
        case Pair():
            return example.prompt, example.chosen, example.rejected
        case Group():
            return example.prompt, *example.responses
    return ()


def over_turns(example: _Example, change: Callable[[Sequence[Turn]], tuple[Turn, ...]]) -> _Example:
    """`example` with `change` applied to each of its conversations; unchanged if it has none."""
    if isinstance(example, Sample):
        return changed(example, turns=change(example.turns))
    if isinstance(example, Prompt):
        return changed(example, prompt=change(example.prompt))
    if isinstance(example, Pair):
        return changed(example, prompt=change(example.prompt), chosen=change(example.chosen), rejected=change(example.rejected))
    if isinstance(example, Group):
        return changed(example, prompt=change(example.prompt), responses=tuple(map(change, example.responses)))
    return example  # a user's schema may return anything; the family checks what it needs


def asked_of(example: object) -> object:
    """The prompt of a pair, labelled answer, prompt or group, independent of the file's form: a text, or messages of text alone."""
    if isinstance(example, PlainPair):
        roles, texts = example.prompt.roles, example.prompt.texts
    else:
        prompt = example.prompt if isinstance(example, Pair | Prompt | Group) else example.turns[:-1] if isinstance(example, Sample) else ()
        roles, texts = tuple(turn.role for turn in prompt), tuple(turn.text for turn in prompt)
    is_string = len(roles) == 1 and roles[0] in (USER, ASSISTANT, PROMPT, COMPLETION)  # fits a string
    return texts[0] if is_string else [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]


def turn(role: str, text: str, *, loss_weight: float | None = None) -> Turn:
    """A turn of one text region."""
    return Turn(role, (Region(TEXT, text, loss_weight),))


def document(text: str) -> Sample:
    """A pretraining document: one turn, one region."""
    return Sample((Turn(DOCUMENT, (Region(TEXT, text),)),))
