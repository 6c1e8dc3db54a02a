#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzzer for FUZZ_SECONDS (default 60) under libFuzzer with ASan and UBSan, starting from the
# corpus in the tree. New inputs stay in build/fuzz/corpus; a crashing one is written to
# build/fuzz/found, from where it belongs into tests/fuzz/corpus with the fix.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${FUZZ_SECONDS:-60}
cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang \
    -DMR_SANITIZE=address -DMR_FUZZ=ON >/dev/null
cmake --build build/fuzz -j "${JOBS:-2}" --target fuzzers

mkdir -p build/fuzz/found
failed=0
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    grown=build/fuzz/corpus/${name#fuzz_}
    kept=tests/fuzz/corpus/${name#fuzz_}
    mkdir -p "$grown"
    corpora=("$grown")
    if [ -d "$kept" ]; then
        corpora+=("$kept")
    fi
    echo "== $name for $seconds s"
    if ! "build/fuzz/tests/$name" -max_total_time="$seconds" -artifact_prefix=build/fuzz/found/ \
        -print_final_stats=1 -verbosity=0 "${corpora[@]}"; then
        echo "== $name: FAILED, see build/fuzz/found"
        failed=1
    fi
done
exit "$failed"
