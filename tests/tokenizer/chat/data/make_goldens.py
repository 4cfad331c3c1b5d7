"""Writes goldens.json: what Hugging Face's environment makes of templates of our own.

python make_goldens.py    needs transformers and jinja2
"""

import datetime
import json
import pathlib
import re

from transformers.utils.chat_template_utils import _compile_jinja_template

NOW = datetime.datetime(2026, 3, 4, 5, 6, 7)

CHATML = """{% for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

LLAMA2 = """{% if messages[0]['role'] == 'system' %}
    {% set system = '<<SYS>>\\n' + messages[0]['content'].strip() + '\\n<</SYS>>\\n\\n' %}
    {% set rest = messages[1:] %}
{% else %}
    {% set system = '' %}
    {% set rest = messages %}
{% endif %}
{% for message in rest %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Roles must take turns: user, assistant, user, ...') }}
    {% endif %}
    {% if message.role == 'user' %}
        {{- bos_token + '[INST] ' ~ (system if loop.first else '') ~ message.content | trim + ' [/INST]' }}
    {% elif message.role == 'assistant' %}
        {{- ' ' + message.content.strip() + ' ' + eos_token }}
    {% else %}
        {{- raise_exception('No such role: ' ~ message.role) }}
    {% endif %}
{% endfor %}"""

LLAMA3 = """{{- bos_token }}
{%- if not tools is defined %}{% set tools = none %}{% endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {{- "You have these functions:\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One tool call at a time") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
"""

GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system role here') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"""

QWEN = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n\\nSignatures are inside <tools></tools>:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

SCHEMA_MACRO = """{%- macro show(schema, depth=0, label='type') -%}
{%- set pad = '  ' * depth -%}
{%- if schema.type == 'object' -%}
{{ pad }}{{ label }} {
{% for name, inner in schema.properties.items() -%}
{{ pad }}  {{ name }}{{ '?' if name not in schema.get('required', []) }}:
{{ show(inner, depth=depth + 2, label='of') }}
{% endfor -%}
{{ pad }}}
{%- elif schema.enum is defined -%}
{{ pad }}{{ schema.enum | map('tojson') | join(' | ') }}
{%- else -%}
{{ pad }}{{ label }} {{ schema.type | default('any', true) }}
{%- endif -%}
{%- endmacro -%}
{% for tool in tools %}{{ tool.function.name | upper }}: {{ show(tool.function.parameters) }}
{% endfor %}"""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather in a place; <b>\"now\"</b> & caf\u00e9 \u2603",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "A town"},
                    "unit": {"type": "string", "enum": ["C", "F"]},
                    "where": {"type": "object", "properties": {"lat": {"type": "number"}}},
                },
                "required": ["place"],
            },
        },
    },
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}},
]


def message(role, content=None, **more):
    return {"role": role, **({} if content is None else {"content": content}), **more}


SHORT = [message("user", "  Hello <|im_end|> there \n")]
LONG = [
    message("system", " You are kind. "),
    message("user", "What is 2+2?"),
    message("assistant", "<think>\nadd\n</think>\n\nFour."),
    message("user", "And 3+3? \u00e9\u4e2d\U0001f600"),
]
CALLS = [
    message("user", "Weather in Oslo?"),
    message("assistant", tool_calls=[
        {"type": "function", "id": "call00001",
         "function": {"name": "weather", "arguments": {"place": "Oslo \"x\"", "n": 1, "r": 1.5, "ok": True, "no": None}}}]),
    message("tool", "{\"t\": -3}", tool_call_id="call00001", name="weather"),
    message("assistant", "It is cold."),
    message("user", "Thanks"),
]
TWO_CALLS = [
    message("user", "Both?"),
    message("assistant", "Sure.", tool_calls=[
        {"id": "call00001", "function": {"name": "now", "arguments": {}}},
        {"id": "call00002", "function": {"name": "now", "arguments": "{}"}}]),
    message("tool", "1", tool_call_id="call00001"),
    message("tool", "2", tool_call_id="call00002"),
]
BAD_TURNS = [message("user", "a"), message("user", "b")]


def chat(messages, tools=None, add_generation_prompt=True, **more):
    return {"messages": messages, "tools": tools, "documents": None,
            "add_generation_prompt": add_generation_prompt,
            "bos_token": "<s>", "eos_token": "</s>", **more}


