"""Texts as they are compared: without what editors, web pages and schemas put between words; and words of scripts that have no spaces."""

from __future__ import annotations

import html
import re
import unicodedata
from itertools import groupby
from urllib.parse import unquote

HAN = r"\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af\u3040-\u30ff\u31f0-\u31ff\u3105-\u312f\uff66-\uff9f"
UNSPACED_ALPHABETS = r"\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"
"""Scripts without spaces, for classes of regular expressions: Chinese and Japanese; Thai, Lao, Tibetan, Burmese and Khmer."""
UNSPACED = HAN + UNSPACED_ALPHABETS
WORD = re.compile(rf"(?=\w)[{UNSPACED}]|[^\W_{UNSPACED}]+")
"""A word; a character, where scripts have no spaces: what a library's dictionary takes for a word depends on what stands beside it."""
_HAN, _ALPHABETS = re.compile(rf"(?=\w)[{HAN}]"), re.compile(rf"(?=\w)[{UNSPACED_ALPHABETS}]")

_VOWELS = r"\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
"""Marks of vowels in Arabic and Hebrew, which few texts write, and which are left out where texts are compared."""
_MARKS = rf"\u0300-\u036f{_VOWELS}\u3099\u309a"
"""Marks that stand on letters."""
_ZERO_WIDTH = (
    rf"{_VOWELS}\u0640\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e01ef"
)
_INLINE, _BLOCK = (
    "a|abbr|b|code|em|font|i|mark|s|small|span|strong|sub|sup|u|wbr",
    "blockquote|br|div|h[1-6]|hr|li|ol|p|pre|table|tbody|t[dhr]|ul",
)
_ODD = (
    r"&(?:amp;)*(?:#\d{1,7};|#x[\da-f]{1,6};|[a-z][a-z\d]{1,30};|nbsp(?![a-z\d;]))"
    r"|(?:\A|\n)[ \t]*(?:(?:[>#*|]+|//+)[ \t]+)+"
    rf"|</?(?:(?:{_INLINE}|{_BLOCK})(?:\s[^<>]{{0,200}})?|[a-z_]{{2,20}})/?>"
    r"|<<[^<>\n]*>>"
    r"|(?:\x1b|\\+(?:u00|x)1b)\[[\d;]*m"
    r"|(?:\\+(?:u[\da-f]{4}|x[\da-f]{2}))+"
    r"|\\[nrt]"
    r"|(?:%[\da-f]{2})+"
    r"|\]\((?:https?:/)?/[^()\s]*\)"
)
_ASCII = re.compile(_ODD, re.IGNORECASE)
_ANY = re.compile(rf"{_ODD}|[\u0300-\u036f{_ZERO_WIDTH}]+|[\u00a0\u2007\u202f]|\w[{_MARKS}]+", re.IGNORECASE)
_MAYBE = re.compile(rf"[&<>#*|\\%\x1b\u00a0\u2007\u202f{_ZERO_WIDTH}{_MARKS}]|//|\]\(")
_JOINED = re.compile(rf"[\x1b\u0300-\u036f{_ZERO_WIDTH}]")
_IN_A_WORD = re.compile(rf"<<|</?(?:{_INLINE})\b", re.IGNORECASE)


def replaced(found: re.Match[str]) -> str:
    """What `normalized` puts in place of what it found."""
    text = found[0]
    match text[0]:
        case "&":
            text = html.unescape(re.sub("(?:amp;)+(?=.)", "", text, flags=re.IGNORECASE)).replace("\u00a0", " ")
        case "<":
            return "" if _IN_A_WORD.match(text) else " "
        case "\\":
            codes = bytes.fromhex("".join(code.zfill(4) for code in re.findall(r"(?i)\\[ux]([\da-f]+)", text)))
            text = codes.decode("utf-16-be", "replace") if codes else "\n" if text == "\\n" else " "
        case "%":
            text = unquote(text, errors="replace")
        case "\u00a0" | "\u2007" | "\u202f" | "\x1b" | "]":
            return " "
        case "\n":
            return "\n"
    return _JOINED.sub("", unicodedata.normalize("NFC", text))


