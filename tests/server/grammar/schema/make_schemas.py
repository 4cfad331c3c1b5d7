"""Writes schemas.jsonl: one schema a line, in the manner of public collections (function signatures,
configuration files, records, tagged unions, trees), with the keywords that they use. The same every time.

    python3 tests/server/grammar/schema/make_schemas.py > tests/server/grammar/schema/schemas.jsonl
"""
import json
import random

WORDS = ("id name title email status created_at updated_at price amount currency quantity address city "
         "country zip phone age active tags labels kind type version url path method body headers "
         "user author owner message level code reason score rank weight height width color size "
         "start end duration count limit offset page items total notes description category").split()
VALUES = "red green blue small medium large open closed pending done draft info warning error low high".split()
FORMATS = ["date-time", "date", "time", "email", "uuid", "ipv4", "uri", "hostname", "duration"]
PATTERNS = [r"^[A-Z]{3}$", r"^\d{5}(-\d{4})?$", r"^[a-z][a-z0-9_]{0,15}$", r"^#[0-9a-fA-F]{6}$",
            r"^v\d{1,3}\.\d{1,3}\.\d{1,3}$", r"^(GET|POST|PUT)$", r"^[^@\s]{1,20}@[a-z]{1,10}\.com$", r"^\+?[0-9 -]{7,15}$"]


def scalar(r):
    pick = r.randrange(12)
    if pick < 2:
        return {"type": "string"}
    if pick == 2:
        low = r.randrange(0, 4)
        return {"type": "string", "minLength": low, "maxLength": low + r.choice([1, 5, 20, 100])}
    if pick == 3:
        return {"type": "string", "enum": r.sample(VALUES, r.randrange(2, 6))}
    if pick == 4:
        return {"type": "string", "format": r.choice(FORMATS)}
    if pick == 5:
        return {"type": "string", "pattern": r.choice(PATTERNS)}
    if pick == 6:
        return {"type": "integer"}
    if pick == 7:
        low = r.choice([-100, 0, 1, 18])
        return {"type": "integer", "minimum": low, "maximum": low + r.choice([1, 10, 365, 65535])}
    if pick == 8:
        return {"type": "number", "minimum": r.choice([0, -90, 0.5]), "exclusiveMaximum": r.choice([1, 90, 1e6])}
    if pick == 9:
        return {"type": "boolean"}
    if pick == 10:
        return {"type": ["string", "null"], "description": "may be missing"}
    return {"const": r.choice([1, "fixed", None, True])}


def array(r, depth):
    schema = {"type": "array", "items": value(r, depth - 1)}
    if r.random() < 0.5:
        schema["maxItems"] = r.choice([1, 3, 5])
    if r.random() < 0.3:
        schema["minItems"] = r.choice([0, 1])
    return schema


def value(r, depth):
    if depth <= 0 or r.random() < 0.6:
        return scalar(r)
    return r.choice([array, obj])(r, depth)


def obj(r, depth, open_share=0.2):
    names = r.sample(WORDS, r.randrange(1, 7))
    schema = {"type": "object", "properties": {n: value(r, depth - 1) for n in names}}
    schema["required"] = r.sample(names, r.randrange(1, len(names) + 1))
    if r.random() > open_share:
        schema["additionalProperties"] = False
    return schema


def function_call(r):
    return {"type": "object", "properties": {
        "name": {"const": "_".join(r.sample(WORDS, 2))},
        "arguments": obj(r, 2, 0)}, "required": ["name", "arguments"], "additionalProperties": False}


def tagged_union(r):
    kinds = r.sample(VALUES, r.randrange(2, 6))
    return {r.choice(["anyOf", "oneOf"]): [
        {"type": "object", "properties": {"kind": {"const": k}, **obj(r, 1)["properties"]},
         "required": ["kind"], "additionalProperties": False} for k in kinds]}