STYLES = {"chatml": CHATML, "llama2": LLAMA2, "llama3": LLAMA3, "mistral": MISTRAL,
          "gemma": GEMMA, "qwen": QWEN, "schema_macro": SCHEMA_MACRO}
CONVERSATIONS = {
    "short": chat(SHORT),
    "short_without_prompt": chat(SHORT, add_generation_prompt=False),
    "long": chat(LONG),
    "tools": chat(LONG, TOOLS),
    "calls": chat(CALLS, TOOLS),
    "two_calls": chat(TWO_CALLS, TOOLS),
    "bad_turns": chat(BAD_TURNS),
    "no_thinking": chat(SHORT, enable_thinking=False, date_string="1 Jan 2000"),
}

DATA = {
    "a": 7, "b": -3, "z": 0, "f": 2.5, "g": 1e22, "h": 0.1, "yes": True, "no": False, "nil": None,
    "s": "Hello, World", "e": "", "u": "h\u00e9llo \u4e2d\u6587 \U0001f600 end", "w": "  pad\t\n ",
    "lines": "one\ntwo\n\n  three\r\nfour", "csv": "a,b,,c", "quote": "it's \"so\"\\ \n",
    "l": [3, 1, 2], "words": ["pear", "Apple", "fig", "apple"], "mixed": [1, "a", None, True, 2.0, [1], {"k": 1}],
    "d": {"x": 1, "items": "mine", "y": {"z": [10, 20]}}, "empty": {}, "none_list": [],
    "people": [{"name": "Ann", "age": 40, "tags": ["x"]}, {"name": "bob", "age": 7}, {"name": "Cy", "age": 40, "admin": True}],
    "messages": LONG,
}