def unprefixed(text: str) -> str:
    """A text without what three or more lines in a row begin with, empty ones aside: the same word, or numbers that count the lines, also behind a word."""
    lines, begun = text.split("\n"), list[tuple[str, int]]()
    written = [at for at, line in enumerate(lines) if line.strip()]
    if len(written) < 3:
        return text
    for number, at in enumerate(written):
        found = _FIRST.match(lines[at])
        # numbers that count the lines are the same one, less the number of the line
        begun.append((f"{found[2]}{int(found[3]) - number}{found[4]}" if found[3] else found[1], found.end()) if found else ("", 0))
    for same, run in groupby(range(len(written)), lambda number: begun[number][0]):
        if same and len(rows := [*run]) > 2:
            for number in rows:
                lines[written[number]] = lines[written[number]][begun[number][1] :]
    return "\n".join(lines)


_FIRST = re.compile(
    r"[ \t*]*(((?:[^\s\d]{1,12}[ \t])?(?:[^\s\d]{0,20}|\S{0,20}\d[.:]))(\d{1,6})([^\w\s]{0,3}[ \t]|[^\w\s]{1,3}(?<![.:])|[.:](?!\d))"
    r"|(?=\S*\w)\S{1,12}[ \t])[ \t]*"
)


def undisguised(text: str) -> str:
    """A text without what hides its words: what lines begin with, see `unprefixed`; hyphens at ends of lines; a sign between all letters; and letters of
    other alphabets in the place of Latin ones that look the same, in a text with a word of both."""
    if spread := _SPREAD.search(text):
        sign = re.escape(spread[1])
        text = re.sub(
            rf"(?<![^\s{sign}])[^\s{sign}](?:{sign}[^\s{sign}])+(?![^\s{sign}])", lambda found: found[0].replace(spread[1], ""), text
        )
    if not text.isascii() and _TWO_ALPHABETS.search(text):
        text = text.translate(_LATIN)
    return _HYPHENATED.sub("", unprefixed(text))


_LATIN = str.maketrans(
    "\u0430\u0432\u0441\u0501\u0435\u04bb\u0456\u0458\u043a\u04cf\u043c\u043d\u043e\u0440\u051b\u0455\u0442\u0475\u051d\u0445\u0443"
    "\u0410\u0412\u0421\u0415\u041d\u0406\u0408\u041a\u04c0\u041c\u041e\u0420\u0405\u0422\u0425\u0423"
    "\u03b1\u03b5\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u03f2\u03f3"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
    "\u0578\u0585\u057d\u0570\u0581\u0566\u0251\u0261\u0131",
    "abcdehijklmhopqstvwxyABCEHIJKIMOPSTXYaeikvoptuxcjABEZHIKMNOPTYXnouhgqagi",
)
"""Letters of Cyrillic, Greek, Armenian and of phonetic scripts that look like Latin ones; Unicode's list of 6,000 pairs is for names of hosts."""
_OTHER = "".join(map(chr, _LATIN))
_TWO_ALPHABETS = re.compile(rf"[{_OTHER}](?:(?=[A-Za-z])|(?<=[A-Za-z].))")
_SPREAD = re.compile(r"([\W_])[^\W_](?:\1[^\W_]){3}\1")
_HYPHENATED = re.compile(r"[-\u00ad\u00ac\u2010](?<=[^\W\d_].)[ \t\r]*(?:\n|\\n)[ \t>#*|/]*(?=[^\W\d_])")


def normalized(text: str) -> str:
    """A text without zero-width characters, no-break spaces, HTML entities, signs that lines begin with (``> ``, ``# ``, ``// ``), escaped line feeds, bytes
    of URLs (``%20``), calculator notes and tags of reasoning and answers, accents composed."""
    return odd(text).sub(replaced, text) if _MAYBE.search(text) else text


def composed(text: str) -> str:
    """A text without HTML entities and zero-width characters, accents composed: what is quick to find, for texts that are compared as a whole."""
    text = html.unescape(text)
    return text if text.isascii() else _JOINED.sub("", unicodedata.normalize("NFC", text))


def odd(text: str) -> re.Pattern[str]:
    """What finds in a text what `normalized` replaces."""
    return _ASCII if text.isascii() else _ANY


def fold(word: str) -> str:
    """What two equal words have in common: case and width aside, and dots of the Turkish i."""
    return word.casefold() if word.isascii() else unicodedata.normalize("NFKC", word).casefold().replace("ı", "i").replace("i\u0307", "i")


def script(text: str) -> int:
    """How most words of a text are written: 0 with spaces, 1 in Chinese or Japanese, 2 in another script without spaces."""
    if text.isascii():
        return 0
    words, han, others = (len(pattern.findall(text)) for pattern in (WORD, _HAN, _ALPHABETS))
    return 1 if 2 * han > words else 2 if 2 * others > words else 0
