#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzzer for FUZZ_SECONDS (default 60) under libFuzzer with ASan and UBSan, starting from the
# corpus in the tree. New inputs stay in build/fuzz/corpus; a crashing one is written to
# build/fuzz/found, from where it belongs into tests/fuzz/corpus with the fix.
#
#   fuzz.sh                  builds them and runs all
#   fuzz.sh build            only builds them
#   fuzz.sh run NAME...      runs these, which are built
#
# With FUZZ_KEEP=1 those new inputs that reach code that no other does go into tests/fuzz/corpus.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${FUZZ_SECONDS:-60}
kept_max=4096 # bytes of an input that is worth a place in the tree

build() {
    cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang \
        -DMR_SANITIZE=address -DMR_FUZZ=ON >/dev/null
    cmake --build build/fuzz -j "${JOBS:-2}" --target fuzzers
}

mkdir -p build/fuzz/found build/fuzz/said

# fuzz NAME: one of them; what it says is shown when it is over.
fuzz() {
    local name=$1 grown=build/fuzz/corpus/${1#fuzz_} kept=tests/fuzz/corpus/${1#fuzz_} end=passed
    local corpora=("$grown")
    mkdir -p "$grown"
    if [ -d "$kept" ]; then
        corpora+=("$kept")
    fi
    "build/fuzz/tests/$name" -max_total_time="$seconds" -artifact_prefix=build/fuzz/found/ \
        -print_final_stats=1 -verbosity=0 "${corpora[@]}" >"build/fuzz/said/$name" 2>&1 ||
        end="FAILED, see build/fuzz/found"
    if [ "$end" = passed ] && [ "${FUZZ_KEEP:-0}" = 1 ]; then
        mkdir -p "$kept"
        "build/fuzz/tests/$name" -merge=1 -max_len="$kept_max" -verbosity=0 "$kept" "$grown" >/dev/null 2>&1 ||
            end="FAILED to keep its corpus"
    fi
    cat "build/fuzz/said/$name"
    echo "== $name for $seconds s: $end"
    [ "$end" = passed ]
}

# run NAMES...: as many at a time as there are cores.
run() {
    local failed=0 running=0 name
    for name in "$@"; do
        if [ "$running" -ge "${JOBS:-2}" ]; then
            wait -n || failed=1
            running=$((running - 1))
        fi
        fuzz "$name" &
        running=$((running + 1))
    done
    for (( ; running > 0; running--)); do
        wait -n || failed=1
    done
    return "$failed"
}

case "${1:-}" in
build) build ;;
run)
    shift
    run "$@"
    ;;
"")
    build
    names=()
    for source in tests/fuzz/fuzz_*.c; do names+=("$(basename "$source" .c)"); done
    run "${names[@]}"
    ;;
*)
    echo "fuzz: unknown word '$1' (build or run)" >&2
    exit 2
    ;;
esac