def tree(r):
    payload = r.choice(WORDS)
    node = {"type": "object", "properties": {
        payload: scalar(r), "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": r.choice([1, 2, 3])}},
        "required": [payload, "children"], "additionalProperties": False}
    return {"$defs": {"node": node}, "$ref": "#/$defs/node"}


def linked_list(r):
    return {"type": "object", "properties": {"value": scalar(r), "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
            "required": ["value", "next"], "additionalProperties": False}


def shared_definitions(r):
    parts = r.sample(WORDS, 3)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "record",
            "$defs": {p: obj(r, 1, 0) for p in parts}, "type": "object",
            "properties": {p: {"$ref": f"#/$defs/{p}"} for p in parts}, "required": parts[:2],
            "additionalProperties": False}


def all_of(r):
    a, b = obj(r, 1, 1), obj(r, 1, 1)
    for name in set(a["properties"]) & set(b["properties"]):
        del b["properties"][name]
        if name in b["required"]:
            b["required"].remove(name)
    return {"allOf": [a, b]}


def tuples(r):
    return {"type": "array", "prefixItems": [scalar(r) for _ in range(r.randrange(1, 5))],
            "items": r.choice([False, {"type": "integer"}]), "minItems": 1, "maxItems": 6}


def geometry(r):
    point = {"type": "array", "items": {"type": "number", "minimum": -180, "maximum": 180}, "minItems": 2, "maxItems": 3}
    return {"type": "object", "properties": {
        "type": {"enum": ["Point", "LineString"]},
        "coordinates": {"anyOf": [point, {"type": "array", "items": point, "minItems": 2, "maxItems": 4}]}},
        "required": ["type", "coordinates"], "additionalProperties": False}


def mapping(r):
    return {"type": "object", "additionalProperties": value(r, 1)}


def configuration(r):
    return {"type": "object", "properties": {
        "version": {"type": "string", "pattern": r"^\d{1,3}\.\d{1,3}$"},
        "services": {"type": "array", "items": obj(r, 2, 0), "maxItems": 3},
        "env": {"type": "object", "additionalProperties": {"type": ["string", "integer", "boolean"]}},
        "logging": {"type": "object", "properties": {"level": {"enum": ["debug", "info", "warn"]}}, "required": ["level"],
                    "additionalProperties": False}},
        "required": ["version", "services"], "additionalProperties": False}


FAMILIES = [function_call] * 4 + [lambda r: obj(r, 3)] * 5 + [tagged_union] * 3 + [
    tree, linked_list, shared_definitions, shared_definitions, all_of, tuples, geometry, mapping,
    configuration, lambda r: array(r, 3), scalar, lambda r: {"type": "object"}, lambda r: {}]
UNSUPPORTED = {
    "multipleOf": {"type": "integer", "multipleOf": 5}, "not": {"not": {"type": "null"}},
    "patternProperties": {"type": "object", "patternProperties": {"^x-": {}}},
    "if": {"if": {"type": "string"}, "then": {"minLength": 1}}, "uniqueItems": {"type": "array", "uniqueItems": True},
    "contains": {"type": "array", "contains": {"type": "integer"}}, "minProperties": {"type": "object", "minProperties": 1},
    "propertyNames": {"type": "object", "propertyNames": {"pattern": "^a"}},
    "dependentRequired": {"type": "object", "dependentRequired": {"a": ["b"]}},
    "unevaluatedProperties": {"type": "object", "unevaluatedProperties": False},
    "$dynamicRef": {"$dynamicRef": "#meta"}, "$anchor": {"$anchor": "here", "type": "null"}}


def main():
    r = random.Random(20)
    seen = set()
    while len(seen) < 230:
        text = json.dumps({"schema": r.choice(FAMILIES)(r)}, separators=(",", ":"))
        if text not in seen:
            seen.add(text)
            print(text)
    for keyword, schema in UNSUPPORTED.items():
        print(json.dumps({"schema": {"type": "object", "properties": {"a": schema}}, "refused": keyword}, separators=(",", ":")))


main()
