"""Examples with the verdicts that quality steps must give, written by their rules and not by their code: a step that says otherwise judges all rows wrongly.

Most stand at the edge of a rule: one word, line or sign more or less changes the verdict.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from msgspec import Struct

from prep_assets.extensions.quality.proofs.private_data import identifier
from prep_assets.samples import ASSISTANT, USER, Example, Prompt, Sample, changed, document, turn

SENTENCES = (
    "The keeper of the lighthouse walked down to the village every morning.",
    "He bought bread and cheese from the baker, who had known him since they were boys.",
    "On stormy days the path was slippery, and nobody expected him before noon.",
    "His dog waited beside the garden gate until it could hear the familiar footsteps.",
    "In winter they both slept near the stove.",
    "A sailor once gave them a brass compass that never pointed north.",
    "Children came on Sundays to count the steps and to look through the great lens.",
    "When the fog rolled in, the horn could be heard from three islands.",
    "Nobody remembers who painted the door red, but the colour has lasted well.",
    "Letters arrived twice a month, tied with string and smelling of salt.",
)
PLAIN = " ".join(SENTENCES[:5])
"""63 words in five sentences."""
_WORDS = PLAIN.replace(",", "").replace(".", "").split()
_CONTENT = ("keeper lighthouse walked village every morning bought bread cheese baker " * 6).split()
"""60 words, of them no stop word."""
_CHINESE = "老磨坊主每天早上都会穿过小桥去村里买新鲜的面包和奶酪,然后在河边慢慢地走回家和他的狗一起坐在火炉旁边"


class Known(Struct, frozen=True):
    """Examples of one domain, and what a step with these options finds: index of an example → reason, or reason, colon and how the detail begins.

    Attributes:
        notes: name of a note → its values.
        golds: those of the family rl, for a step that judges by them.
    """

    options: Mapping[str, Any]
    examples: Sequence[Example]
    found: Mapping[int, str]
    notes: Mapping[str, Sequence[Any]] = {}
    golds: Sequence[Prompt] = ()


def _lines(*lines: str) -> str:
    return "\n".join(lines)


def _one(text: str, reason: str = "", **options: Any) -> Known:
    return Known(options, (document(text),), {0: reason} if reason else {})


def _several(*texts: str, found: Mapping[int, str] = {}, notes: Mapping[str, Sequence[Any]] = {}, **options: Any) -> Known:
    return Known(options, tuple(map(document, texts)), found, notes)


def _edge(text: Callable[[int], str], reason: str, keeps: int, breaks: int) -> Iterator[Known]:
    """A text with as much of something as a rule allows, and one that breaks it."""
    yield from (_one(text(keeps)), _one(text(breaks), reason))


def _begun(parts: Sequence[str], form: str, between: str = "\n") -> Callable[[int], str]:
    """A text of parts, of which the first so many have another form."""
    return lambda count: between.join([*map(form.format, parts[:count]), *parts[count:]])


def _gopher_quality() -> Iterator[Known]:
    yield _one(PLAIN)
    yield from _edge(lambda count: " ".join(_WORDS[:count]), "gopher_short_doc: 49 words, min_words is 50", 50, 49)
    yield from (_one(PLAIN, "gopher_long_doc: 63 words, max_words is 62" if most < 63 else "", max_words=most) for most in (62, 63))
    yield from (_one(text, "gopher_word_length") for text in ("a of " * 30, "internationalization the " * 30))
    for sign in "#…":  # of 66 and 67 words and signs
        yield from _edge(_begun(_WORDS[:60], f"{{}} {sign}", " "), "gopher_symbols", 6, 7)
    six = [" ".join(_WORDS[at : at + 6]) for at in range(0, 60, 6)]
    for form in ("- {}", "• {}"):
        yield from _edge(_begun(six, form), "gopher_bullets", 9, 10)
    for form in ("{}...", "{}…"):
        yield from _edge(_begun(six, form), "gopher_ellipses", 3, 4)
    yield from _edge(lambda count: " ".join(["1234"] * count + _WORDS[: 60 - count]), "gopher_alphabetic", 12, 13)
    for words in (("the",), ("the", "of"), ("with", "have"), ("that", "to"), ("be", "and")):
        yield _one(" ".join([*words, *_CONTENT]), "" if len(words) == 2 else "gopher_stop_words")


def _gopher_repetition() -> Iterator[Known]:
    yield from (_one(text) for text in (PLAIN, _lines(*SENTENCES), "\n\n".join(SENTENCES)))
    yield _one("", "gopher_empty")
    for between, reason in (("\n", "gopher_lines"), ("\n\n", "gopher_paragraphs")):
        for said, found in ((5, ""), (6, reason)):  # 4 of 15 parts stood before, and 5 of 16
            yield _one(between.join([*SENTENCES, *["Yes."] * said]), found)
        yield _one(between.join([*SENTENCES[:4], *SENTENCES[:2]]), reason)
    passages = ((5, 2, 44), (5, 3, 77), (5, 4, 118), (2, 10, 53), (2, 12, 68), (2, 14, 86), (2, 16, 106), (2, 18, 130), (2, 10, 80))
    for times, length, words in passages:  # as many words as there may be, and one more
        yield from (_repeated_passage(times, length, count) for count in (words, words + 1))
    yield _one(" ".join(f"red fox {word}" for word in _CONTENT[:10]), "gopher_top_n_gram: one 2-gram has")
    others, pairs = [f"w{number:03d}" for number in range(44)], ("internationalization responsibilities", "of it")
    for twice, reason in ((pairs, "gopher_top_n_gram: one 2-gram has 24%"), (pairs[::-1], "")):  # of two as frequent the first counts
        yield _one(" ".join(" ".join((twice[at % 2], *others[11 * at : 11 * at + 11])) for at in range(4)), reason)
    yield _one(" ".join([SENTENCES[0], SENTENCES[1], SENTENCES[0], SENTENCES[2]]), "gopher_n_grams")


_TABLE_A1 = {2: 0.2, 3: 0.18, 4: 0.16, 5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.1}


def _repeated_passage(times: int, length: int, words: int) -> Known:
    """A passage that stands several times among other words, all of four letters: all of the most frequent n-gram counts, spaces too, of longer ones what
    stood before, without spaces."""
    others = [f"w{number:03d}" for number in range(words)]
    passage, rest = others[:length], others[length : words - (times - 1) * length]
    text = " ".join(" ".join([*passage, *rest[at::times]]) for at in range(times))
    counted = {n: times * (5 * n - 1) if n < 5 else (times - 1) * 4 * (length // n * n) for n in _TABLE_A1 if n <= length}
    n = next((n for n, letters in counted.items() if letters > _TABLE_A1[n] * (5 * words - 1)), 0)
    return _one(text, f"gopher_n_grams: {n}-grams that" if n > 4 else f"gopher_top_n_gram: one {n}-gram has" if n else "")


def _fineweb() -> Iterator[Known]:
    yield _one(PLAIN)
    yield _one("\n \n", "fineweb_empty")
    bare = [sentence.rstrip(".") for sentence in SENTENCES]
    yield from _edge(lambda count: _lines(*SENTENCES[:count], *bare[count:]), "fineweb_line_punctuation", 2, 1)  # of ten lines
    short = [f"Then {word} came again." for word in dict.fromkeys(_CONTENT)][:7]
    yield from _edge(lambda count: _lines(*short[:count], *SENTENCES[count:]), "fineweb_short_lines", 6, 7)
    yield _one(_lines(*SENTENCES, SENTENCES[0]), "fineweb_repeated")
    # four of more than 600 characters, and eight
    yield from _edge(lambda count: _lines(*SENTENCES, "Yes.", *["Yes."] * count), "fineweb_repeated", 1, 2)
    parts = [f"Internationalization {word}responsibilities." for word in dict.fromkeys(_CONTENT)]  # of 3 words, with the dot
    yield from (_one(_lines(*parts)), _one("\n\n".join(parts), "fineweb_list"))


def _c4() -> Iterator[Known]:
    yield from (_one(text) for text in (PLAIN, _lines(*SENTENCES), _lines(f"{PLAIN}[edit]"), _lines(f"{PLAIN}[12]"), f'"{PLAIN}"'))
    four, few = " ".join(SENTENCES[:4]), "c4_too_few_sentences"
    for text in (four, _lines(four, "Very well."), _lines(four, SENTENCES[4].rstrip(".")), _lines(four, "He waited there...")):
        yield _several(text, found={0: f"{few}: 4 sentences in lines"}, notes={"lines_left_out": [text.count("\n")]})
    both = _lines(PLAIN, "It needs JavaScript!", f"He said {'a' * 1001} today.", "Very well."), _lines("", PLAIN, "", f"“{PLAIN}”.")
    yield _several(*both, notes={"lines_left_out": [3, 2]})  # empty lines have too few words
    lines = [f"Your browser {what}." for what in ("needs JavaScript", "keeps our cookie policy", "shows the terms of use")]
    lines += [f"He said {'a' * 1001} today.", "Mr. Hill and Dr. Lane lived in St. Ives"]
    yield from (_one(_lines(four, line), few) for line in lines)
    yield _one(_lines(four, f"He said {'a' * 1000} today."))
    yield _one(PLAIN.replace("bread", "{bread"), "c4_curly_bracket")
    yield _one(PLAIN.replace("bread", "lorem ipsum"), "c4_lorem_ipsum")
    yield _one(_lines(*SENTENCES[:3], "Mr. Hill and Dr. Lane lived in St. Ives with J. Smith."), few)


def chat(*said: str, **more: Any) -> Sample:
    """A chat of a user, who begins, and an assistant."""
    return Sample(tuple(turn((USER, ASSISTANT)[at % 2], text) for at, text in enumerate(said)), **more)


def _tool(name: str, description: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, **more}}


def _border() -> Iterator[Known]:
    """Pairs of texts with about 70 % of their n-grams in common, of which half are found. Which, a slow computation says: hashes of characters and words are
    polynomials, mixed, and `rensa` draws the smallest."""
    from rensa import RMinHash

    def mixed(value: int) -> int:
        value = value * 0x9E3779B97F4A7C15 % 2**64
        return (value ^ value >> 32) * 0xD6E8FEB86659FD93 % 2**64

    def polynomial(values: Iterable[int]) -> int:
        return reduce(lambda sum, value: (sum + value + 1) * 0xF1DE83E19937733D % 2**64, values, 0)

    def signature(words: Sequence[str]) -> list[int]:
        hashes = [mixed(polynomial(map(ord, word))) for word in words]
        grams = [mixed(polynomial(hashes[at : at + 5])) for at in range(len(hashes) - 4)]
        [row] = RMinHash.digest_matrix_from_flat_token_hashes(grams, [0, len(grams)], 14 * 8, 1).to_rows()
        return [*map(int, row)]

    texts = [[f"{word}{number}".casefold() for word in _WORDS] for number in range(16)]
    pairs = [(text, [f"{word}x" if at in (12 + number, 40) else word for at, word in enumerate(text)]) for number, text in enumerate(texts)]
    found = [
        any(left[at : at + 8] == right[at : at + 8] for at in range(0, 112, 8)) for left, right in (map(signature, pair) for pair in pairs)
    ]
    examples = tuple(document(" ".join(text)) for pair in pairs for text in pair)
    yield Known({}, examples, {2 * number + 1: "near_duplicate" for number, is_found in enumerate(found) if is_found})


def _near_duplicates() -> Iterator[Known]:
    yield from _border()
    found = "near_duplicate"
    like, other = PLAIN.replace("the stove", "the warm stove"), " ".join(SENTENCES[5:])
    yield _several(PLAIN, other, like, found={2: f"{found}: is like example 0"}, notes={"cluster": [0, -1, 0]})
    turned = " ".join(reversed(PLAIN.split()))
    yield from (_several(PLAIN, turned, words=words, found={1: found} if words == 1 else {}) for words in (1, 2))
    yield _several(_CHINESE, _CHINESE[::-1], f"{_CHINESE}吃饭", found={2: found})
    asked = ("What time is it?", "It is noon.")
    tools = [_tool("f", text) for text in (other, PLAIN, turned, turned.upper())]
    # what one example alone has counts like its turns, so that tools keep two chats apart, or not
    alone = [chat(*(asked if at < 2 else SENTENCES[6:8]), tools=(tool,)) for at, tool in enumerate(tools)]
    mixed = (chat(*SENTENCES[2:4]), *alone[:1], chat(*SENTENCES[4:6]), *alone[1:])
    yield Known({}, mixed, {5: f"{found}: is like example 4 of the domain, one of a cluster of 2"}, {"cluster": [-1, -1, -1, -1, 4, 4]})
    yield _several(PLAIN, PLAIN.upper(), other, found={1: found})
    yield _several(PLAIN, other, like, keep="longest", found={0: found})
    yield _several(" ".join(SENTENCES[:6]), " ".join(SENTENCES[4:]))
    yield _several("Very well.", other, "very well", "Well, very.", "", "", found={2: found})
    question, answer = SENTENCES[0], " ".join(SENTENCES[1:4])
    first, second = ({"title": "a", "text": other}, {"title": "b", "text": PLAIN.upper()})
    yield Known({}, (chat(question, answer, documents=(first,)), chat(question, answer, documents=(first,))), {1: "near_duplicate"})
    yield Known({}, (chat(question, answer, documents=(first,)), chat(SENTENCES[7], " ".join(SENTENCES[7:]), documents=(first,))), {})
    rest = (chat(SENTENCES[6], " ".join(SENTENCES[6:])), chat(SENTENCES[8], " ".join(SENTENCES[4:7])))
    for field, contexts in (("documents", (first, second)), ("tools", (_tool("f", other), _tool("g", PLAIN.upper())))):
        # both are shared with another chat: documents that differ keep two chats apart, tools do not
        four = [
            changed(sample, **{field: (context,)})
            for sample, context in zip((chat(question, answer),) * 2 + rest, [*contexts] * 2, strict=True)
        ]
        yield Known({}, tuple(four), {1: "near_duplicate"} if field == "tools" else {})


def _repeated_passages() -> Iterator[Known]:
    reason, other = "repeated_passage", " ".join(SENTENCES[5:])
    copied = f"{reason}: 70 of 73 words stand in passages of 50 words or more"
    yield _several(PLAIN, f"A copy: {PLAIN}", found={1: copied}, notes={"share": [0.0, round(70 / 73, 4)]})
    yield _several(PLAIN, other, notes={"share": [0.0, 0.0]})
    yield _several(f"{_CHINESE}。", f"又,{_CHINESE[:50]}吃。", words=40, found={1: f"{reason}: 50 of 54 words"})
    whole, half = (" ".join(_WORDS[:count]) for count in (None, 50))
    for beyond, found in ((49, {1: reason}), (50, {})):  # more than half of the words stood before, and half of them
        yield _several(whole, f"{half} {' '.join(_CONTENT[:beyond])}", found=found)
    yield _several(whole, " ".join(_WORDS[:49]))
    five = " ".join(_WORDS[:5])
    for beyond, again in ((4, {0: reason}), (5, {})):  # five of 14 words, and of 15, stood before in the text itself
        itself = f"{five} {' '.join(_CONTENT[:beyond])} {five}"
        yield _several(itself, words=5, max_share=0.334, found=again, notes={"share": [round(5 / (10 + beyond), 4)]})
        yield _several(other, itself, itself, words=5, max_share=0.334, found={at + 1: reason for at in again} | {2: reason})


def _language() -> Iterator[Known]:
    german = "Der alte Müller ging jeden Morgen über die Brücke in das Dorf, um dort frisches Brot zu kaufen."
    french = "Le vieux meunier traversait chaque matin le pont pour acheter du pain frais au village."
    yield _several(PLAIN, german, french, keep=["en"], found={1: "language", 2: "language"})
    yield _several(PLAIN, german, french, keep=["de", "fr"], found={0: "language"})
    unsure = ("Kaffee und Kuchen", "taxi in Roma", "no", "menu del dia", "menu in Milano")
    codes, shares = zip(*map(identifier().classify, unsure), strict=True)
    notes = {"language": [*codes], "probability": [round(float(share), 4) for share in shares]}
    yield _several(*unsure, keep=[*codes], notes=notes)


MARKED = (
    PLAIN,
    "Write to {email:maria.lopez@correo.es} about the boat, _{email:maria@correo.es}_ or __{email:maria@correo.es}__.",
    "Clone git@github.com:keeper/lamp.git first, or git@github.com/keeper, and use keeper@lamp.example or icon@2x.png.",
    "Ask {email:maria [at] correo [dot] es}, {email:m.lopez&#64;correo.es} or {email:maria at correo dot es}, and {email:ana@m\u00fcnchen.de} as well.",
    "Meet us @ noon, at dusk or [at] dawn; 5 &gt; 4, and %20 is a space, \\u0041 a letter.",
    "Call {phone:+34 612 345 678} before noon, {phone:0034 612 345 678} 2024-05-06, or {phone:+34 612 345 679}/12.",
    "Bitte rufen Sie uns morgen im B\u00fcro unter {phone:030 901820} an, nicht am 03.09.2018 um 12:30 Uhr.",
    "It stands at 48.8566, 2.3522 on the map, +12.345678 beside, since 1889-03-31; 1234567 + 7654321 = 8888888.",
    "The server was at {ip:203.0.112.7} last year, and at {ip:2606:4700:4700::1111} since.",
    "The router is at 192.168.1.1, the page says 192.0.2.7 and 2001:db8::1; 224.0.1.1 is for many, and 3fff::1 for books, version 10.2.3.4 of nothing.",
    "Her card is {card:4111 1111 1111 1111} 12/27, she said, his {card:5500000000000004}, theirs {card:3782 822463 10005}.",
    "Card {card:4111-1111-1111-1111} {card:4111\u202f1111\u202f1111\u202f1111} and credit card {card:4111/1111/1111/1111} 123.",
    "Her card is 4111 1111 1111 1112, she said; 0.4111111111111111 is less than 1, and 1111 1111 1111 1117 nobody's.",
    "Send it to {iban:DE89 3704 0044 0532 0130 00} today, {iban:de89370400440532013000} EUR, or {iban:GB82-WEST-1234-5698-7654-32}.",
    "Send it to DE88 3704 0044 0532 0130 00 today.",
    "Her number is {national_id:12345678Z}, his {national_id:123-45-6789}; CPF {national_id:529.982.247-25}, PESEL {national_id:44051401359}.",
    "Nobody has 12345678A, 000-45-6789 or 44051401359.",
    "The key is {secret:AKIAQ7Q7Q7Q7Q7Q7Q7Q7} here, {secret:hf_" + "aB" * 17 + "} there, AKIAQ7Q7Q7 nowhere.",
)
"""Texts with private values, each marked with its kind, and with what is nobody's."""
_MARK = re.compile(r"\{(\w+):([^{}]*)\}")


