#!/usr/bin/env python3
"""Writes tests/golden/jinja.json: what Jinja2, set up as transformers sets it up, makes of the templates in jinja_cases.py.

Needs the jinja2 package (see requirements.txt). Tests read the committed file only.
"""
import datetime
import json
import pathlib

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

import jinja_cases as cases


class Generation(Extension):
    """transformers marks the model's own words with {% generation %}; the text passes through."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def render(source, tools):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = datetime.datetime.now().strftime
    template = environment.from_string(source)
    return template.render(messages=cases.CHAT, tools=tools, documents=None, add_generation_prompt=True, bos_token="<s>", eos_token="</s>")


def main():
    made = []
    for kind, sources in [("whole", cases.WHOLE), ("statement", cases.STATEMENTS), ("error", cases.ERRORS)]:
        for source in sources:
            for tools in [None, cases.TOOLS] if kind == "whole" else [None]:
                made.append({"kind": kind, "template": source, "tools": tools})
    for line in cases.EXPRESSIONS:
        # One tuple per line in the list; each expression by itself, so that str() and not repr() is seen too.
        made.append({"kind": "expression", "template": "{{ [" + line + "] }}", "tools": None})
        made.append({"kind": "expression", "template": "{{ (" + line + ") }}", "tools": None})
    for case in made:
        try:
            case["text"] = render(case["template"], case["tools"])
        except Exception as error:  # any failure at all: the message is not compared
            case["error"] = f"{type(error).__name__}: {error}"[:200]
        if (case["kind"] == "error") != ("error" in case):
            print("unexpected:", json.dumps(case))
    out = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "jinja.json"
    data = {"jinja2": jinja2.__version__, "messages": cases.CHAT, "bos_token": "<s>", "eos_token": "</s>", "cases": made}
    out.write_text(json.dumps(data, indent=1) + "\n")
    print(f"{out.name}: {len(made)} cases")


if __name__ == "__main__":
    main()