# One construct each: expressions, to be printed between brackets.
EXPRESSIONS = """
a|1 + 2 * 3|(1 + 2) * 3|7 / 2|7 // 2|-7 // 2|-7 % 3|7 % -3|2 ** 10|2 ** -1|-2 ** 2|2 ** 3 ** 2|1.5 + 1|7.0 // 2
a - b|a * f|g|h + 0.2|1e16|1e15|123456789.0|1.0|-0.0|0.0001|0.00001|1_000|3 - -2|+a|- a|- f|True + 1|not a|not not a
'a' 'b'|'a' + "b"|'a' ~ 1 ~ none ~ true ~ 2.0|'-' * 5|3 * 'ab'|0 * 'x'|'tab\\tnew\\n\\x41\\u00e9\\q\\''|"it's"
[1, 2] + [3]|[0] * 3|(1, 2)|(1,)|()|[1, 'a', none, true, 1.5, [2], (3,)]|{'a': 1, "b": [1, {'c': none}]}|{}|[]
a == 7|a == 7.0|1 == true|'1' == 1|none == none|[1] == [1.0]|[1] == (1,)|{'a': 1} == {'a': 1}|a != 7|a < 8 <= 8 < 9|1 < 2 > 3
'a' < 'b'|'B' < 'a'|s >= 'Hello'|'ell' in s|'xyz' in s|'' in s|2 in l|5 not in l|'x' in d|1 in {'a': 1}|nope in l|'a' in nope
a and b|z and b|z or 'other'|e or none|none and 1|not e|not none or z|yes and no or nil|(a if yes)|(a if no)|a if no else b|a if no else b if no else 'c'
nope|nope is defined|a is defined|d.nope is defined|d.x is undefined|nope is none|nil is none|nil is not none|e is string|a is string
a is number|yes is number|f is integer|a is integer|yes is integer|f is float|yes is boolean|yes is true|a is true|no is false|z is false
d is mapping|l is mapping|l is iterable|s is iterable|a is iterable|l is sequence|d is sequence|(1, 2) is sequence|none is iterable|a is odd|a is even|6 is divisibleby 3|7 is divisibleby(3)
a is eq 7|a is equalto(8)|a is ne 7|a is gt 5|a is lt 5|a is ge 7|a is le(6)|a is greaterthan 1|'x' is in d|2 is in [1, 2]|'UP' is upper|'up' is lower|'Up' is lower|nil is sameas none|raise_exception is callable|'trim' is filter|'nofilter' is filter|'odd' is test
s[0]|s[-1]|s[99]|s[1:4]|s[:-7]|s[-5:]|s[::2]|s[::-1]|s[5:1:-1]|u[1]|u[6:8]|u[::-1]|u|u|length|l[0]|l[-1]|l[3]|l[1:]|l[::-1]|l[5:]|l[-100:2]|d['x']|d.x|d['y'].z[1]|d.y['z'][-1]|d['nope']|d.items()|list|d['items']|(1, 2, 3)[1:]|s.x is defined|none.x is defined|l.0
s|upper|s|lower|s|title|'hello wOrld-foo (bar)'|title|'hELLO wORLD'|capitalize|w|trim|'xxaxx'|trim('x')|s|length|l|length|d|length|nope|length|s|replace('l', 'L')|s|replace('l', 'L', 1)|'aaa'|replace('', '-')|a|replace(7, 8)
l|first|l|last|s|first|s|last|none_list|first|d|first|l|join|l|join(', ')|words|join('-')|people|join(', ', attribute='name')|s|join('.')|none|default('x')|nope|default('x')|e|default('x', true)|e|d('x', boolean=true)|nope|default
l|list|s|list|d|list|(1, 2)|list|d.y|items|list|l|string|d.y|string|a|string|'12'|int|'12.7'|int|'x'|int|'x'|int(5)|'x'|int(default=6)|f|int|yes|int|none|int|' 8 '|int|'1.5'|float|'x'|float|a|float|'x'|float(1.0)|'abc'|safe
b|abs|-2.5|abs|2.5|round|3.5|round|2.567|round(2)|7|round|2.1|round(0, 'ceil')|2.9|round(method='floor')|2.55|round(1, 'floor')|l|sort|words|sort|words|sort(case_sensitive=true)|l|sort(reverse=true)|l|sort(true)|people|sort(attribute='age')|map(attribute='name')|list
words|unique|list|words|unique(case_sensitive=true)|list|people|unique(attribute='age')|map(attribute='name')|join(',')|l|reverse|list|s|reverse|d.y|dictsort|{'b': 1, 'A': 2, 'c': 0}|dictsort|{'b': 1, 'A': 2}|dictsort(true)|{'b': 1, 'A': 2}|dictsort(by='value')|{'b': 1, 'A': 2}|dictsort(reverse=true)
l|min|l|max|words|min|words|max|none_list|max|people|max(attribute='age')|l|sum|people|sum(attribute='age')|people|sum('age', 1)|'one two  three'|wordcount
people|map(attribute='name')|list|people|map(attribute='nope', default='-')|list|people|map(attribute='tags.0')|list|words|map('upper')|list|words|map('replace', 'p', 'P')|list|l|map('string')|join
people|selectattr('admin')|map(attribute='name')|list|people|selectattr('age', 'gt', 10)|map(attribute='name')|list|people|rejectattr('age', 'equalto', 7)|map(attribute='name')|list|people|selectattr('tags', 'defined')|list|length|people|rejectattr('admin')|list|length
l|select('odd')|list|l|reject('odd')|list|l|select('gt', 1)|list|mixed|select|list|mixed|select('string')|list|mixed|reject('none')|list|length|l|select('in', [1, 2])|list
lines|indent|lines|indent(2)|lines|indent(2, true)|lines|indent(2, true, true)|lines|indent('> ')|lines|indent(width=1, first=true)|e|indent(3, true)
d|tojson|mixed|tojson|quote|tojson|u|tojson|u|tojson(ensure_ascii=true)|d|tojson(indent=2)|mixed|tojson(indent=4)|d|tojson(separators=(',', ':'))|{'b': 1, 'a': [2]}|tojson(sort_keys=true)|[]|tojson(indent=2)|{}|tojson(indent=2)|d|tojson(true, 1)|1.0|tojson|g|tojson|none|tojson|(1, 2)|tojson|'\\x01\\x7f</'|tojson|d|tojson(indent='--')|mixed|string|quote|string|[quote]|[u]|["it's", 'a"b']
u|upper|'\u00c9COLE \u0416\u0410\u0420'|lower|'\u00e9t\u00e9 \u0436\u0430\u0440'.title()|'\u00e9t\u00e9-\u0436'|title|'\u00c9T\u00c9'.capitalize()|s.upper()|s.lower()|s.title()|"they're ok"|title|"they're ok".title()|s.capitalize()|w.strip()|w.lstrip()|w.rstrip()|'xxaxy'.strip('x')|'xyaxy'.strip('yx')|'xxa'.lstrip('x')|'axx'.rstrip('x')|u.strip('hd')|'\\u00a0x\\u3000'.strip()
csv.split(',')|csv.split(',', 1)|csv.rsplit(',', 1)|' a  b c '.split()|' a  b c '.split(none, 1)|' a  b c '.rsplit(none, 1)|''.split()|''.split(',')|'abc'.split('abc')|'a--b--c'.split('--')[-1]|csv.split(sep=',', maxsplit=2)|lines.splitlines()|''.splitlines()|'a\\n'.splitlines()
s.startswith('He')|s.startswith(('x', 'H'))|s.endswith('ld')|s.endswith(('x',))|s.replace('o', '0')|s.replace('o', '0', 1)|s.find('o')|s.find('zz')|u.find('\u4e2d')|s.rfind('o')|s.count('l')|'-'.join(['a', 'b'])|''.join([])|'12'.isdigit()|'1a'.isdigit()|''.isdigit()|'ab'.isalpha()|'a1'.isalnum()|' '.isspace()|'AB'.isupper()|'ab'.islower()|'abc'.removeprefix('a')|'abc'.removesuffix('c')|'abc'.removesuffix('x')
d.get('x')|d.get('nope')|d.get('nope', 5)|d.y.get('z')[0]|d.keys()|list|d.values()|list|d.y.items()|list|empty.items()|list|l.index(2)|l.count(1)|range(3)|list|range(1, 4)|list|range(5, 0, -2)|list|range(0)|list|range(3)|sum|dict(a=1, b='x')|dict(d.y, k=2)|namespace(a=1).a
strftime_now('%Y-%m-%d')|strftime_now('%d %b %Y')|strftime_now('%A %-d %B, %H:%M:%S %%')|strftime_now('')|messages[-1].content|messages[0]['role']|messages|length|messages|map(attribute='role')|join(' ')|messages[1:]|map(attribute='content')|list|(messages|last).content[:3]|messages[::-1][0].role|(messages|selectattr('role', 'equalto', 'user')|list)[-1].content
'%s' ~ a|1 ~ 2 * 3|a + 1 ~ b|'a' ~ 'b' | upper|('a' ~ 'b') | upper|-a | abs|(-a) | abs|a is odd and b is odd|not a is even|a is not even|'x' in 'xyz' and 'y' not in 'abc'|1 if 2 in [2] else 3|[1, 2, 3] | first + 1|'a' if a == 7 and not no else 'b'
"""

