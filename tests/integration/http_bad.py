#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""http_bad.py HOST:PORT: walks /openapi.json and sends what is wrong, field by field."""

import http.client
import json
import sys

HOST, PORT = sys.argv[1].rsplit(":", 1)
WAIT_S = 120

# By the kind of a field: what is not of it.
WRONG = {
    "string": [5, True, [], {}],
    "integer": ["x", 1.5, True, [], {}, -1],
    "number": ["x", True, [], {}],
    "boolean": ["x", 1, [], {}],
    "object": [5, "x", [], {"a": {}}, {"a": []}],
    "array": [5, "x", {}, [5], [None], [[]]],
}
# Of the right kind; whether they may be so is for the route to say, but nothing of them may come back raw.
HOSTILE = ["", "\u0000", "a\r\nSet-Cookie: x=1", "\u001b[31mred", "<script>alert(1)</script>", "\u202egnp.exe", "x" * 2000,
           "\\\"'`$(id)", "../../etc/passwd", "\ufffe", "{{7*7}}"]
BODIES = [b"", b"{", b"nul", b"\xff\xfe", b'{"a":1e999}', b'{"a":' * 10000, b"[" * 100000, b'{"a":"\\ud800"}', b'{"x":1,"x":2}',
          b'{"no_such_field":1}', b'"text"', b"7", b"null"]
PARAMETERS = ["%01", "%ff%fe", "%00", "x" * 3000, "%0d%0aX:1", "-1", "99999999999999999999", "{}", "%e2%80%ae", "*"]
NUMBERS = ["x", "-1", "1.5", "99999999999999999999", ""]
# A body that is well, so that what is wrong with it is the field.
WELL = {
    "new_tasks": {"queue": "bad"},
    "take": {"queues": {"bad": 1}},
    "runs": [{"id": "x", "epoch": 1}],
    "ends": {"id": "x", "epoch": 1, "outcome": "ok"},
    "bulk": {"action": "run", "state": "archived", "dry_run": True},
    "requeue": {"ids": ["x"]},
    "new_timer": {"name": "t", "kind": "manual"},
    "new_job": {"parts": ["a"], "queue": "bad"},
    "queue_settings": {"max_length": 1},
}
connection = None
sent = 0


def check(fine, what):
    if not fine:
        sys.exit(f"FAILED: {what}")


def ask(method, path, body=None, streams=False):
    """Status and text; a connection that the server has closed behind a refusal is made anew, once."""
    global connection, sent
    sent += 1
    for again in (False, True):
        if connection is None:
            connection = http.client.HTTPConnection(HOST, int(PORT), timeout=WAIT_S)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            text = b"" if streams and answer.status == 200 else answer.read()
            if streams or answer.will_close:
                connection.close()
                connection = None
            return answer.status, text
        except (http.client.HTTPException, OSError):
            connection = None
            check(not again, f"{method} {path} {body!r:.200}: no answer")


def line_of(what, text):
    """The message of a refusal: one line, JSON, nothing raw in it."""
    try:
        failure = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        check(False, f"{what}: not an error in JSON: {text!r:.300}")
    message = failure["message"]
    check(failure["code"].isupper() and message, f"{what}: {failure}")
    check(not any(ord(c) < 0x20 or ord(c) == 0x7F for c in message), f"{what}: {message!r}")
    return message


def is_refused(status, text):
    """A list of answers may say it for each."""
    if 400 <= status < 500:
        return True
    answers = json.loads(text) if status == 200 else None
    return isinstance(answers, list) and bool(answers) and all("error" in answer for answer in answers)


def judge(what, status, text, must_be_wrong):
    check(status < 500, f"{what}: {status} {text!r:.300}")
    check(not must_be_wrong or is_refused(status, text), f"{what}: taken, {status} {text!r:.300}")
    return line_of(what, text) if status >= 400 else None


class Walk:
    def __init__(self, document):
        self.document = document

    def schema(self, schema):
        while "$ref" in schema or "anyOf" in schema:
            if "anyOf" in schema:
                schema = schema["anyOf"][0]
            else:
                schema = self.document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        return schema

    def body(self, method, path, operation):
        content = operation["requestBody"]["content"]["application/json"]["schema"]
        name = content["$ref"].rsplit("/", 1)[1]
        check(name in WELL, f"{method} {path}: no body that is well: add one")
        for bytes_ in BODIES:
            what = f"{method} {path} {bytes_!r:.60}"
            judge(what, *ask(method, path, bytes_), True)
        schema, well = self.schema(content), WELL[name]
        items = schema["type"] == "array"
        fields = self.schema(schema["items"]) if items else schema
        for field, kind in fields["properties"].items():
            self.field(method, path, (well[0] if items else well, items), field, self.schema(kind))

    def field(self, method, path, well, field, kind):
        for value in WRONG[kind["type"]] + (HOSTILE if kind["type"] == "string" else []):
            body = dict(well[0], **{field: value})
            text = json.dumps([body] if well[1] else body).encode()
            what = f"{method} {path} {field}={value!r:.60}"
            wrong = not (isinstance(value, str) and kind["type"] == "string")
            message = judge(what, *ask(method, path, text), wrong)
            if wrong and message is not None and field in well[0]:
                where = (field, "JSON", "deeper", "offset")
                check(any(word in message for word in where), f"{what}: what is wrong? {message}")

    def parameters(self, method, path, operation):
        streams = "text/event-stream" in json.dumps(operation["responses"])
        body = b"{}" if "requestBody" in operation else None
        for parameter in operation["parameters"]:
            if parameter["in"] == "path":
                for value in PARAMETERS:
                    there = path.replace("{" + parameter["name"] + "}", value)
                    judge(f"{method} {there:.100}", *ask(method, there, body, streams), False)
                continue
            number = parameter["schema"]["type"] == "integer"
            for value in NUMBERS if number else PARAMETERS:
                there = path.replace("{", "").replace("}", "") + f"?{parameter['name']}={value}"
                judge(f"{method} {there:.100}", *ask(method, there, body, streams), False)

    def all(self):
        for path, methods in self.document["paths"].items():
            for method, operation in methods.items():
                self.parameters(method.upper(), path, operation)
                if "requestBody" in operation:
                    self.body(method.upper(), path.replace("{", "").replace("}", ""), operation)


def main():
    status, text = ask("GET", "/openapi.json")
    check(status == 200, "no document")
    Walk(json.loads(text)).all()
    check(sent > 1000, f"only {sent} were sent")


main()
