"""Writes goldens.json: what Hugging Face's environment makes of templates of our own.

python make_goldens.py    needs transformers and jinja2
"""

import datetime
import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template

from blocks import BLOCKS
from conversations import CONVERSATIONS
from expressions import DATA, EXPRESSIONS, MISTAKES, split_expressions
from styles import STYLES

NOW = datetime.datetime(2026, 3, 4, 5, 6, 7)


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
