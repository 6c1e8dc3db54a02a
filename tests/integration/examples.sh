#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every example runs to its end. Each takes the URL of the broker as its only argument and ends by itself.

set -euo pipefail
: "${MR_BINARY_DIR:?is set by ctest: the folder of the release build}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

for source in examples/*.c; do
    name=$(basename "$source" .c)
    echo "== $name"
    timeout 60 "$MR_BINARY_DIR/examples/$name" "file:$room/$name"
done
