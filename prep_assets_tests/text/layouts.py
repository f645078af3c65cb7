"""Chat templates as Jinja, and the same written down in Python: an independent account of what stands where.

A layout lists a conversation as pieces of text, each with the turn whose content it is, or `None` where it is the template's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

Chat = list[tuple[str, str]]
"""Role and content of each turn."""
Pieces = list[tuple[str, int | None]]

EOS = "<|endoftext|>"


@dataclass(frozen=True)
class Layout:
    """A template twice.

    Attributes:
        jinja: its source.
        pieces: the same in Python.
        always: whether it keeps every content, at most without its outer white space, so that no chat may be refused.
    """

    jinja: str
    pieces: Callable[[Chat], Pieces]
    always: bool = True


def _each(write: Callable[[str, str, int], Pieces]) -> Callable[[Chat], Pieces]:
    return lambda chat: [piece for turn, (role, content) in enumerate(chat) for piece in write(role, content, turn)]


def _around(before: str, after: str, edit: Callable[[str], str] = str) -> Callable[[Chat], Pieces]:
    """Every content between two texts; ``{role}`` stands for the role."""
    return _each(lambda role, content, turn: [(before.format(role=role), None), (edit(content), turn), (after, None)])


def _loop(content: str, before: str = "[{{ m.role }}] ", after: str = "{{ '<end>\\n' }}") -> str:
    return "{% for m in messages %}" + before + "{{ " + content + " }}" + after + "{% endfor %}"


def _default_system(chat: Chat) -> Pieces:
    start: Pieces = [] if chat[0][0] == "system" else [("[system] You are kind.<end>\n", None)]
    return start + _around("[{role}] ", "<end>\n")(chat)


def _moved_system(chat: Chat) -> Pieces:
    """The system's text opens the first user turn."""
    pieces: Pieces = []
    system = chat[0][1] if chat[0][0] == "system" else None
    for turn, (role, content) in enumerate(chat):
        if role == "system":
            continue
        pieces.append((f"[{role}] ", None))
        if system is not None:
            pieces += [(system, 0), ("\n\n", None)]
            system = None
        pieces += [(content, turn), ("<end>\n", None)]
    return pieces


def _reversed(chat: Chat) -> Pieces:
    return [
        piece
        for turn, (role, content) in reversed(list(enumerate(chat)))
        for piece in [(f"[{role}] ", None), (content, turn), ("<end>\n", None)]
    ]


def _without_system(chat: Chat) -> Pieces:
    shown = [(role, "" if role == "system" else content) for role, content in chat]
    return _around("[{role}] ", "<end>\n")(shown)


MOVED = """{%- if messages[0].role == 'system' -%}{%- set system = messages[0].content + '\n\n' -%}{%- set rest = messages[1:] -%}
{%- else -%}{%- set system = '' -%}{%- set rest = messages -%}{%- endif -%}
{%- for m in rest -%}{{ '[' + m.role + '] ' + (system if loop.first else '') + m.content + '<end>\n' }}{%- endfor -%}"""

DEFAULT = "{% if messages[0].role != 'system' %}{{ '[system] You are kind.<end>\\n' }}{% endif %}" + _loop("m.content")

LAYOUTS = {
    "keeps": Layout(_loop("m.content"), _around("[{role}] ", "<end>\n")),
    "trims": Layout(_loop("m.content | trim"), _around("[{role}] ", "<end>\n", str.strip)),
    "trims on the left": Layout(_loop("m.content.lstrip()"), _around("[{role}] ", "<end>\n", str.lstrip)),
    "trims on the right": Layout(_loop("m.content.rstrip()"), _around("[{role}] ", "<end>\n", str.rstrip)),
    "trims new lines": Layout(_loop("m.content.strip('\\n')"), _around("[{role}] ", "<end>\n", lambda text: text.strip("\n"))),
    "writes white space around": Layout(
        _loop("m.content | trim", "{{ m.role + ':\\n ' }}", "{{ ' \\n\\n' }}<end>"), _around("{role}:\n ", " \n\n<end>", str.strip)
    ),
    "has a default system turn": Layout(DEFAULT, _default_system),
    "moves the system turn": Layout(MOVED, _moved_system, always=False),
    "writes backwards": Layout("{% for m in messages | reverse %}[{{ m.role }}] {{ m.content }}{{ '<end>\\n' }}{% endfor %}", _reversed),
    "has nothing between turns": Layout(_loop("m.content", "", ""), _around("", ""), always=False),
    "has a space between turns": Layout(_loop("m.content", "", " "), _around("", " "), always=False),
    "trims questions, nothing between turns": Layout(
        "{% for m in messages %}{{ m.content | trim if m.role == 'user' else m.content }}{% endfor %}",
        _each(lambda role, content, turn: [(content.strip() if role == "user" else content, turn)]),
        always=False,
    ),
    "shouts": Layout(_loop("m.content | upper"), _around("[{role}] ", "<end>\n", str.upper), always=False),
    "capitalizes": Layout(_loop("m.content | capitalize"), _around("[{role}] ", "<end>\n", str.capitalize), always=False),
    "cuts off": Layout(_loop("m.content[:6]"), _around("[{role}] ", "<end>\n", lambda text: text[:6]), always=False),
    "drops the system turn": Layout(_loop("m.content if m.role != 'system' else ''"), _without_system, always=False),
    "repeats": Layout(
        _loop("m.content + ' ' + m.content"),
        _each(lambda role, content, turn: [(f"[{role}] {content} {content}<end>\n", None)]),
        always=False,
    ),
    "tells contents apart": Layout(
        _loop("('!' if m.content == 'Hello' else '') + m.content"),
        _each(lambda role, content, turn: [(f"[{role}] " + "!" * (content == "Hello"), None), (content, turn), ("<end>\n", None)]),
        always=False,
    ),
}


def chatml(chat: Chat) -> Pieces:
    return _around("<|im_start|>{role}\n", "<|im_end|>\n")(chat)


def plain(chat: Chat) -> Pieces:
    return _around("<|{role}|>\n", EOS)(chat)


def text_of(pieces: Pieces) -> str:
    return "".join(text for text, _ in pieces)


def spans_of(pieces: Pieces) -> Iterator[tuple[int, int, int]]:
    """Turn, start and end of every content that is there."""
    at = 0
    for text, turn in pieces:
        if turn is not None and text:
            yield turn, at, at + len(text)
        at += len(text)
