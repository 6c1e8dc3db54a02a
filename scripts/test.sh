#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds what the tests need and runs them:
#
#   test.sh sample   tidy; everything at a small size under ASan + UBSan; what has threads under TSan;
#                    integration tests, and those of lack of memory, on the release build
#   test.sh long     the campaigns at full size, four at a time, under ASan + UBSan; every fuzzer for 20 s;
#                    every planted bug; every promised figure and time, with nothing beside it
#   test.sh soak     for SOAK_SECONDS (default 600) on the release build: mixed load on a store whose process is
#                    killed, and masters and workers at a server and at a Redis that are killed, stopped and cut
#                    off at random; and beside it the campaigns with fresh seeds
#
# All stages run even when one fails; the end says which failed.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

jobs=${JOBS:-2}
# Most tests wait for something most of the time: more of them than cores run beside each other.
beside=$((5 * jobs))
failed=()

# stage NAME COMMAND...: runs the command, says how long it took, remembers a failure.
stage() {
    local name=$1 began=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    if "$@"; then
        printf '== %s: passed in %d s\n' "$name" $((SECONDS - began))
    else
        printf '== %s: FAILED after %d s\n' "$name" $((SECONDS - began))
        failed+=("$name")
    fi
}

# compile FOLDER TARGET CMAKE-OPTION...
compile() {
    local folder=$1 target=$2
    shift 2
    cmake -S . -B "$folder" -G Ninja "$@" >/dev/null && cmake --build "$folder" -j "$jobs" --target "$target"
}

# run FOLDER CTEST-OPTION...
run() {
    local folder=$1
    shift
    ctest --test-dir "$folder" --output-on-failure --no-tests=error "$@"
}

# run_beside FOLDER CTEST-OPTION...: many at a time. Some of these tests judge how long something took, and a machine that has
# ten of them to run is late itself at times: what failed is run once more, by itself, and the run says which that were.
# What a sanitizer finds is no matter of time: that stays a failure.
run_beside() {
    local folder=$1 log
    log=$folder/Testing/beside.log
    mkdir -p "$folder/Testing"
    if run "$@" | tee "$log"; then
        return 0
    fi
    if grep -qE 'ERROR: AddressSanitizer|runtime error:|WARNING: ThreadSanitizer' "$log"; then
        return 1
    fi
    printf '== failed beside others, now each by itself:\n'
    grep -E '^ *[0-9]+/[0-9]+ Test .*\*\*\*' "$log" || true
    run "$folder" -j 1 --rerun-failed
}

# In the build folder, which is on a disk.
figures() {
    (cd build && ../scripts/figures.py ./millrace all)
}

sample() {
    stage "check" scripts/tidy.py
    stage "build (release)" compile build release_tests -DCMAKE_BUILD_TYPE=Release
    stage "build (ASan + UBSan)" compile build/asan all -DCMAKE_BUILD_TYPE=Debug -DMR_SANITIZE=address
    stage "build (TSan)" compile build/tsan threads_tests -DCMAKE_BUILD_TYPE=Debug -DMR_SANITIZE=thread
    stage "sample (ASan + UBSan)" run_beside build/asan -j "$beside" -L sample
    stage "threads (TSan)" run_beside build/tsan -j "$beside" -L threads
    # Here the failing allocator works; a sanitizer's own cannot be replaced.
    stage "alloc (release)" run build -j "$jobs" -L alloc
    stage "integration (release)" run_beside build -j "$beside" -L integration
    stage "soak (release)" soak_for 10
}

long() {
    stage "build (ASan + UBSan)" compile build/asan all -DCMAKE_BUILD_TYPE=Debug -DMR_SANITIZE=address
    stage "campaigns (ASan + UBSan)" run build/asan -j $((2 * jobs)) -L long
    stage "fuzzers" env FUZZ_SECONDS="${FUZZ_SECONDS:-20}" scripts/fuzz.sh
    stage "build (release)" compile build product -DCMAKE_BUILD_TYPE=Release
    stage "planted bugs" env MR_IMAGES=3000 MR_SEEDS=1000 MR_FLIPS=2000 tests/integration/plants.sh
    stage "build (tests of time, release)" compile build time_tests -DCMAKE_BUILD_TYPE=Release
    stage "time (release)" run build -j 1 -L alone
    stage "figures" figures
}

# Resident memory means something only without a sanitizer. The store is on the disk of the build.
soak_for() {
    MR_SOAK_SECONDS=$1 TMPDIR=$PWD/build build/tests/millrace-soak
}

# Masters and workers at a server (remote) or a Redis, with random faults.
soak_with_faults() {
    MR_SOAK_SECONDS=$2 MR_SEED=$(date +%s) MILLRACE=$PWD/build/millrace \
        build/tests/accept "$1" '*_127_masters_*'
}

# Each round takes seeds nobody has run: the clock gives the first.
soak() {
    local seconds=${SOAK_SECONDS:-600} round=0 until soaking=() what
    local kinds=(store remote redis)
    stage "build (release)" compile build all -DCMAKE_BUILD_TYPE=Release
    stage "build (ASan + UBSan)" compile build/asan all -DCMAKE_BUILD_TYPE=Debug -DMR_SANITIZE=address
    [ "${#failed[@]}" -eq 0 ] || return 0
    until=$((SECONDS + seconds))
    soak_for "$seconds" >build/soak-store.log 2>&1 &
    soaking+=($!)
    for what in remote redis; do
        soak_with_faults "$what" "$seconds" >"build/soak-$what.log" 2>&1 &
        soaking+=($!)
    done
    while [ "$SECONDS" -lt "$until" ] && [ "${#failed[@]}" -eq 0 ]; do
        round=$((round + 1))
        export MR_SEED=$(($(date +%s) * 1000))
        stage "soak round $round (MR_SEED=$MR_SEED)" run build/asan -L campaign
    done
    for what in "${!kinds[@]}"; do
        stage "soak for $seconds s: ${kinds[what]}" wait "${soaking[what]}"
        cat "build/soak-${kinds[what]}.log"
    done
}

began=$SECONDS
case "${1:-sample}" in
sample | long | soak) "${1:-sample}" ;;
*)
    echo "test: unknown run '$1' (sample, long or soak)" >&2
    exit 2
    ;;
esac

printf '\n'
if [ "${#failed[@]}" -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
printf 'All passed in %d s.\n' $((SECONDS - began))
