#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the next tests/golden/wire/N.txt: each message of proto/millrace/v1 with every field, in the bytes that another
implementation of Protocol Buffers makes of it, and as text. A field that an earlier file has stays as it is there: only what is
new gets a line. Files that exist are never written again.

A line: the message, its bytes in hex, and what they say. Of a oneof each member has a line of its own.
"""

import glob
import os
import re
import subprocess
import tempfile

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor as F

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(ROOT, "tests", "golden", "wire")
BIG = 1 << 40

# The value of the n-th entry of a field, by its type.
VALUES = {
    F.TYPE_BOOL: lambda field, n: n == 0,
    F.TYPE_STRING: lambda field, n: "s\u00e4%d.%d" % (field.number, n),
    F.TYPE_BYTES: lambda field, n: bytes([0, 255, field.number, n]),
    F.TYPE_DOUBLE: lambda field, n: field.number + n + 0.5,
    F.TYPE_ENUM: lambda field, n: field.enum_type.values[-1 - n].number,
    F.TYPE_INT32: lambda field, n: -100 - field.number - n,
    F.TYPE_SINT32: lambda field, n: -100 - field.number - n,
    F.TYPE_UINT32: lambda field, n: 100 + field.number + n,
    F.TYPE_FIXED32: lambda field, n: 100 + field.number + n,
    F.TYPE_INT64: lambda field, n: -BIG - field.number - n,
    F.TYPE_SINT64: lambda field, n: -BIG - field.number - n,
    F.TYPE_UINT64: lambda field, n: BIG + field.number + n,
    F.TYPE_FIXED64: lambda field, n: BIG + field.number + n,
}


def messages():
    with tempfile.NamedTemporaryFile() as file:
        protos = sorted(glob.glob(os.path.join(ROOT, "proto", "millrace", "v1", "*.proto")))
        proto = os.path.join(ROOT, "proto")
        subprocess.run(["protoc-c", "--descriptor_set_out=" + file.name, "-I", proto] + protos, check=True)
        with open(file.name, "rb") as described:
            files = descriptor_pb2.FileDescriptorSet.FromString(described.read())
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.Add(each)
    names = ["%s.%s" % (each.package, message.name) for each in files.file for message in each.message_type]
    return message_factory.MessageFactory(pool), [pool.FindMessageTypeByName(name) for name in sorted(names)]


def entry(factory, field, n):
    if field.type == F.TYPE_MESSAGE:  # it has a line of its own: here its plain fields are enough
        plain = [f for f in field.message_type.fields if f.type != F.TYPE_MESSAGE]
        return filled(factory, field.message_type, plain, n)
    return VALUES[field.type](field, n)


def filled(factory, descriptor, fields, n):
    message = factory.GetPrototype(descriptor)()
    seen = set()
    for field in fields:
        if field.containing_oneof is not None:
            if field.containing_oneof.name in seen:
                continue
            seen.add(field.containing_oneof.name)
        if field.label == F.LABEL_REPEATED:
            getattr(message, field.name).extend(entry(factory, field, n + i) for i in range(2))
        elif field.type == F.TYPE_MESSAGE:
            getattr(message, field.name).CopyFrom(entry(factory, field, n))
            getattr(message, field.name).SetInParent()
        else:
            setattr(message, field.name, entry(factory, field, n))
    return message


def variants(descriptor):
    """Fields that can stand together, so that each is in one of them."""
    together = [field for field in descriptor.fields if field.containing_oneof is None]
    yield together
    for oneof in descriptor.oneofs:
        for field in oneof.fields:
            yield [field]


def text_of_value(field, value):
    if field.type == F.TYPE_MESSAGE:
        return "{%s}" % text_of(value)
    if field.type == F.TYPE_STRING:
        return '"%s"' % value
    if field.type == F.TYPE_BYTES:
        return value.hex()
    if field.type == F.TYPE_BOOL:
        return "true" if value else "false"
    return "%g" % value if field.type == F.TYPE_DOUBLE else str(value)


def text_of(message):
    said = []
    for field, value in message.ListFields():
        values = value if field.label == F.LABEL_REPEATED else [value]
        said.append("%s=%s" % (field.name, ",".join(text_of_value(field, each) for each in values)))
    return " ".join(said)


def known_fields(files):
    """(message, field) that have a place in a file already."""
    known = set()
    for path in files:
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.startswith("#"):
                    continue
                name, _, text = (line.rstrip("\n").split(" ", 2) + [""])[:3]
                known.add((name, None))
                while "{" in text:
                    text = re.sub(r"\{[^{}]*\}", "", text)
                known.update((name, field) for field in re.findall(r"(?:^| )(\w+)=", text))
    return known


def main():
    os.makedirs(FOLDER, exist_ok=True)
    files = glob.glob(os.path.join(FOLDER, "*.txt"))
    known = known_fields(files)
    factory, descriptors = messages()
    lines = []
    for descriptor in descriptors:
        for fields in variants(descriptor):
            if all((descriptor.full_name, field.name) in known for field in fields) and (descriptor.full_name, None) in known:
                continue
            message = filled(factory, descriptor, fields, 0)
            lines.append("%s %s %s" % (descriptor.full_name, message.SerializeToString(deterministic=True).hex() or "-",
                                       text_of(message)))
    if not lines:
        print("make_wire: every field has its bytes already")
        return
    path = os.path.join(FOLDER, "%d.txt" % (len(files) + 1))
    with open(path, "x", encoding="utf-8") as file:
        file.write("# SPDX-License-Identifier: Apache-2.0\n")
        file.write("".join(line.rstrip() + "\n" for line in lines))
    print("make_wire: %s has %d messages" % (os.path.relpath(path, ROOT), len(lines)))


if __name__ == "__main__":
    main()
