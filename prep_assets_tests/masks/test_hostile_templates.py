"""Templates that look into texts in every way, and rows that answer them otherwise than what a form was learned from: what is kept is what Jinja renders, and
what is trained is what stands between the headers and the stops of answers."""

from __future__ import annotations

import re

import pytest

from prep_assets.caches import CACHES
from prep_assets.pipeline import rendering
from prep_assets.samples import ASSISTANT, SYSTEM, USER, PlainChat, Sample
from prep_assets.text import forms
from prep_assets.text.environment import chat_template_utils
from prep_assets_tests.effort import thinned
from prep_assets_tests.masks.bound import bind_source, prove, run, trained

CHAT = "{% for m in messages %}<|im_start|>{{ m.role }}\nBODY<|im_end|>\n{% endfor %}"
BODIES = [
    "{{ m.content }}",
    "{{ m.content | trim }}",
    "{{ m.content.strip('\\n') }}",
    "{{ m.content.strip('.') }}",
    "{{ m.content if m.content | length < 40 else 'long' }}",
    "{{ m.content }}{{ '!' if m.content | length > 12 }}",
    "{{ m.content }}{{ m.content | length }}",
    "{{ m.content if m.content | length is even else 'odd' }}",
    "{{ m.content }}{{ messages[:m.content | length] | length }}",
    "{{ m.content[:20] }}",
    "{{ m.content[1:] if m.content[0] == 'A' else m.content }}",
    "{{ m.content[::-1] }}",
    "{{ m.content | upper }}",
    "{{ m.content if m.content == m.content | lower else '' }}",
    "{{ m.content if m.content.isascii() else '?' }}",
    "{{ m.content if m.content < 'w' else 'x' }}",
    "{{ m.content if m.content != 'needle' else 'pin' }}",
    "{{ m.content if m.content in ['Hi', 'needle'] else m.content }}",
    "{{ m.content.split()[0] }}",
    "{{ m.content.split('needle')[-1] }}",
    "{{ m.content.replace(' ', '_') }}",
    "{{ m.content | replace('needle', 'pin') }}",
    "{{ 'x' if m.content.startswith('needle') else m.content }}",
    "{{ 'x' if m.content.endswith('?') else m.content }}",
    "{% if '</t>' in m.content %}<t>{{ m.content.split('</t>')[0] }}</t>{{ m.content.split('</t>')[1] }}{% else %}{{ m.content }}{% endif %}",
    "{% for c in m.content %}{{ c }}{% endfor %}",
    "{% for c in m.content %}{{ c if c != 'e' else '3' }}{% endfor %}",
    "{{ '%20s' % m.content }}",
    "{{ m.content if loop.changed(m.content) else '' }}",
    "{{ m.content if m != messages[0] else 'first' }}",
    "{{ m.content }}{{ ' :)' if not loop.first and 'please' in messages[loop.index0 - 1].content }}",
    "{{ m.content }}{{ ' (more)' if not loop.last and messages[loop.index].content | length > 20 }}",
    "{{ m.content }}{{ '=' if not loop.first and messages[loop.index0 - 1].content == m.content }}",
    "{{ 'x' if 'needle' in messages[0].content ~ messages[-1].content else m.content }}",
    "{{ 'x' if '<a>' ~ m.content == '<a>b' else m.content }}",
    "{% macro shown(text) %}{{ 'x' if 'needle' in text else text }}{% endmacro %}{{ shown(m.content) }}",
    "{% set text %}{{ m.content }}{% endset %}{{ 'x' if 'needle' in text else text }}",
    "{{ raise_exception('no') if 'needle' in m.content else m.content }}",
    "{{ m.content.replace('e', '3', 1) }}",
    "{{ m.content | replace('e', '3', 1) }}",
    "{{ m.content.split('e', 1)[0] }}{{ 'e' ~ m.content.split('e', 1)[1] if 'e' in m.content }}",
    "{{ m.content if not m.content.startswith(('An', 'b')) else '-' }}",
    "{{ m.content.split('l')[9] }}{{ m.content }}",
    "{{ m.content }}{{ m.content[-3:] if m.content | length > 30 }}{{ m.content[2:1] }}",
    "{{ m.content }}{{ '~' if messages[loop.index0 - 1].content == 'e' }}",
    "{{ m.content }}{{ '~' if m.content | trim | length != m.content | length }}",
    "{{ m.content }}{{ m.content | int(0) or '' }}",
    "{{ m.content | list | join('') }}{{ '~' if m.content | first == '.' }}{{ '~' if m.content | last == '\u2026' }}",
    "{{ m.content }}{{ '~' if (m.content ~ 'x').strip() != m.content ~ 'x' }}",
    "{{ m.content }}{{ '~' if messages | selectattr('content', 'equalto', 'needle') | list | length }}",
    "{{ m.content if m.content is string and m.content is not mapping else '' }}{{ '~' if m.content is iterable and 'skip' in [m.content] }}",
    "{{ '~' if m.content > messages[0].content ~ 'z' else m.content }}",
    "{{ m.content | tojson }}",
    "{{ m.content | e }}",
]
STATES = [
    "{% set ns = namespace(seen=0) %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% if 'needle' in m.content %}{% set ns.seen = ns.seen + 1 %}{% endif %}{{ ns.seen if ns.seen > 1 }}<|im_end|>\n{% endfor %}",
    "{% set ns = namespace(last='') %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ ns.last if ns.last | length > 25 }}{{ m.content }}"
    "{% set ns.last = m.content %}<|im_end|>\n{% endfor %}",
    "{% set texts = [] %}{% for m in messages %}{% if texts.append(m.content) %}{% endif %}<|im_start|>{{ m.role }}\n"
    "{{ 'x' if texts | join('') | length > 90 }}{{ m.content }}<|im_end|>\n{% endfor %}",
    "{% for m in messages if m.content != 'skip' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
    "{% for m in messages | sort(attribute='content') %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
    "{{ '<|im_start|>system\nBe kind.<|im_end|>\n' if 'please' in messages[0].content }}" + CHAT.replace("BODY", "{{ m.content }}"),
    CHAT.replace("BODY", "{{ m.content }}") + "{{ 'The end.' if messages[-1].content.endswith('.') }}",
]
TEXTS = [
    "a needle",
    "needle",
    "Ann",
    "e",
    "x" * 45,
    " Hi",
    "Hi \n",
    "\tHi",
    "\x1cHi",
    "Hi\x1f",
    "\u2003Hi\x85",
    "please?",
    "skip",
    "b",
    "So it is. Is it?",
]
TEXTS += [
    "<t>a</t>b",
    "a</t>",
    "ǅ ß ﬁ",
    "é中😀",
    "e\u0301",
    "\x00",
    "a\x00b",
    "%s {{ x }} {% y %}",
    "&<\"'>",
    "\\n",
    "\r\nx\r",
    "...",
    "\u200b",
    "1.5e-07",
    "w" * 13,
    "…" * 41,
]
LEARNED = [("Good day", "Well met"), ("Who is it", "Nobody"), ("And now", "Nothing"), ("Then go", "Bye now")]


