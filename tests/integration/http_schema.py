#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""http_schema.py DOCUMENT: reads lines "METHOD STATUS FILE PATH" and says for each whether the answer in that file is what the
document of the server says: that it has such a route, that nothing is in the answer that the document does not have, and that
all of it is of its kind. "good", or one line of what is wrong."""
import json
import sys

KINDS = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
         "null": type(None)}


class Fault(Exception):
    pass


def wrong(where, text):
    raise Fault(f"{where or 'the answer'}: {text}")


def check(document, schema, value, where=""):
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if "anyOf" in schema:
        faults = [fault_of(document, choice, value, where) for choice in schema["anyOf"]]
        if all(faults):
            wrong(where, faults[-1])
        return
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(isinstance(value, KINDS[k]) and (k == "boolean" or not isinstance(value, bool)) for k in kinds):
        wrong(where, f"{value!r:.100} is not of kind {kinds}")
    if isinstance(value, list):
        for i, item in enumerate(value):
            check(document, schema["items"], item, f"{where}[{i}]")
    if isinstance(value, dict):
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            if inner is None:
                wrong(f"{where}.{key}", "the document does not know it")
            check(document, inner, item, f"{where}.{key}")


def fault_of(document, schema, value, where):
    try:
        check(document, schema, value, where)
    except Fault as fault:
        return str(fault)
    return None


def fits(template, path):
    parts, given = template.split("/"), path.split("?")[0].split("/")
    return len(parts) == len(given) and all(a == b or a.startswith("{") for a, b in zip(parts, given))


def judge(document, method, status, name, path):
    for template, methods in document["paths"].items():
        if fits(template, path) and method.lower() in methods:
            answers = methods[method.lower()]["responses"]
            schema = answers.get(status, answers["default"])["content"]["application/json"]["schema"]
            with open(name, encoding="utf-8") as file:
                check(document, schema, json.load(file))
            return
    wrong(path, f"the document has no {method} of it")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        document = json.load(file)
    for line in sys.stdin:
        try:
            judge(document, *line.rstrip("\n").split(" ", 3))
            print("good", flush=True)
        except (Fault, KeyError, ValueError) as fault:
            print(repr(fault), flush=True)


main()
