#!/usr/bin/env python3
"""Makes tests/golden/jinja.json: templates, what they are rendered with, and what the PyPI package `jinja2` makes of
them under the settings of Hugging Face's apply_chat_template (null where it refuses).

    pip install jinja2
    scripts/goldens/make_jinja_goldens.py
"""

import json
from datetime import datetime
from pathlib import Path

import jinja2.exceptions
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox
import jinja2.utils

from jinja_constructs import TEMPLATES, VARIABLES

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "jinja.json"


class Generation(jinja2.ext.Extension):
    """What {% generation %} marks is rendered as a block that is called."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_written"), [], [], body).set_lineno(line)

    def _written(self, caller):
        return caller()


class Dict:
    def __call__(self, *values, **named):
        return dict(*values, **named)

    def fromkeys(self, *values):
        return dict.fromkeys(*values)


class Namespace(jinja2.utils.Namespace):
    """Keeps no names that begin with an underscore."""

    def __init__(*values, **named):
        self, rest = values[0], values[1:]
        for name in dict(*rest, **named):
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(self, dict(*rest, **named))

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def strftime_now(form):
    return datetime(2024, 7, 26).strftime(form)


def main():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now, "dict": Dict(),
                            "namespace": Namespace}
    cases = []
    for template in TEMPLATES:
        try:
            text = environment.from_string(template).render(**VARIABLES)
        except Exception:  # whatever Python says to it
            text = None
        cases.append({"template": template, "text": text})
    GOLDEN.write_text(json.dumps({"jinja2": jinja2.__version__, "variables": VARIABLES, "cases": cases}, indent=1) + "\n")
    print(f"{len(cases)} templates, {sum(case['text'] is None for case in cases)} of them refused")


if __name__ == "__main__":
    main()