# Mistakes: jinja2 raises an error for each.
MISTAKES = [
    "{{ nope.x }}", "{{ nope['x'] }}", "{{ nope() }}", "{{ nope + 1 }}", "{{ 'a' + 1 }}", "{{ 'a' + none }}",
    "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ a() }}", "{{ d.x.y.z }}", "{{ 1 in 2 }}", "{{ 1 in 'a' }}",
    "{% for x in 3 %}{% endfor %}", "{% for x, y in [1] %}{% endfor %}", "{% set a, b = [1] %}", "{% set d.x = 1 %}{{ d.x }}",
    "{{ l.append(4) }}", "{{ d.update({'q': 1}) }}", "{{ d.pop('x') }}", "{{ l.sort() }}", "{{ s|nofilter }}", "{{ s is notest }}",
    "{{ 3|length }}", "{{ s|trim(1, 2) }}", "{{ 'x'.strip(bad=1) }}", "{{ raise_exception('stop ' ~ a) }}", "{{ 'a'.split('') }}",
    "{{ range(10000000) }}", "{{ s[::0] }}", "{{ mixed|sort }}", "{{ [1, 'a']|max }}", "{{ l|tojson(bad=1) }}",
    "{{ raise_exception|tojson }}", "{{ nope|tojson }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
    "{{ namespace(_x=1) }}", "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{{ }}", "{{ a", "{% if a %}", "{% endif %}", "{% for x in l %}", "{% else %}", "{% nonsense %}", "{# open", "{{ 'open }}", "{{ (a }}", "{{ a) }}", "{{ [1, 2 }}",
    "{{ a b }}", "{{ 1 + }}", "{{ a | }}", "{{ a is }}", "{% set %}", "{% set 1 = 2 %}", "{% set true = 2 %}", "{% if %}{% endif %}", "{% break %}", "{{ a..b }}", "{{ @ }}", "{% raw %}x",
    "{{ d.values }}{{ d.values|tojson }}", "{{ 'abc'.index('z') }}", "{{ l.index(9) }}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ {'a' 1} }}", "{{ a if }}", "{{ loop.index }}",
]

