"""Conversations, and what is trained of each as it can be read: ``⟦ ⟧`` is trained, ``‹ ›`` may be shortened, see `conversations.marked`."""

# one case a line
# ruff: noqa: E501
# fmt: off

from __future__ import annotations

import pytest
from msgspec.structs import replace

from prep_assets.samples import ASSISTANT, COMPLETION, DOCUMENT, PROMPT, SYSTEM, TEXT, USER, Region, Sample, Turn, turn
from prep_assets_tests.proofs.conversations import PLAIN, TRIMS, chat, result, says, user

NO_PROMPT=PLAIN.split("{%- if add_generation_prompt")[0]
NO_STOP=PLAIN.replace("'<|e|>\\n'","'\\n\\n'")
LATE="{%- for m in messages if m.role == 'user' -%}{{- '<|s|>' + m.content + '<|e|>' -}}{%- endfor -%}{%- for m in messages if m.role != 'user' -%}{{- '<|s|>' + m.content + '<|e|>' -}}{%- endfor -%}"
TAG_NO="{%- for m in messages -%}{{- '<|s|>' -}}{%- if m.role == 'assistant' -%}{%- generation -%}{{- m.content -}}{%- endgeneration -%}{{- '<|e|>' -}}{%- else -%}{{- m.content + '<|e|>' -}}{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|s|>' -}}{%- endif -%}"
TAG_TWO="{%- for m in messages -%}{%- if m.role == 'assistant' -%}{%- generation -%}{{- m.content -}}{%- endgeneration -%}{%- else -%}{{- m.content + '<|e|>' -}}{%- endif -%}{%- endfor -%}"
UNCLOSED=PLAIN.replace("'</call>'","''").replace("{{- '<|e|>\\n' -}}","{%- if m.tool_calls -%}{{- '\\n' -}}{%- else -%}{{- '<|e|>\\n' -}}{%- endif -%}")
PARTS="""
{%- for m in messages -%}
  {{- '<|s|>' + m.role + '\\n' -}}
  {%- if m.content is string -%}{{- m.content -}}{%- else -%}{%- for p in m.content -%}{%- if p.type == 'image' -%}{{- '<img>' -}}{%- else -%}{{- p.text -}}{%- endif -%}{%- endfor -%}{%- endif -%}
  {{- '<|e|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|s|>assistant\\n' -}}{%- endif -%}
"""
ANSWER_THINK=PLAIN.replace("{{- '<|s|>assistant\\n' -}}","{{- '<|s|>assistant\\n<think>' -}}")
NOTHINK=PLAIN.replace("{%- set thought = '' -%}","{%- set thought = ('<think></think>\\n' if m.role == 'assistant' else '') -%}").replace("{{- '<|s|>assistant\\n' -}}","{{- '<|s|>assistant\\n<think>' -}}")
TWICE=PLAIN.replace("m.content -}}","m.content + ('(re: ' + messages[0].content + ')' if m.role == 'assistant' else '') -}}")
NEWLINE_STOP = PLAIN.replace("'<|e|>\\n'", "'\\n<|e|>\\n'")
ESCAPES = PLAIN.replace("thought + m.content", "thought + (m.content | tojson)")
ALL_ESCAPED = ESCAPES.replace("+ m.reasoning_content +", "+ (m.reasoning_content | tojson) +")
SPACED = "{%- for m in messages -%}{{- m.content + ' ' -}}{%- endfor -%}"
NO_TAGS = PLAIN.replace("<think>", "").replace("</think>", "")
STOPLESS = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"

