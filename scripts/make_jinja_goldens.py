#!/usr/bin/env python3
"""Makes tests/golden/jinja.json: templates, what they are rendered with, and what the PyPI package `jinja2` makes of
them under the settings of Hugging Face's apply_chat_template (null where it refuses).

    pip install jinja2
    scripts/make_jinja_goldens.py
"""

import json
from pathlib import Path

import jinja2.exceptions
import jinja2.ext
import jinja2.sandbox

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "jinja.json"

VARIABLES = {
    "messages": [
        {"role": "system", "content": " Be brief.\n"},
        {"role": "user", "content": "Grüße, <b>you</b> & 'me'"},
        {"role": "assistant", "content": "<think>hm</think>\n\nHi.", "tool_calls": None},
        {"role": "user", "content": ""},
    ],
    "tools": [{"type": "function", "function": {"name": "add", "parameters": {"a": {"type": "int"}, "b": [1, 2.5, True, None]}}}],
    "add_generation_prompt": True,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "number": 7,
    "nothing": None,
    "text": "one two  three\tfour\n",
    "letters": ["b", "A", "c", "b"],
    "table": {"z": 1, "a": {"deep": [10, 20, 30]}, "m": "x"},
}

TEMPLATES = [
    # whitespace
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n",
    "a\n  {%- if true -%}\n  b\n  {%- endif -%}\nc\n\n",
    "a\n  {%+ if true +%}\n  b\n  {% endif %}c",
    "x {# comment #} y\n  {# another\n of two lines #}\nz",
    "x {#- comment -#} y",
    "{{ 'a' }}\n{{- 'b' -}}\n {{ 'c' }}\n",
    "  {{ 'indented' }}\n\t{% set a = 1 %}\n{{ a }}",
    "one\r\ntwo\r\n{% if true %}\r\nthree{% endif %}\r\n",
    "{{ '}}' }}{{ {'a': {'b': 1}}['a']['b'] }}",
    # literals and operators
    "{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 7 / 2 }} {{ 1.5 + 1 }} {{ 1e3 if false else 0.1 }}",
    "{{ 'a' ~ 1 ~ none ~ true ~ 1.0 }} {{ 'a' + 'b' 'c' }} {{ 'ab' * 3 }} {{ [1] + [2, 'x'] }}",
    "{{ 'tab\\there' }}{{ \"quote\\\"s\" }}{{ 'line\\nbreak' }}{{ 'back\\\\slash' }}{{ '\\u00e9\\x41' }}{{ '\\q' }}",
    "{{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ not 1 == 2 }} {{ 3 >= 3 }} {{ 1 != 1 }}",
    "{{ 'b' in letters }} {{ 'x' not in letters }} {{ 'wo' in text }} {{ 'a' in table }} {{ 2 in [1, 2] }}",
    "{{ true and 'yes' or 'no' }} {{ '' or [] or 'last' }} {{ none and 1 }} {{ not '' }} {{ 0 or false }}",
    "{{ 'a' if number > 5 else 'b' }}{{ 'never' if number > 50 }}{{ 'x' if false else 'y' if false else 'z' }}",
    "{{ (1, 2) | length }} {{ () | length }} {{ [1, [2, 3]][1][0] }} {{ {'a': 1, 'b': 2}.b }} {{ {} }}",
    "{{ -number }} {{ +number }} {{ - 3 | abs }} {{ (-3) | abs }}",
    # looking into values
    "{{ messages[0].role }} {{ messages[-1]['role'] }} {{ messages[0]['content'] }} {{ table.a.deep[1] }} {{ messages[9] }}|{{ table.none }}|{{ table['no'] }}",
    "{{ messages[1:] | length }} {{ messages[:1] | length }} {{ messages[::-1][0].role }} {{ letters[-2:] }} {{ letters[1:-1] }} {{ letters[::2] }} {{ letters[::-2] }} {{ letters[5:1] }}",
    "{{ messages[1].content[:3] }} {{ messages[1].content[2] }} {{ 'äöü'[::-1] }} {{ 'äöü' | length }} {{ text[-100:3] }} {{ text[100:] }}|",
    "{{ undefined_thing }}|{{ undefined_thing is defined }}|{{ table.zz is defined }}|{{ undefined_thing | default('d') }}|{{ nothing | default('d') }}|{{ nothing | default('d', true) }}|{{ nothing }}",
    "{{ messages | map(attribute='role') | join(', ') }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', '==', 'user') | map(attribute='role') | list }}",
    "{{ messages | selectattr('tool_calls', 'defined') | list | length }} {{ messages | selectattr('content') | list | length }} {{ letters | select('equalto', 'b') | list }} {{ letters | reject('in', ['b']) | list }}",
    # filters
    "[{{ text | trim }}] [{{ text | upper }}] [{{ 'ÄB cd' | lower }}] [{{ 'hELLO wORLD' | capitalize }}] [{{ \"they're bill's\" | title }}]",
    "{{ letters | first }} {{ letters | last }} {{ letters | unique | join }} {{ letters | sort | join }} {{ letters | reverse | list }} {{ 'abc' | reverse }} {{ letters | length }} {{ letters | count }}",
    "{{ tools | tojson }}\n{{ tools | tojson(indent=2) }}\n{{ 'ü\"\\n' | tojson }} {{ table | tojson(separators=(',', ':')) }}",
    "{{ table | items | list | length }} {{ table.items() | list | length }} {{ (table | dictsort)[0][0] }} {{ table.keys() | list }} {{ table.values() | list | length }}",
    "{{ 'a-b-c' | replace('-', '+') }} {{ 'aaa' | replace('a', 'b', 2) }} {{ '3.7' | float }} {{ '42' | int }} {{ 'x' | int }} {{ 3.9 | int }} {{ 'x' | int(default=5) }} {{ 12 | string ~ 'a' }}",
    "{{ 'a\nb\n\nc' | indent(2) }}|{{ 'a\nb' | indent(4, true) }}|{{ '<&>\"' | escape }}|{{ '<b>' | safe }}|{{ '<b>' | e }}",
    "{{ table.get('z') }} {{ table.get('q') }} {{ table.get('q', 'fallback') }} {{ letters | join('/') }} {{ [1, none, 2.0] | join('-') }}",
    # methods
    "[{{ text.strip() }}] [{{ text.rstrip('\\n') }}] [{{ '\\u3000x\\u00a0'.strip() }}] [{{ 'xxabxx'.lstrip('x') }}] [{{ 'xyaxy'.strip('yx') }}]",
    "{{ text.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'abc'.split('x') }} {{ messages[2].content.split('</think>')[-1].lstrip('\\n') }} {{ 'a\\nb\\n'.splitlines() }}",
    "{{ text.startswith('one') }} {{ text.endswith('x') }} {{ text.startswith(('x', 'o')) }} {{ text.replace(' ', '_') }} {{ 'aXb'.upper() }} {{ 'aXb'.lower() }} {{ 'ab cd'.title() }} {{ 'ab'.capitalize() }}",
    "{{ '-'.join(letters) }} {{ 'banana'.count('an') }} {{ 'banana'.find('n') }} {{ 'banana'.find('x') }}",
    # tests
    "{{ number is number }} {{ number is string }} {{ text is string }} {{ table is mapping }} {{ letters is iterable }} {{ letters is sequence }} {{ table is sequence }} {{ nothing is none }} {{ nothing is not none }}",
    "{{ true is true }} {{ 1 is true }} {{ false is false }} {{ number is integer }} {{ 1.5 is float }} {{ true is boolean }} {{ number is odd }} {{ number is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }}",
    "{{ number is equalto 7 }} {{ number is gt 5 and number is lt 10 }} {{ 'a' is in letters }} {{ 'A' is upper }} {{ not number is defined }} {{ number is defined and not nope is defined }}",
    # statements
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }};{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.content }}{{ loop.last }};{% else %}none{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}",
    "{% for k, v in table.items() %}{{ k }}={{ v }};{% endfor %}{% for k in table %}{{ k }}{% endfor %}{% for c in 'äb' %}<{{ c }}>{% endfor %}{% for (a, b) in [[1, 2]] %}{{ a + b }}{% endfor %}",
    "{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined else 'start' }}>{{ loop.nextitem.role if not loop.last }};{% endfor %}",
    "{% for i in range(3) %}{% for j in range(i, 6, 2) %}{{ i }}{{ j }}{{ loop.index }} {% endfor %}{{ loop.index }}|{% endfor %}{{ range(5, 0, -2) | list }}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{% set x = i * 10 %}{{ x }} {% endfor %}{{ x }}{% if true %}{% set x = 5 %}{% endif %}{{ x }}",
    "{% set ns = namespace(found=false, n=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.found = true %}{% set ns.n = ns.n + loop.index %}{% endif %}{% endfor %}{{ ns.found }} {{ ns.n }}",
    "{% set a, b = 1, 'two' %}{{ a }}{{ b }}{% set block %}x{{ a }}\ny{% endset %}[{{ block }}]{% set t = 1, 2 %}{{ t | length }}",
    "{% if number == 1 %}one{% elif number == 7 %}seven{% elif true %}no{% else %}else{% endif %}{% if not messages %}x{% else %}y{% endif %}",
    "{% macro greet(name, mark, greeting='Hello') %}{{ greeting }}, {{ name }}{{ mark }}{% endmacro %}{{ greet('A') }} {{ greet('B', mark='!') }} {{ greet(greeting='Bye', name='C') | upper }}",
    "{% macro down(n) %}{{ n }}{% if n > 0 %}{{ down(n - 1) }}{% endif %}{% endmacro %}{{ down(3) }}{% set outer = 'o' %}{% macro sees() %}{{ outer }}{{ number }}{% endmacro %}{% for i in [1] %}{% set inner = 1 %}{{ sees() }}{% endfor %}{{ sees is defined }}",
    "{% set ns = namespace(t='') %}{% macro note(x) %}{% set ns.t = ns.t ~ x %}{% endmacro %}{{ note('a') }}{{ note('b') }}{{ ns.t }}",
    "{% macro raise_it(n) %}{% set n.v = n.v + 4 %}{% endmacro %}{% set q = namespace(v=1) %}{% set same = q %}{{ raise_it(q) }}{{ q.v }}{% set same.v = 2 %}{{ q.v }}{{ q.other is defined }}{{ q['v'] }}",
    "{% set inside %}{% set y = 1 %}a{% endset %}{{ y is defined }}{% for i in [1] %}{{ loop is defined }}{% endfor %}{{ loop is defined }}{{ dict is defined }}",
    "{{ 100000.0 }} {{ 0.0001 }} {{ 1e16 }} {{ 0.00001 }} {{ 123456789.5 }} {{ ['\t\r'] }} {{ '3abc' | int }} {{ ['a', 'A'] | unique | list }} {{ 'é' | tojson }} {{ 'é' | tojson(true) }}",
    "{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }} {{ 'x'.removesuffix('y') }} {{ dict(a=1, b=[2]) | tojson }}",
    "{% generation %}{{ messages[2].content }}{% endgeneration %}{{ eos_token }}",
    # what is refused
    "{{ raise_exception('alternate!') }}",
    "{{ nope.part }}",
    "{{ nope() }}",
    "{{ 'a' + 1 }}",
    "{{ messages + 'a' }}",
    "{{ 1 / 0 }}",
    "{{ number | no_such_filter }}",
    "{{ number is no_such_test }}",
    "{{ 'a' < 1 }}",
    "{{ none | length }}",
    "{{ 'abc' | map('nope') | list }}",
    "{% if true %}open",
    "{% endif %}",
    "{{ 'open }}",
    "{{ (1 }}",
    "{{ }}",
    "{% for in x %}{% endfor %}",
    "{% set 1 = 2 %}",
    "{% no_such_statement %}",
    "{{ 1 + }}",
    "{{ a b }}",
    "{# open",
]


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def main():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    cases = []
    for template in TEMPLATES:
        try:
            text = environment.from_string(template).render(**VARIABLES)
        except Exception:  # whatever Python says to it
            text = None
        cases.append({"template": template, "text": text})
    GOLDEN.write_text(json.dumps({"variables": VARIABLES, "cases": cases}, indent=1) + "\n")
    print(f"{len(cases)} templates, {sum(case['text'] is None for case in cases)} of them refused")


if __name__ == "__main__":
    main()
