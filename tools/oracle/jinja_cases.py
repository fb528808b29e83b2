"""Templates for make_jinja_golden.py: each construct of the chat-template language, written for this project."""

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "  Hello, Wörld!  \n"},
    {"role": "assistant", "content": "Hi.", "tool_calls": [
        {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": [2.5, None, True], "s": "q\"uo\\te\n"}}}]},
    {"role": "tool", "content": "3"},
    {"role": "user", "content": [{"type": "text", "text": "part one"}, {"type": "image"}, {"type": "text", "text": "two"}]},
]
TOOLS = [{"type": "function", "function": {
    "name": "add", "description": "Adds <two> numbers & more", "parameters": {
        "type": "object", "required": ["a"], "properties": {"a": {"type": "number"}, "b": {"type": "array", "items": {"type": "number"}}}}}}]

# Whole templates, each in the manner of a family of models.
WHOLE = [
    # Markers, a default system message, stripped content.
    """{%- if messages[0]['role'] == 'system' -%}
{%- set system = messages[0]['content'] | trim -%}
{%- set rest = messages[1:] -%}
{%- else -%}
{%- set system = 'none given' -%}
{%- set rest = messages -%}
{%- endif -%}
{{- bos_token + '[S]' + system + '[/S]' -}}
{%- for m in rest %}
    {%- if m.content is string %}
        {{- '[' + m.role|upper + '] ' + m.content|trim + eos_token }}
    {%- else %}
        {%- for part in m.content if part.type == 'text' %}
            {{- '[' ~ loop.index ~ '/' ~ loop.length ~ '] ' ~ part['text'] }}
        {%- endfor %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '[ASSISTANT]' }}{%- endif %}""",
    # Tools as JSON, tool calls, a namespace that remembers.
    """{%- set ns = namespace(last_user=-1, seen=[]) %}
{%- for m in messages %}
  {%- if m.role == "user" %}{% set ns.last_user = loop.index0 %}{% endif %}
  {%- set ns.seen = ns.seen + [m.role] %}
{%- endfor %}
{%- if tools %}
# Tools
{% for tool in tools %}
{{ tool | tojson }}
{%- endfor %}

{{ tools[0] | tojson(indent=2) }}
{% endif -%}
{%- for m in messages %}
{%- if m.tool_calls is defined and m.tool_calls %}
{%- for call in m.tool_calls %}
<call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</call>
{%- for key, value in call.function.arguments.items() %}
<{{ key }}>{{ value }}</{{ key }}>
{%- endfor %}
{%- endfor %}
{%- elif m.role == 'tool' and loop.previtem.role != 'tool' %}
<result of={{ loop.previtem.role }}>{{ m.content }}</result>
{%- elif loop.index0 == ns.last_user %}
<last/>{{ m.content | length }}
{%- else %}
{{ m.role }}: {{ m.content }}
{%- endif %}
{%- endfor %}
{{ ns.seen | join(',') }}""",
    # Macros that call each other.
    """{%- macro kind(spec, depth=0) -%}
{%- if spec.type == 'array' -%}list of {{ kind(spec['items'], depth + 1) }}{%- elif spec.type == 'object' -%}
{ {%- for name, child in spec.properties|dictsort %}{{ name }}{{ '' if name in spec.required else '?' }}: {{ kind(child, depth=depth + 1) }}{{ ', ' if not loop.last }}{%- endfor -%} }
{%- else -%}{{ spec.type }}@{{ depth }}{%- endif -%}
{%- endmacro -%}
{%- for tool in tools or [] %}{{ tool.function.name }}({{ kind(tool.function.parameters) }}){% endfor -%}""",
    # Reasoning cut off from earlier answers.
    """{% for m in messages %}{% set c = m.content %}{% if c is string and '</t>' in c %}{% set c = c.split('</t>')[-1].lstrip('\\n') %}{% endif %}{{ m.role }}={{ c }};{% endfor %}""",
    """{% for m in messages[::-1] %}{% if m.role == 'user' %}{{ loop.index }}{% break %}{% endif %}{% endfor %}|{% for m in messages %}{% if m.role != 'user' %}{% continue %}{% endif %}{{ loop.index }}{% endfor %}""",
]

