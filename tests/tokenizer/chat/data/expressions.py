"""Expressions, what their names stand for, and mistakes."""

import re

from conversations import LONG

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

FILTERS = ("abs attr capitalize count default dictsort first float indent int items join last length list lower map max min "
           "reject rejectattr replace reverse round safe select selectattr sort string sum title tojson trim unique upper "
           "wordcount").split()


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
