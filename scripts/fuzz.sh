#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzzer for FUZZ_SECONDS (default 60) of processor time under libFuzzer with ASan and UBSan, starting from
# the corpus in the tree. New inputs stay in build/fuzz/corpus; a crashing one is written to
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

# spend NAME CORPORA...: so many seconds of processor time. libFuzzer counts those of the clock, so where something else has the
# machine it goes on with what is left; less than a twentieth is not worth another start.
spend() {
    local name=$1 spent=0 TIMEFORMAT='%U %S' said=build/fuzz/said/$1
    shift
    : >"$said"
    while ((spent * 20 < seconds * 19)); do
        { time "build/fuzz/tests/$name" -max_total_time=$((seconds - spent)) -artifact_prefix=build/fuzz/found/ \
            -print_final_stats=1 -verbosity=0 "$@" >>"$said" 2>&1; } 2>"$said.time" || return 1
        spent=$((spent + $(awk '{ print int($1 + $2 + 0.5) }' "$said.time")))
    done
}

# fuzz NAME: one of them; what it says is shown when it is over.
fuzz() {
    local name=$1 grown=build/fuzz/corpus/${1#fuzz_} kept=tests/fuzz/corpus/${1#fuzz_} end=passed
    local corpora=("$grown")
    mkdir -p "$grown"
    if [ -d "$kept" ]; then
        corpora+=("$kept")
    fi
    spend "$name" "${corpora[@]}" || end="FAILED, see build/fuzz/found"
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