# One expression each, shown by {{ }}.
EXPRESSIONS = """
1 + 2 * 3 - 4
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7.5 % 2, -7.5 // 2
1 / 2, 4 / 2, 2 ** 10, 2 ** -1, 2 ** 0.5
1.0, 1e3, 1.5e-7, 1e16, 1e15, 123456789.25, 0.1 + 0.2
0x1f, 0b101, 0o17, 1_000
-3 | abs, (-3) | abs, 2.567 | round(2), 2.5 | round, 3.7 | int, '42' | int + 1, 'x' | int(7), '2.5' | float
'a' 'b' ~ 1 ~ none ~ true ~ 1.5 ~ [1, 'x', none] ~ {'k': 'v', 1: 2}
'tab\\tnew\\nline\\\\ \\'q\\' \\"d\\" \\x41 \\u00e9 \\q'
"it's", 'say "x"', ["it's", 'say "x"', 'both \\' and "', 'nl\\n']
'abc'[0], 'abc'[-1], 'abc'[5] is defined, 'héllo'[1], 'héllo'[1:3], 'abcdef'[::2], 'abcdef'[::-1], 'abc'[-2:], 'abc'[5:], 'abc'[:-1]
[1, 2, 3][0], [1, 2, 3][-1], [1, 2, 3][1:], [1, 2, 3][::-1], [1, 2, 3][:-1], [1, 2, 3, 4][1:10:2], [1,2,3][2:0:-1]
(1, 2) | list, (1,) | list, () | list, [1, 2,] 
{'a': 1, 'b': {'c': 2}}.b.c, {'a': 1}['a'], {'a': 1}.x is defined, {'a': 1}.get('x'), {'a': 1}.get('x', 9), {'a': 1}.get('a')
1 < 2 < 3, 1 < 3 < 2, 1 == 1.0, 'a' < 'b', [1, 2] < [1, 3], 1 != 2, true == 1, none == none
'a' in 'cat', 'x' not in 'cat', 1 in [1, 2], 'k' in {'k': 1}, 'v' in {'k': 'v'}
not true, not '' and 1, 0 or 'x', '' or none, 1 and 2, not 1 == 2
'y' if true else 'n', 'y' if false, ('y' if 0 else 'z') ~ '!', 1 if false else 2 if false else 3
missing is defined, missing is undefined, missing | default('d'), '' | default('d'), '' | default('d', true), none | d('x'), missing ~ '|'
none is none, 1 is number, 'x' is string, {} is mapping, [] is sequence, 'x' is iterable, 1 is iterable, 3 is odd, 4 is even, 9 is divisibleby 3, true is boolean, 1 is boolean, 1.5 is float, 1 is integer
1 is not none, 'a' is in ['a'], 3 is eq 3, 3 is gt(2), 2 is lt 3, 'ABC' is upper, 'abc' is lower, range is callable, true is true, 1 is true, false is false
'  x y  ' | trim, '--x--' | trim('-'), 'Hello World' | upper, 'Hello World' | lower, 'hello wORLD' | capitalize, 'hello wORLD' | title
'a-b-c' | replace('-', '+'), 'a-b-c' | replace('-', '', 1), 'abc' | length, 'héé' | length, [1, 2] | count, {'a': 1} | length
[3, 1, 2] | sort, ['b', 'A', 'c'] | sort, [3, 1, 2] | sort(reverse=true), [1, 2, 2, 1] | unique | list, [1, 2, 3] | sum, [1, 5, 2] | max, [4, 1] | min
[1, 2, 3] | first, [1, 2, 3] | last, 'abc' | first, [1, 2, 3] | reverse | list, 'abc' | reverse, 'abc' | list
[1, 'a', none] | join('-'), 'abc' | join('.'), [{'n': 'x'}, {'n': 'y'}] | join(', ', attribute='n')
[{'n': 1}, {'n': 2}, {'m': 3}] | map(attribute='n') | list | length, ['a', 'b'] | map('upper') | list, [{'n': 1}, {}] | map(attribute='n', default=0) | list
[{'r': 'u'}, {'r': 'a'}] | selectattr('r', 'equalto', 'u') | list, [{'r': 'u'}, {'r': 'a'}] | rejectattr('r', 'eq', 'u') | list, [1, 0, 2] | select | list, [1, 2, 3] | reject('odd') | list, [{'a': {'b': 1}}, {'a': {}}] | selectattr('a.b', 'defined') | list
{'b': 1, 'a': 2} | dictsort, {'b': 1, 'a': 2} | items | list, {'b': 1}.keys() | list, {'b': 1}.values() | list, {'b': 1}.items() | list
{'a': [1, {'b': none}], 'c': true, 'd': 1.0, 'e': 'é<>&"\\n'} | tojson
{'b': 1, 'a': [1, {}], 'e': [], 'f': {}} | tojson(indent=4)
[] | tojson, {} | tojson(indent=2), 'x' | tojson, none | tojson, 1e20 | tojson
'line\\nnext\\n\\nlast' | indent, 'line\\nnext' | indent(2, true), 'a\\n\\nb' | indent(1, blank=true)
'  x '.strip(), 'xxaxx'.strip('x'), 'xxa'.lstrip('x'), 'axx'.rstrip('x'), '\\n a \\t'.strip()
'a,b,,c'.split(','), ' a  b c '.split(), 'a b c'.split(' ', 1), 'a b c'.split(None, 1), 'a,b,c'.rsplit(',', 1), 'a\\nb\\r\\nc\\n'.splitlines()
'abc'.startswith('ab'), 'abc'.endswith('bc'), 'abc'.startswith(('x', 'a')), 'abc'.find('c'), 'abc'.find('x'), 'abcabc'.rfind('b'), 'aXbX'.count('X')
'abc'.upper(), 'ABC'.lower(), 'a b'.title(), 'aBC'.capitalize(), 'aaa'.replace('a', 'b'), 'aaa'.replace('a', 'b', 2), '-'.join(['a', 'b'])
'12'.isdigit(), ''.isdigit(), 'ab'.isalpha(), ' \\t'.isspace(), 'a1'.isalnum(), 'prefix-x'.removeprefix('prefix-'), 'x.txt'.removesuffix('.txt')
range(3) | list, range(1, 4) | list, range(6, 0, -2) | list, range(0) | list
dict(a=1, b='x'), dict(a=1).a, namespace(x=1).x, namespace(x=1).y is defined
'ab' * 2, 2 * 'ab', [0] * 3, [1] + [2], 'a' + 'b'
'ÄÖü'.lower(), 'äöß'.upper() | length, 'ΑΒΓ'.lower(), 'ÉCOLE'.title()
[1, [2, ['x', (3, 4)]]], {'a': {'b': [none, true]}}
(messages | length) ~ messages[0].role ~ messages[-1]['content'][0].type
messages | map(attribute='role') | unique | join(' ')
messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | first | trim
tools is none, tools is defined, documents is none, add_generation_prompt
none | selectattr('a') | list, missing | map('upper') | list, 0 | reject | list
'<{}|{}>'.format(1, 'x'), '{1}{0}{{}}'.format('a', none), '{name}-{}'.format(2, name='n')
1 if messages and messages[0].role == 'system' and messages[0].content is string else 0
messages[0].content.split(' ')[0] | lower ~ '!'
(1, 2)[1], [[1, 2], [3]][0][1], {'a b': 1}['a b'], [1, 2].index(2), [1, 1].count(1)
"a" if "x" is defined and not missing is defined else "b"
{'items': 1}['items'], {'a': 1}.items is defined, {'keys': 2}.get('keys')
[1, 2] == [1, 2], {'a': 1} == {'a': 1.0}, [1] == (1,) | list, 'a' == 'a ' | trim
true and false or true, 1 + (2 if true else 3), -1 ** 2, - 2 + 3
""".strip().split("\n")