def redactions(placeholders: Mapping[Any, str]) -> list[tuple[str, str]]:
    """Each text of `MARKED` without marks, and what redaction makes of it."""
    return [(_MARK.sub(r"\2", text), _MARK.sub(lambda found: placeholders[found[1]], text)) for text in MARKED]


def _private_data() -> Iterator[Known]:
    kinds = ("email", "phone", "ip", "card", "iban", "national_id", "secret")
    counts = {kind: [text.count(f"{{{kind}:") for text in MARKED] for kind in kinds}
    first = [next((kind for kind in kinds if counts[kind][at]), "") for at in range(len(MARKED))]
    found = {at: f"private_{kind}" for at, kind in enumerate(first) if kind}
    yield _several(*(text for text, _ in redactions(dict.fromkeys(kinds, ""))), found=found, notes=counts)
    several = "The server was at 203.0.112.7; call +34 612 345 678 or +34 612 345 679, and write to maria.lopez@correo.es."
    yield _one(several, "private_email: 1 × email, 2 × phone, 1 × ip")
    yield _one(several, "private_ip: 1 × ip, 2 × phone", kinds=["ip", "phone"])


def _gold_answers() -> Iterator[Known]:
    yield _one("He buys 3*4=<<3*4=12>>12 apples.\n#### 12")
    yield _one("He buys 3*4=<<3*4=13>>13 apples.\n#### 13", "wrong_calculation")
    yield _one("She has 10-4=<<10-4=6>>6 pears and 6/4=<<6/4=1.5>>1.5 plums.\n#### 1.5")


DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gopher_quality": {
        "min_words": 50, "max_words": 100_000, "min_word_length": 3, "max_word_length": 10, "max_symbols": 0.1, "max_bullets": 0.9,
        "max_ellipses": 0.3, "min_alphabetic": 0.8, "min_stop_words": 2,
    },
    "gopher_repetition": {"max_lines": 0.3, "max_paragraphs": 0.3, "max_characters": 0.2},
    "fineweb_quality": {"min_ended_lines": 0.12, "max_short_lines": 0.67, "short_line": 30, "max_repeated": 0.01, "max_lines_per_word": 0.3},
    "c4_quality": {"min_sentences": 5, "min_words": 3, "max_word": 1000},
    "near_duplicates": {"words": 5, "buckets": 14, "hashes": 8, "keep": "first", "across": False},
    "repeated_passages": {"words": 50, "max_share": 0.5},
}  # fmt: skip
"""By name of the step, the options' defaults, of the papers."""
KNOWN: dict[str, Callable[[], Iterator[Known]]] = {
    "gopher_quality": _gopher_quality,
    "gopher_repetition": _gopher_repetition,
    "fineweb_quality": _fineweb,
    "c4_quality": _c4,
    "near_duplicates": _near_duplicates,
    "repeated_passages": _repeated_passages,
    "language": _language,
    "private_data": _private_data,
    "gold_answers": _gold_answers,
}
"""By name of the step; those of answers and golds stand in `known_answers`."""