BLOCKS = {
    "for_loop_variables": "{% for x in words %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.previtem }}/{{ loop.nextitem }}/{{ loop.depth }};{% endfor %}",
    "for_else": "{% for x in none_list %}x{% else %}none{% endfor %}{% for x in l %}{{ x }}{% else %}none{% endfor %}{% for x in nope %}x{% else %}undefined{% endfor %}",
    "for_filter": "{% for x in l if x > 1 %}{{ loop.index }}of{{ loop.length }}:{{ x }} {% endfor %}{% for x in l if x > 9 %}x{% else %}none{% endfor %}",
    "for_unpack": "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "for_string": "{% for c in u %}[{{ c }}]{% endfor %}",
    "for_nested_loop": "{% for x in l %}{% set outer = loop %}{% for y in 'ab' %}{{ outer.index }}{{ loop.index }}{{ y }} {% endfor %}{% endfor %}",
    "for_cycle": "{% for x in l %}{{ loop.cycle('odd', 'even') }} {% endfor %}",
    "break_continue": "{% for x in range(9) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "for_scope": "{% set n = 0 %}{% for x in l %}{% set n = n + 1 %}{{ n }}{% endfor %}{{ n }}{{ x }}",
    "for_conditional_set": "{% for x in l %}{% if loop.first %}{% set y = x %}{% endif %}{{ y }},{% endfor %}",
    "if_scope": "{% if yes %}{% set q = 1 %}{% endif %}{{ q }}",
    "if_chain": "{% for x in range(4) %}{% if x == 0 %}zero{% elif x == 1 %}one{% elif x == 2 %}two{% else %}many{% endif %} {% endfor %}",
    "if_tuple": "{% if (1, 2) %}yes{% endif %}{% if () %}no{% endif %}",
    "set_tuple": "{% set p, q = 1, 'b' %}{{ p }}{{ q }}{% set t = 1, 2 %}{{ t }}",
    "set_block": "{% set t %}a{{ a }}{% if yes %}b{% endif %}{% endset %}[{{ t }}]{{ t is string }}",
    "set_block_filter": "{% set t | upper | replace('B', '*') %}ab{% endset %}{{ t }}",
    "set_block_scope": "{% set t %}{% set inner = 1 %}x{% endset %}{{ inner }}{{ t }}",
    "namespace": "{% set ns = namespace(n=0, found=false) %}{% for x in l %}{% set ns.n = ns.n + x %}{% if x == 1 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.n }}{{ ns.found }}{{ ns.nope }}",
    "namespace_from_dict": "{% set ns = namespace(d, k=1) %}{{ ns.x }}{{ ns.k }}{{ ns['y'].z }}",
    "macro": "{% macro m(a, b='B', c=a) %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m(b=5) }}{{ m(a='x') | upper }}",
    "macro_scope": "{% set g = 'g' %}{% macro m() %}{{ g }}{% set g2 = 1 %}{% endmacro %}{% set g = 'h' %}{{ m() }}{{ g2 }}",
    "macro_recursion": "{% macro m(n) %}{{ n }}{% if n > 0 %},{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(4) }}",
    "macro_in_loop": "{% macro m(x) %}({{ x }}){% endmacro %}{% for x in l %}{{ m(x) }}{% endfor %}",
    "macro_default_undefined": "{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}{{ m(none) }}",
    "generation": "a{% generation %}b{{ a }}{% endgeneration %}c",
    "generation_scope": "{% generation %}{% set i = 1 %}{% endgeneration %}{{ i }}",
    "with": "{% with p = 1, q = a %}{{ p }}{{ q }}{% endwith %}{{ p }}",
    "filter_block": "{% filter upper | trim %} x{{ s }} {% endfilter %}",
    "raw": "{% raw %}{{ a }} {% if %}{% endraw %}|{%- raw -%} x {{ {%- endraw -%} |",
    "comments": "a{# b #}c\n{# whole line #}\nd\n  {#- stripped -#}  \ne {# two\nlines #}\nf",
    "trim_blocks": "{% if yes %}\nline\n{% endif %}\nafter\n{{ a }}\nlast\n",
    "lstrip_blocks": "  {% if yes %}\n    text\n  {% endif %}\nx  {% if yes %}y{% endif %}\n\t {{ a }}\n   {# c #} z",
    "minus": "a \n {%- if yes -%} \n b \n {%- endif -%} \n c {{- a -}} d {{ a -}}\n e {#- x -#} f",
    "plus": "a\n  {%+ if yes %}b{% endif +%}\nc {% if yes +%}\nd{% endif %}",
    "newlines": "a\r\nb\rc\n\n",
    "trailing_newlines": "x\n\n\n",
    "only_newline": "\n",
    "empty": "",
    "braces_in_text": "{ {a} } % } {{ '}}' }} {{ '%}' }} {{ {'a': {'b': 1}} }}",
    "dict_end_braces": "{{ {'a': {'b': 1}}['a']['b'] }}{{ {} }}",
    "lstrip_first_line": "   {% if yes %}x{% endif %}",
    "lstrip_after_block": "{% if yes %}   {% if yes %}x{% endif %}{% endif %}",
    "lstrip_after_trimmed_newline": "{% if yes %}\n   {% if yes %}x{% endif %}{% endif %}",
    "minus_keeps_line_start": "{{ a }}\n\n  {%- if yes %}\n  b\n  {%- endif %}\n",
    "print_tuple": "{{ 1, 2 }}",
    "output_none": "{{ none }}{{ true }}{{ nope }}|{{ l }}{{ d }}",
    "unicode_text": "\u00e9\u4e2d\U0001f600 {{ u }} \u2028 x",
    "long_condition": "{% if messages and messages[0].role == 'system' and messages[0].content | trim | length > 3 %}{{ messages[0].content | trim }}{% endif %}",
    "shadowed_loop_variable": "{% for m in messages %}{% set m = m.role %}{{ m }} {% endfor %}",
    "loop_in_condition": "{% for m in messages if m.role != 'system' and m.content %}{{ loop.index }}{{ m.role[0] }}{% endfor %}",
    "content_parts": "{% for m in [{'content': [{'type': 'text', 'text': 'hi'}, {'type': 'image'}]}] %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p['type'] == 'text' %}{{ p['text'] }}{% elif p.type == 'image' %}<img>{% endif %}{% endfor %}{% endif %}{% endfor %}",
}