# Statements and white space.
STATEMENTS = [
    "a\n{% if true %}\nb\n{% endif %}\nc\n",
    "a\n   {% if true %}   \n  b\n   {% endif %}\n c",
    "a\n   {%+ if true %}\n  b\n   {%+ endif %}\n c",
    "a  {%- if true -%}  b  {%- endif -%}  c",
    "a {{- ' x ' -}} b {{ 'y' }}\n{{ 'z' }}\n\n",
    "a\n{# note #}\nb {#- gone -#}  c\n  {# indented #}\n d",
    "line\r\nnext\rthird\r\n{% if true %}\r\nx\r\n{% endif %}\r\n",
    "{% if true +%}\nkept\n{% endif %}\n",
    "  {% if true %}x{% endif %}  {% if true %}y{% endif %}\n",
    "{% raw %}{{ not }} {% this %}{% endraw %}\n x",
    "{% raw %}\n a\n  {% endraw %}\n x",
    "{%- raw -%}  {{ a }}  {%- endraw -%}  x",
    "{% for i in [1, 2, 3] %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %}{% for i in [1] if i > 1 %}x{% else %}filtered{% endfor %}",
    "{% for i in range(5) if i is odd %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% endfor %}",
    "{% for a, b in [(1, 2), (3, 4)] %}{{ a }}-{{ b }};{% endfor %}{% for k, v in {'x': 1}.items() %}{{ k }}={{ v }}{% endfor %}",
    "{% for c in 'añb' %}[{{ c }}]{% endfor %}{% for k in {'x': 1, 'y': 2} %}{{ k }}{% endfor %}",
    "{% for i in [1, 2, 3] %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }} {% endfor %}",
    "{% for i in [1, 2] %}{% for j in [1, 2] %}{{ loop.depth0 }}{{ i }}{{ j }}{{ loop.cycle('a', 'b') }} {% endfor %}{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% set ns = namespace(n=0) %}{% for i in [1, 2, 3] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = (1, 2) %}{{ t }}{% set u = 1, %}{{ u | length }}",
    "{% set text %}  block {{ 1 + 1 }}  {% endset %}[{{ text }}]{% set up | upper %}loud{% endset %}{{ up }}",
    "{% set empty %}{% endset %}[{{ empty }}]{{ empty is string }}",
    "{% macro m(a, b='B', c=none) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(a=5, c=6) }}{{ m() }}",
    "{% set g = 'global' %}{% macro m() %}{{ g }}{{ local is defined }}{% endmacro %}{% for i in [1] %}{% set local = 1 %}{{ m() }}{% endfor %}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}{{ f(2) | length }}",
    "{% macro a() %}x{% endmacro %}{% macro b() %}{{ a() }}y{% endmacro %}{{ b() }}{{ b() ~ a() }}",
    "{% filter upper %}shout {{ 'x' }}{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}",
    "{% if false %}a{% elif none %}b{% elif 1 %}c{% else %}d{% endif %}{% if missing %}e{% else %}f{% endif %}",
    "{% if missing is defined and missing.x.y %}a{% else %}b{% endif %}",
    "{% for i in range(10) %}{% if i == 3 %}{% break %}{% elif i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
    "{{ {'a': {'b': {}}} }}{{ {} }}{{ [{}] }}",
    "{{ missing }}|{{ messages[99] }}|{{ messages[0].nothing }}|{{ none.x is defined }}",
    "{% for m in missing %}x{% else %}nothing{% endfor %}",
    "{{ 'a' if messages[0].content is string }}{{ 'hidden' if false }}",
    "{ { } } {x} {{ '{{' }} %} }}",
    "{% generation %}said{% endgeneration %}",
    "{{ bos_token }}{{ eos_token }}{{ bos_token + 'x' }}",
    "{% for i in [1,2,3] -%}\n   {{ i }}\n{%- endfor %}",
    "{%- for m in messages -%}\n\n<{{ m.role }}>\n{%- endfor -%}\n\n",
    "\n\n{% if true %}\n\nx\n\n{% endif %}\n\n",
    "{% set x = [] %}{% set x = x + [1] %}{% set y = x + [2] %}{{ x }}{{ y }}",
    "{% set d = {'a': 1} %}{% for k, v in d | dictsort %}{{ k }}{{ v }}{% endfor %}{% for k, v in d | items %}{{ k }}{{ v }}{% endfor %}",
]