TRAINED = [
    pytest.param(PLAIN, {}, chat(user('Hi'), says('Hello.'), user('Bye'), says('See you.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦Hello.<|e|>⟧\n<|s|>user\n‹Bye›<|e|>\n<|s|>assistant\n⟦See you.<|e|>⟧\n', (8, 0), id='two rounds'),
    pytest.param(PLAIN, {}, chat(turn(SYSTEM, 'Be kind.'), user('Hi'), says('Hello.')), {}, '<|s|>system\nBe kind.<|e|>\n<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦Hello.<|e|>⟧\n', (6, 0), id='system'),
    pytest.param(PLAIN, {'train_turns': 'last'}, chat(user('Hi'), says('Hello.'), user('Bye'), says('See you.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n‹Hello.›<|e|>\n<|s|>user\n‹Bye›<|e|>\n<|s|>assistant\n⟦See you.<|e|>⟧\n', (8, 0), id='last'),
    pytest.param(PLAIN, {'train_headers': True}, chat(user('Hi'), says('Hello.'), user('Bye'), says('See you.')), {}, '<|s|>user\n‹Hi›<|e|>⟦\n<|s|>assistant\nHello.<|e|>⟧\n<|s|>user\n‹Bye›<|e|>⟦\n<|s|>assistant\nSee you.<|e|>⟧\n', (8, 0), id='headers'),
    pytest.param(PLAIN, {'train_on_eos': 'last'}, chat(user('Hi'), says('Hello.'), user('Bye'), says('See you.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦Hello.⟧…<|e|>\n<|s|>user\n‹Bye›<|e|>\n<|s|>assistant\n⟦See you.<|e|>⟧\n', (8, 0), id='eos last'),
    pytest.param(PLAIN, {'train_on_eos': 'none'}, chat(user('Hi'), says('Hello.'), user('Bye'), says('See you.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦Hello.⟧…<|e|>\n<|s|>user\n‹Bye›<|e|>\n<|s|>assistant\n⟦See you.⟧…<|e|>\n', (8, 0), id='eos none'),
    pytest.param(PLAIN, {'train_on_eos': 'all'}, chat(user('Hi'), says('Hello.'), user('Bye'), says('See you.')), {}, '<|s|>user\n‹Hi›⟦<|e|>⟧\n<|s|>assistant\n⟦Hello.<|e|>⟧\n<|s|>user\n‹Bye›⟦<|e|>⟧\n<|s|>assistant\n⟦See you.<|e|>⟧\n', (8, 0), id='eos all'),
    pytest.param(PLAIN, {'mask_default': 'train', 'mask': {}}, chat(turn(SYSTEM, 'Be kind.'), user('Hi'), says('Hello.')), {}, '<|s|>system\n⟦Be kind.<|e|>⟧\n<|s|>user\n⟦Hi<|e|>⟧\n<|s|>assistant\n⟦Hello.<|e|>⟧\n', (6, 0), id='all roles'),
    pytest.param(PLAIN, {'mask': {'user': 'train'}}, chat(user('Hi'), says('Hello.'), user('Bye'), says('x')), {}, '<|s|>user\n⟦Hi<|e|>⟧\n<|s|>assistant\n‹Hello.›<|e|>\n<|s|>user\n⟦Bye<|e|>⟧\n<|s|>assistant\n‹x›<|e|>\n', (8, 0), id='user only'),
    pytest.param(PLAIN, {}, chat(user('Hi'), says('One, ', 'two, ', 'three.', weights={0: 0.0, 1: 0.5})), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n‹One, ›0.5⟦two, ⟧…⟦three.<|e|>⟧\n', (4, 0), id='weights'),
    pytest.param(PLAIN, {}, chat(user('Hi'), says('One, ', 'two.', weights={1: 0.5})), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦One, ⟧…0.5⟦two.<|e|>⟧\n', (4, 0), id='weights stop'),
    pytest.param(PLAIN, {}, chat(user('Hi'), says('No', weights={0: 0.0}), user('Hm'), says('Yes.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n‹No›<|e|>\n<|s|>user\n‹Hm›<|e|>\n<|s|>assistant\n⟦Yes.<|e|>⟧\n', (8, 0), id='untrained answer'),
    pytest.param(PLAIN, {}, chat(user('Hi'), says('~Hm. ', 'Hello.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦<think>Hm. </think>\nHello.<|e|>⟧\n', (4, 0), id='reasoning'),
    pytest.param(PLAIN, {'train_thinking': False}, chat(user('Hi'), says('~Hm.', 'Hello.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n<think>Hm.</think>\n⟦Hello.<|e|>⟧\n', (4, 0), id='reasoning off'),
    pytest.param(PLAIN, {}, chat(user('Hi'), says('~ Hm. ', ' \nHello. ', weights={0: 0.0})), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n<think> Hm. </think>\n⟦ \nHello. <|e|>⟧\n', (4, 0), id='reasoning, answer begins with space'),
    pytest.param(PLAIN, {}, chat(user('Hi'), says('~Hm.', ' Hello.', weights={0: 0.5})), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n0.5⟦<think>Hm.</think>\n⟧…⟦ Hello.<|e|>⟧\n', (4, 0), id='reasoning of another weight'),
    pytest.param(TRIMS, {}, chat(user('Hi'), says('~Hm.', ' Hello. ', weights={0: 0.5})), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n0.5⟦<think>Hm.</think>\n⟧…⟦Hello.<|e|>⟧\n', (4, 0), id='trims: reasoning of another weight'),
    pytest.param(PLAIN, {'train_tool_calls': False}, chat(user('Hi'), says('Let me. ', '!f {"n": 2}')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦Let me. ⟧…\n<call>{"name": "f", "arguments": {"n": 2}}</call><|e|>\n', (4, 0), id='space before call'),
    pytest.param(NO_TAGS, {'train_thinking': False}, chat(user('Hi'), says('~Hm. ', '!f {"n": 2}')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\nHm. ⟦\n\n<call>{"name": "f", "arguments": {"n": 2}}</call><|e|>⟧\n', (4, 0), id='space after reasoning'),
    pytest.param(PLAIN, {'train_thinking': False, 'train_headers': True}, chat(user('Hi'), says('~Hm.', 'Hello.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n<think>Hm.</think>\n⟦Hello.<|e|>⟧\n', (4, 0), id='reasoning off hdr'),
    pytest.param(PLAIN, {}, chat(user('Hi'), says('Let me.', '!f {"n": 2, "s": "a"}'), result('4'), says('Four.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦Let me.\n<call>{"name": "f", "arguments": {"n": 2, "s": "a"}}</call><|e|>⟧\n<|s|>tool\n‹4›<|e|>\n<|s|>assistant\n⟦Four.<|e|>⟧\n', (8, 0), id='call'),
    pytest.param(PLAIN, {}, chat(user('Hi'), says('!f {"n": 2}', '!g {"s": ["a", {"b": "c"}]}'), result('4'), says('Four.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦\n<call>{"name": "f", "arguments": {"n": 2}}</call>\n<call>{"name": "g", "arguments": {"s": ["a", {"b": "c"}]}}</call><|e|>⟧\n<|s|>tool\n‹4›<|e|>\n<|s|>assistant\n⟦Four.<|e|>⟧\n', (8, 0), id='two calls'),
    pytest.param(PLAIN, {'train_tool_calls': False}, chat(user('Hi'), says('Let me.', '!f {"n": 2}'), result('4'), says('Four.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦Let me.⟧…\n<call>{"name": "f", "arguments": {"n": 2}}</call><|e|>\n<|s|>tool\n‹4›<|e|>\n<|s|>assistant\n⟦Four.<|e|>⟧\n', (8, 0), id='calls off'),
    pytest.param(PLAIN, {}, chat(user('Hi'), says('~Hm.', '!f {"n": 2}'), result('4'), says('Four.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦<think>Hm.</think>\n\n<call>{"name": "f", "arguments": {"n": 2}}</call><|e|>⟧\n<|s|>tool\n‹4›<|e|>\n<|s|>assistant\n⟦Four.<|e|>⟧\n', (8, 0), id='think+call'),
    pytest.param(PLAIN, {'train_thinking': False}, chat(user('Hi'), says('~Hm.', '!f {"n": 2}'), result('4'), says('Four.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n<think>Hm.</think>\n\n⟦<call>{"name": "f", "arguments": {"n": 2}}</call><|e|>⟧\n<|s|>tool\n‹4›<|e|>\n<|s|>assistant\n⟦Four.<|e|>⟧\n', (8, 0), id='think untrained+call'),
    pytest.param(PLAIN, {'train_tool_calls': False}, chat(user('Hi'), says('~Hm.', '!f {"n": 2}'), result('4'), says('Four.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦<think>Hm.</think>\n\n⟧…<call>{"name": "f", "arguments": {"n": 2}}</call><|e|>\n<|s|>tool\n‹4›<|e|>\n<|s|>assistant\n⟦Four.<|e|>⟧\n', (8, 0), id='think+call, calls off'),
    pytest.param(PLAIN, {}, chat(user('Hi'), says('!f {"s": "a \\"q\\" \\n é"}'), result('4'), says('Four.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦\n<call>{"name": "f", "arguments": {"s": "a \\"q\\" \\n é"}}</call><|e|>⟧\n<|s|>tool\n‹4›<|e|>\n<|s|>assistant\n⟦Four.<|e|>⟧\n', (8, 0), id='escapes'),
    pytest.param(PLAIN, {}, chat(user('  Hi \n'), says(' Hello. \n'), user('Bye '), says('See you.')), {}, '<|s|>user\n‹  Hi \n›<|e|>\n<|s|>assistant\n⟦ Hello. \n<|e|>⟧\n<|s|>user\n‹Bye ›<|e|>\n<|s|>assistant\n⟦See you.<|e|>⟧\n', (8, 0), id='space'),
    pytest.param(TRIMS, {}, chat(user('  Hi \n'), says(' Hello. \n'), user('Bye '), says('See you.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦Hello.<|e|>⟧\n<|s|>user\n‹Bye›<|e|>\n<|s|>assistant\n⟦See you.<|e|>⟧\n', (8, 0), id='trims: space'),
    pytest.param(PLAIN, {}, chat(user('Hi'), says(''), user('Hm'), says('Yes.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n<|e|>\n<|s|>user\n‹Hm›<|e|>\n<|s|>assistant\n⟦Yes.<|e|>⟧\n', (8, 0), id='blank answer'),
    pytest.param(PLAIN, {}, chat(user(' '), says('Well?'), user('Hm'), says('Yes.')), {}, '<|s|>user\n <|e|>\n<|s|>assistant\n⟦Well?<|e|>⟧\n<|s|>user\n‹Hm›<|e|>\n<|s|>assistant\n⟦Yes.<|e|>⟧\n', (8, 0), id='blank user'),
    pytest.param(PLAIN, {}, chat(user('a <|e|> b'), says('<|s|>x<|e|>')), {}, '<|s|>user\n‹a <|e|> b›<|e|>\n<|s|>assistant\n⟦<|s|>x<|e|><|e|>⟧\n', (4, 3), id='typed'),
    pytest.param(PLAIN, {}, chat(says('@a.png', ' What?', role=USER), says('A cat.')), {'image': '<img><img>'}, '<|s|>user\n<img><img>‹ What?›<|e|>\n<|s|>assistant\n⟦A cat.<|e|>⟧\n', (6, 0), id='image'),
    pytest.param(PLAIN, {}, Sample((Turn(USER, (Region(TEXT, 'gone', drop=True), Region(TEXT, 'Hi'))), says('Hello.'))), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦Hello.<|e|>⟧\n', (4, 0), id='drop'),
    pytest.param(PLAIN, {}, chat(says(' a ', 'b', ' c ', role=USER), says(' x ', 'y ', ' z', weights={1: 0.0})), {}, '<|s|>user\n‹ a b c ›<|e|>\n<|s|>assistant\n⟦ x ⟧…‹y ›⟦ z<|e|>⟧\n', (4, 0), id='regions'),
    pytest.param(NO_PROMPT, {}, chat(user('Hi'), says('Hello.'), user('Bye'), says('See you.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦Hello.<|e|>⟧\n<|s|>user\n‹Bye›<|e|>\n<|s|>assistant\n⟦See you.<|e|>⟧\n', (8, 0), id='noprompt'),
    pytest.param(NO_PROMPT, {}, chat(user('Hi'), says('~Hm', 'Hello.')), {}, '<|s|>user\n‹Hi›<|e|>\n⟦<|s|>assistant\n<think>Hm</think>\nHello.<|e|>⟧\n', (4, 0), id='noprompt think'),
    pytest.param(NO_PROMPT, {}, chat(user('Hi'), says('!f'), result('1'), says('x')), {}, '<|s|>user\n‹Hi›<|e|>\n⟦<|s|>assistant\n\n<call>{"name": "f", "arguments": {}}</call><|e|>⟧\n<|s|>tool\n‹1›<|e|>\n<|s|>assistant\n⟦x<|e|>⟧\n', (8, 0), id='noprompt call'),
    pytest.param(NO_STOP, {}, chat(user('Hi'), says('Hello.'), user('Bye'), says('See you.')), {}, '<|s|>user\n‹Hi›\n\n<|s|>assistant\n⟦Hello.\n\n<|s|>⟧user\n‹Bye›\n\n<|s|>assistant\n⟦See you.⟧…\n\n', (4, 0), id='the next header ends it'),
    pytest.param(NO_STOP, {'mask': {'user': 'train'}}, chat(user('Hi'), says('!f'), result('1'), says('x')), {}, '<|s|>user\n⟦Hi\n\n<|s|>⟧assistant\n\n<call>{"name": "f", "arguments": {}}</call>\n\n<|s|>tool\n‹1›\n\n<|s|>assistant\n‹x›\n\n', (4, 0), id='the next header ends a question'),
    pytest.param(NO_STOP, {}, chat(user('Hi'), says('!f'), result('1'), says('x')), {}, '<|s|>user\n‹Hi›\n\n<|s|>assistant\n⟦\n<call>{"name": "f", "arguments": {}}</call>\n\n<|s|>⟧tool\n‹1›\n\n<|s|>assistant\n⟦x⟧…\n\n', (4, 0), id='the next header ends a call'),
    pytest.param(SPACED, {'train_on_eos': 'none'}, chat(user('Hi'), says(' One. '), says(' Two.\n')), {}, '‹Hi› ⟦ One. ⟧… ⟦ Two.\n⟧… ', (0, 0), id='white space between answers'),
    pytest.param(SPACED.replace('m.content', 'm.content.lstrip()'), {'train_on_eos': 'none'}, chat(user('Hi'), says(' One. '), says(' Two.\n')), {}, '‹Hi› ⟦One. ⟧… ⟦Two.\n⟧… ', (0, 0), id='white space between answers, cut in front'),
    pytest.param(SPACED.replace('m.content', 'm.content.rstrip()'), {'train_on_eos': 'none'}, chat(user('Hi'), says(' One. '), says(' Two.\n')), {}, '‹Hi› ⟦ One.⟧… ⟦ Two.⟧… ', (0, 0), id='white space between answers, cut behind'),
    pytest.param(SPACED, {'train_on_eos': 'none', 'train_turns': 'last'}, chat(user('Hi'), says(' One. '), says(' Two.\n')), {}, '‹Hi› ‹ One. › ⟦ Two.\n⟧… ', (0, 0), id='white space between answers, the last trained'),
    pytest.param(LATE, {}, chat(user('Hi'), says('Hello.'), user('Bye'), says('See you.')), {}, '<|s|>‹Hi›<|e|><|s|>‹Bye›<|e|><|s|>⟦Hello.<|e|>⟧<|s|>⟦See you.<|e|>⟧', (8, 0), id='late'),
    pytest.param(TAG_NO, {}, chat(user('Hi'), says('Hello.'), user('Bye'), says('See you.')), {}, '<|s|>‹Hi›<|e|><|s|>⟦Hello.<|e|>⟧<|s|>‹Bye›<|e|><|s|>⟦See you.<|e|>⟧', (8, 0), id='tagno'),
    pytest.param(TAG_TWO, {'train_on_eos': 'none'}, chat(user('Hi'), says('One.'), says('Two.')), {}, '‹Hi›<|e|>⟦One.Two.⟧…', (1, 0), id='tags of two answers that touch'),
    pytest.param(UNCLOSED, {'train_tool_calls': False}, chat(user('Hi'), says('!f {"n": 1}'), result('1'), says('x')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n\n<call>{"name": "f", "arguments": {"n": 1}}\n<|s|>tool\n‹1›<|e|>\n<|s|>assistant\n⟦x<|e|>⟧\n', (7, 0), id='unclosed off'),
    pytest.param(PLAIN, {}, chat(user('Hi'), says('!f {"s": "a\\nb"}'), result('1'), says('x')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦\n<call>{"name": "f", "arguments": {"s": "a\\nb"}}</call><|e|>⟧\n<|s|>tool\n‹1›<|e|>\n<|s|>assistant\n⟦x<|e|>⟧\n', (8, 0), id='mixed escapes'),
    pytest.param(PARTS, {}, chat(says('Look: ', '@a.png', '@b.png', ' What?', role=USER), says('A cat.')), {'image': '<img>'}, '<|s|>user\n‹Look: ›<img><img>‹ What?›<|e|>\n<|s|>assistant\n⟦A cat.<|e|>⟧\n', (6, 0), id='parts'),
    pytest.param(PLAIN, {}, chat(user('Draw'), says('Here: ', '@a.png')), {'image': '<img>'}, '<|s|>user\n‹Draw›<|e|>\n<|s|>assistant\n⟦Here: ⟧…<img>⟦<|e|>⟧\n', (5, 0), id='answer image'),
    pytest.param(PLAIN, {}, chat(user('Draw'), says('@a.png', ' there')), {'image': '<img>'}, '<|s|>user\n‹Draw›<|e|>\n<|s|>assistant\n<img>⟦ there<|e|>⟧\n', (5, 0), id='answer image first'),
    pytest.param(PLAIN, {}, chat(user('Hi'), says('Hello.'), user('Bye')), {'prompted': True}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦Hello.<|e|>⟧\n<|s|>user\n‹Bye›<|e|>\n<|s|>assistant\n', (7, 0), id='prompted'),
    pytest.param(PLAIN, {}, chat(user('a <|e|> b'), says('<|s|>x<|e|>')), {'typed_controls': True}, '<|s|>user\n‹a <|e|> b›<|e|>\n<|s|>assistant\n⟦<|s|>x<|e|><|e|>⟧\n', (7, 0), id='typed allowed'),
    pytest.param(ANSWER_THINK, {}, chat(user('Hi'), says('~Hm', 'Hello.'), user('1'), says('Two.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n<think>⟦Hm</think>\nHello.<|e|>⟧\n<|s|>user\n‹1›<|e|>\n<|s|>assistant\n⟦Two.<|e|>⟧\n', (8, 0), id='think prompt'),
    pytest.param(NOTHINK, {}, chat(user('Hi'), says('~Hm', 'Hello.'), user('1'), says('Two.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n<think>⟦Hm</think>\nHello.<|e|>⟧\n<|s|>user\n‹1›<|e|>\n<|s|>assistant\n<think>⟦</think>\nTwo.<|e|>⟧\n', (8, 0), id='nothink'),
    pytest.param(TWICE, {}, chat(user('Hi'), says('Hello.'), user('1'), says('Two.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦Hello.⟧…(re: Hi)<|e|>\n<|s|>user\n‹1›<|e|>\n<|s|>assistant\n⟦Two.⟧…(re: Hi)<|e|>\n', (8, 0), id='twice'),
    pytest.param(PLAIN, {}, Sample((turn(PROMPT, 'Q: '), turn(COMPLETION, 'A.<|s|>'))), {'typed_controls': True}, '‹Q: ›⟦A.<|s|><|end|>⟧', (2, 0), id='completion allowed'),
    pytest.param(PLAIN, {'mask_default': 'train'}, Sample((says('One. ', '@a.png', 'Two.', role=DOCUMENT),)), {'image': '<img><img>'}, '⟦One. ⟧…<img><img>⟦Two.<|end|>⟧', (3, 0), id='doc image'),
    pytest.param(PLAIN, {'mask_default': 'train'}, Sample((Turn(DOCUMENT, (Region(TEXT, 'gone', drop=True),)),)), {}, '<|end|>', (1, 0), id='doc empty'),
    pytest.param(PLAIN, {'mask_default': 'train'}, Sample((turn(DOCUMENT, 'One.'),)), {'eos': '<none>'}, '⟦One.<none>⟧', (0, 0), id='doc othereos'),
    pytest.param(PLAIN, {'train_headers': True, 'mask_default': 'train'}, chat(user('Hi'), says('Hello.')), {}, '⟦<|s|>user\nHi<|e|>\n<|s|>assistant\nHello.<|e|>⟧\n', (4, 0), id='headers of all'),
    pytest.param(PLAIN, {'train_on_eos': 'none'}, chat(user('Hi'), says(' Hello. \n'), user('x'), says('y')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦ Hello. \n⟧…<|e|>\n<|s|>user\n‹x›<|e|>\n<|s|>assistant\n⟦y⟧…<|e|>\n', (8, 0), id='space eos none'),
    pytest.param(PLAIN, {'mask': {'user': 'train'}}, chat(user(' Hi  '), says('Hello.\n')), {}, '<|s|>user\n⟦ Hi  <|e|>⟧\n<|s|>assistant\n‹Hello.\n›<|e|>\n', (4, 0), id='space user'),
    pytest.param(PLAIN, {'mask': {'user': 'train'}}, chat(user('Hi'), says(' Hello.\n')), {}, '<|s|>user\n⟦Hi<|e|>⟧\n<|s|>assistant\n‹ Hello.\n›<|e|>\n', (4, 0), id='space untrained'),
    pytest.param(NEWLINE_STOP, {}, chat(user('Hi'), says('Hello.'), user('x'), says('y')), {}, '<|s|>user\n‹Hi›\n<|e|>\n<|s|>assistant\n⟦Hello.\n<|e|>⟧\n<|s|>user\n‹x›\n<|e|>\n<|s|>assistant\n⟦y\n<|e|>⟧\n', (8, 0), id='newline stop'),
    pytest.param(NEWLINE_STOP, {'train_on_eos': 'none'}, chat(user('Hi'), says('Hello.'), user('x'), says('y')), {}, '<|s|>user\n‹Hi›\n<|e|>\n<|s|>assistant\n⟦Hello.⟧…\n<|e|>\n<|s|>user\n‹x›\n<|e|>\n<|s|>assistant\n⟦y⟧…\n<|e|>\n', (8, 0), id='newline stop none'),
    pytest.param(NEWLINE_STOP, {'train_on_eos': 'all'}, chat(user('Hi'), says('Hello.', weights={0: 0.0}), user('x'), says('y')), {}, '<|s|>user\n‹Hi›\n⟦<|e|>⟧\n<|s|>assistant\n‹Hello.›\n⟦<|e|>⟧\n<|s|>user\n‹x›\n⟦<|e|>⟧\n<|s|>assistant\n⟦y\n<|e|>⟧\n', (8, 0), id='newline stop all'),
    pytest.param(NEWLINE_STOP, {'train_headers': True}, chat(user('Hi'), says('Hello.'), user('x'), says('y')), {}, '<|s|>user\n‹Hi›\n<|e|>⟦\n<|s|>assistant\nHello.\n<|e|>⟧\n<|s|>user\n‹x›\n<|e|>⟦\n<|s|>assistant\ny\n<|e|>⟧\n', (8, 0), id='newline headers'),
    pytest.param(PLAIN, {'train_on_eos': 'none'}, chat(user('Hi'), Turn(ASSISTANT, (Region('verse', ' Hello. '),))), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦ Hello. ⟧…<|e|>\n', (4, 0), id='own kind'),
    pytest.param(ESCAPES, {}, chat(user('Hi'), says('a\nb'), user('x\ty'), says('z')), {}, '<|s|>user\n"‹Hi›"<|e|>\n<|s|>assistant\n⟦"a\\nb⟧…"<|e|>\n<|s|>user\n"‹x\\ty›"<|e|>\n<|s|>assistant\n⟦"z⟧…"<|e|>\n', (8, 0), id='escapes in text'),
    pytest.param(ESCAPES, {}, chat(user('Hi'), says('a\n', 'b')), {}, '<|s|>user\n"‹Hi›"<|e|>\n<|s|>assistant\n⟦"a\\nb⟧…"<|e|>\n', (4, 0), id='escapes of one weight'),
    pytest.param(ESCAPES, {}, chat(user('Hi'), says('~Hm', 'a\nb')), {}, '<|s|>user\n"‹Hi›"<|e|>\n<|s|>assistant\n⟦<think>Hm</think>\n"a\\nb⟧…"<|e|>\n', (4, 0), id='escapes after reasoning'),
    pytest.param(ALL_ESCAPED, {}, chat(user('Hi'), says('~a\nb', 'c\nd', weights={1: 0.0})), {}, '<|s|>user\n"‹Hi›"<|e|>\n<|s|>assistant\n⟦<think>"a\\nb"</think>\n"⟧…‹c\\nd›"<|e|>\n', (4, 0), id='escapes in reasoning and text'),
    pytest.param(ESCAPES, {}, chat(user('Hi'), says('a', 'b', 'c', weights={0: 0.0, 1: 0.5})), {}, '<|s|>user\n"‹Hi›"<|e|>\n<|s|>assistant\n"‹a›0.5⟦b⟧…⟦c⟧…"<|e|>\n', (4, 0), id='plain of three weights'),
    pytest.param(NO_TAGS, {'train_thinking': False}, chat(user('Hi'), says('~Hm', '!f'), result('a </think> b'), says('x')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\nHm⟦\n\n<call>{"name": "f", "arguments": {}}</call><|e|>⟧\n<|s|>tool\n‹a </think> b›<|e|>\n<|s|>assistant\n⟦x<|e|>⟧\n', (8, 0), id='reasoning without tags'),
    pytest.param(NO_TAGS, {'train_tool_calls': False}, chat(user('Hi'), says('~Hm', '!f'), result('1'), says('x')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦Hm⟧…\n\n<call>{"name": "f", "arguments": {}}</call><|e|>\n<|s|>tool\n‹1›<|e|>\n<|s|>assistant\n⟦x<|e|>⟧\n', (8, 0), id='reasoning without tags, calls off'),
    pytest.param(PLAIN, {'train_thinking': False}, chat(user('Hi'), says('~Hm', '!f'), result('1'), says('~So', '!g'), result('2'), says('x')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n<think>Hm</think>\n\n⟦<call>{"name": "f", "arguments": {}}</call><|e|>⟧\n<|s|>tool\n‹1›<|e|>\n<|s|>assistant\n<think>So</think>\n\n⟦<call>{"name": "g", "arguments": {}}</call><|e|>⟧\n<|s|>tool\n‹2›<|e|>\n<|s|>assistant\n⟦x<|e|>⟧\n', (12, 0), id='two rounds of calls'),
    pytest.param(PLAIN, {'train_thinking': False}, chat(user('Hi'), says('~a</think>b', '!f'), result('1'), says('x')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n<think>a</think>b</think>\n\n⟦<call>{"name": "f", "arguments": {}}</call><|e|>⟧\n<|s|>tool\n‹1›<|e|>\n<|s|>assistant\n⟦x<|e|>⟧\n', (8, 0), id='tags within reasoning'),
    pytest.param(PLAIN, {}, chat(Turn(USER, (Region('quote', 'Hi'),)), says('Hello.')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦Hello.<|e|>⟧\n', (4, 0), id='a kind of region of its own'),
    pytest.param(STOPLESS, {'train_headers': True}, chat(user('Hi'), says('Hello.'), user('Bye'), says('So.')), {}, 'user: ‹Hi›⟦\nassistant: Hello.⟧…\nuser: ‹Bye›⟦\nassistant: So.⟧…\n', (0, 0), id='headers without stops'),
    pytest.param(STOPLESS, {'train_headers': True, 'train_turns': 'last'}, chat(user('Hi'), says('Hello.'), user('Bye'), says('So.')), {}, 'user: ‹Hi›\nassistant: ‹Hello.›\nuser: ‹Bye›⟦\nassistant: So.⟧…\n', (0, 0), id='the last header without stops'),
    pytest.param(PLAIN, {}, chat(says('Hello.'), user('Hi')), {}, '<|s|>assistant\n⟦Hello.<|e|>⟧\n<|s|>user\n‹Hi›<|e|>\n', (4, 0), id='answer first'),
    pytest.param(PLAIN, {}, chat(user('Hi'), says('~Hm')), {}, '<|s|>user\n‹Hi›<|e|>\n<|s|>assistant\n⟦<think>Hm</think>\n<|e|>⟧\n', (4, 0), id='reasoning alone'),
    pytest.param(PLAIN, {'train_on_eos': 'all'}, chat(user('Hi'), says('See ', '@a.png')), {'image': '<img>'}, '<|s|>user\n‹Hi›⟦<|e|>⟧\n<|s|>assistant\n⟦See ⟧…<img>⟦<|e|>⟧\n', (5, 0), id='eos all, an image last'),
]
"""Template, options, conversation, more, what is trained, and how many control tokens the template and the texts have."""

NOT_PROVEN = [
    pytest.param(LATE, {'mask_default': 'train'}, chat(user('Hi'), says('Hello.'), user('Bye'), says('See you.')), 'template own writes trained turns in another order, so nothing is proven', id='late all'),
    pytest.param(LATE, {}, chat(user('Hi'), says('Hello.'), Turn(USER, (Region(TEXT, 'Bye', attend=False),)), says('See you.')), 'template own writes trained or unattended turns in another order, so nothing is proven', id='late unattended'),
    pytest.param(LATE, {'mask': {'user': 'train', 'assistant': 'train'}}, chat(user('Hi'), says('Hello.'), result('1'), user('Bye'), says('x')), 'template own writes trained turns in another order, so nothing is proven', id='late untrained'),
    pytest.param(UNCLOSED, {}, chat(user('Hi'), says('!f {"n": 1}'), result('1'), says('x')), 'no control token ends turn 1 after its tool_call, so nothing is proven', id='unclosed'),
    pytest.param(PLAIN, {}, chat(user('Hi'), says('!f', '!g', weights={1: 0.0}), result('1'), says('x')), 'of several tool calls in turn 1 some are trained and some are not; where one ends is not proven', id='mixed calls'),
    pytest.param(PLAIN, {}, chat(user('Hi'), Turn(ASSISTANT, tuple(replace(region, loss_weight=0.0, attend=at > 0) for at, region in enumerate(says('!f', '!g').regions))), result('1'), says('x')), 'of several tool calls in turn 1 some are trained and some are not; where one ends is not proven', id='calls attended or not'),
    pytest.param(ESCAPES, {}, chat(user('Hi'), says('a\n', 'b', weights={0: 0.0})), 'turn 1 is written with escapes, and not all of it has one weight; nothing is proven', id='escapes of two weights'),
    pytest.param(ESCAPES, {}, chat(user('Hi'), says('a\n', 'b', 'c', weights={0: 0.0, 1: 0.5})), 'turn 1 is written with escapes, and not all of it has one weight; nothing is proven', id='escapes of three weights'),
]
"""Template, options, conversation, and why nothing is proven of it."""