def _samples() -> list[Sample]:
    plain = [PlainChat((USER, ASSISTANT), pair) for pair in LEARNED]
    plain += [PlainChat((SYSTEM, USER, ASSISTANT, USER, ASSISTANT), ("Be short", *pair, *pair)) for pair in LEARNED]
    for at, text in enumerate(TEXTS):
        plain += [PlainChat((USER, ASSISTANT), pair) for pair in ((text, "Fine"), ("Tell me", text), (text, TEXTS[at - 1]), (text, text))]
        plain.append(PlainChat((SYSTEM, USER, ASSISTANT, USER, ASSISTANT), ("Be short", text, "Fine", TEXTS[at - 3], text)))
    return [chat.sample() for chat in plain]


SAMPLES = _samples()


@pytest.mark.parametrize("source", thinned([*(CHAT.replace("BODY", body) for body in BODIES), *STATES]))
def test_what_is_kept_is_what_jinja_renders(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "ONE_IN", 1 << 62)  # else the sample finds what the comparison overlooks
    bound = bind_source(source)
    jinja = chat_template_utils()._compile_jinja_template(source)
    outcome = run(bound, SAMPLES)
    for at, row in enumerate(outcome.kept):
        messages = [{"role": turn.role, "content": turn.text} for turn in SAMPLES[row].turns]
        text = jinja.render(messages=messages, tools=None, documents=None, add_generation_prompt=False, **bound.template.special)
        assert bound.vocabulary.decode(outcome.ids(at)) == text
        assert trained(bound, outcome, at) == re.findall(r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)", text, re.DOTALL)
    verdicts = prove(bound, SAMPLES, outcome)
    assert all(verdict.passed for verdict in verdicts), verdicts


@pytest.mark.parametrize(
    "body", ["{{ m.content }}", "{{ m.content | trim }}", BODIES[4], "{{ m.content }}{{ '!' if m.content | length > 12 }}"]
)
def test_how_many_chats_come_before_changes_nothing(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = bind_source(CHAT.replace("BODY", body))
    kept = []
    monkeypatch.setattr(rendering, "ONE_IN", 1)  # what marks cannot follow stops no build
    for after in (0, 3, 1 << 40):
        monkeypatch.setattr(forms, "LEARN_AFTER", after)
        CACHES["block renderers"].clear()
        outcome = run(bound, SAMPLES)
        kept.append((outcome.kept, outcome.encoded.ids.tolist(), outcome.encoded.loss.tolist(), outcome.refused))
    assert kept[0] == kept[1] == kept[2]