# Each must fail in both implementations.
ERRORS = [
    """{%- for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate, not at ' ~ loop.index) }}{% endif %}{{ m.content }}{% endfor %}""",
    "{% if %}x{% endif %}", "{% if true %}x", "{{ 1 + }}", "{{ 'x }}", "{% for x in %}{% endfor %}", "{% endif %}", "{{ (1 }}", "{{ 1 ]}}",
    "{% unknown %}", "{{ x | nosuchfilter }}", "{{ 1 is nosuchtest }}", "{{ missing.x }}", "{{ missing.x.y }}", "{{ missing() }}", "{{ 1 + 'a' }}",
    "{{ 'a' + none }}", "{{ 1 < 'a' }}", "{{ 1 // 0 }}", "{{ raise_exception('no') }}", "{{ none.x.y }}", "{% for a, b in [1] %}{% endfor %}",
    "{{ [1, 2].append(3) }}", "{% set x.y = 1 %}", "{{ {'a': 1}.nosuch() }}", "{{ missing + 1 }}", "{{ 1 in 2 }}", "{% for x in 5 %}{% endfor %}",
    "{{ 'abc'.index('x') }}", "{% else %}", "{{ }}", "{% set %}", "{# open", "{{ 'a' * 'b' }}", "{{ messages | map(attribute='role') | nosuch }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{{ none | length }}", "{{ 5 | join }}", "{{ {[1]: 2} }}", "{{ -'a' }}", "{{ missing[0] }}", "{{ '{}'.format() }}", "{{ '{'.format(1) }}",
]