def split_expressions(text):
    """Expressions between bars; a bar that a filter follows is not between two of them."""
    for line in text.strip().split("\n"):
        parts = line.split("|")
        filters = set(FILTERS)
        expression = parts[0]
        for part in parts[1:]:
            name = re.match(r"\s*(\w*)", part).group(1)
            if name in filters or part.startswith("d("):
                expression += "|" + part
            else:
                yield expression
                expression = part
        yield expression


FILTERS = ("abs attr capitalize count default dictsort first float indent int items join last length list lower map max min "
           "reject rejectattr replace reverse round safe select selectattr sort string sum title tojson trim unique upper "
           "wordcount").split()


def render(template, variables):
    compiled = _compile_jinja_template(template)
    compiled.environment.globals["strftime_now"] = lambda format: NOW.strftime(format)
    return compiled.render(**variables)


def case(name, template, variables):
    try:
        return {"name": name, "template": template, "text": render(template, DATA if variables is None else variables),
                **({} if variables is None else {"variables": variables})}
    except Exception as error:
        return {"name": name, "template": template, "error": str(error),
                **({} if variables is None else {"variables": variables})}


def main():
    cases = []
    for style, template in STYLES.items():
        for name, variables in CONVERSATIONS.items():
            cases.append({"name": f"{style}/{name}", "style": style, "conversation": name, **{
                key: value for key, value in case("", template, variables).items() if key in ("text", "error")}})
    for expression in split_expressions(EXPRESSIONS):
        cases.append(case(expression, "[{{ " + expression + " }}]", None))
    for template in MISTAKES:
        cases.append(case(template, template, None))
        if "error" not in cases[-1]:
            print("no mistake:", cases[-1])
    for name, template in BLOCKS.items():
        cases.append(case(name, template, None))
    path = pathlib.Path(__file__).parent / "goldens.json"
    document = {"data": DATA, "styles": STYLES, "conversations": CONVERSATIONS, "cases": cases}
    path.write_text(json.dumps(document, ensure_ascii=False, indent=0) + "\n")
    errors = [c["name"] + " -> " + c["error"] for c in cases if "error" in c and c["name"] not in MISTAKES]
    print(len(cases), "cases;", "errors:", *errors, sep="\n  ")


if __name__ == "__main__":
    main()
