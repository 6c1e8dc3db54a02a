#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An OpenAPI document from standard input as sorted lines: each operation, parameter and field with its type. What a client of an
earlier version relies on is a line that must still be there.
"""

import json
import sys

DOCUMENT = json.load(sys.stdin)


def resolved(schema):
    while "$ref" in schema:
        node = DOCUMENT
        for part in schema["$ref"].lstrip("#/").split("/"):
            node = node[part]
        schema = node
    return schema


def fields(schema, path, seen):
    """(path, type) of all that a value of the schema has."""
    name = schema.get("$ref", "")
    if name in seen:
        return
    seen = seen | {name} if name else seen
    schema = resolved(schema)
    kind = schema.get("type", "object" if "properties" in schema else "any")
    yield path or ".", kind if isinstance(kind, str) else "|".join(kind)
    for key, value in schema.get("properties", {}).items():
        yield from fields(value, "%s.%s" % (path, key), seen)
    if "items" in schema:
        yield from fields(schema["items"], path + "[]", seen)
    for key in ("oneOf", "anyOf", "allOf"):
        for value in schema.get(key, []):
            yield from fields(value, path, seen)


def bodies(content):
    for media, value in content.items():
        yield media, value.get("schema", {})


def lines():
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            if not isinstance(operation, dict):
                continue
            name = "%s %s" % (method.upper(), path)
            yield "route %s" % name
            for parameter in operation.get("parameters", []):
                parameter = resolved(parameter)
                kind = resolved(parameter.get("schema", {})).get("type", "any")
                yield "parameter %s %s %s %s" % (name, parameter["in"], parameter["name"], kind)
            for media, schema in bodies(resolved(operation.get("requestBody", {})).get("content", {})):
                for field, kind in fields(schema, "", frozenset()):
                    yield "body %s %s %s %s" % (name, media, field, kind)
            for code, answer in operation.get("responses", {}).items():
                yield "answer %s %s" % (name, code)
                for media, schema in bodies(resolved(answer).get("content", {})):
                    for field, kind in fields(schema, "", frozenset()):
                        yield "answer %s %s %s %s %s" % (name, code, media, field, kind)


print("\n".join(sorted(set(lines()))))
