#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds what the tests need and runs them:
#
#   test.sh sample   tidy; everything at a small size under ASan + UBSan; what has threads under TSan;
#                    integration tests, and those of lack of memory, on the release build
#   test.sh long     the campaigns at full size, two at a time, under ASan + UBSan; every fuzzer for half a minute;
#                    every planted bug; every promised figure, with nothing beside it
#   test.sh soak     mixed load with kills on the release build for SOAK_SECONDS (default 3600; at least
#                    600 to mean anything), and beside it the campaigns with fresh seeds
#
# All stages run even when one fails; the end says which failed.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

jobs=${JOBS:-2}
# Most tests wait for something most of the time: more of them than cores run beside each other.
beside=$((2 * jobs))
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

# In the build folder, which is on a disk.
figures() {
    (cd build && ../scripts/figures.py ./millrace all)
}

sample() {
    stage "check" scripts/tidy.py
    stage "build (release)" compile build all -DCMAKE_BUILD_TYPE=Release
    stage "build (ASan + UBSan)" compile build/asan all -DCMAKE_BUILD_TYPE=Debug -DMR_SANITIZE=address
    stage "build (TSan)" compile build/tsan threads_tests -DCMAKE_BUILD_TYPE=Debug -DMR_SANITIZE=thread
    stage "sample (ASan + UBSan)" run build/asan -j "$beside" -L sample
    stage "threads (TSan)" run build/tsan -j "$beside" -L threads
    # Here the failing allocator works; a sanitizer's own cannot be replaced.
    stage "alloc (release)" run build -j "$jobs" -L alloc
    stage "integration (release)" run build -j "$beside" -L integration
    stage "soak (release)" soak_for 10
}

long() {
    stage "build (ASan + UBSan)" compile build/asan all -DCMAKE_BUILD_TYPE=Debug -DMR_SANITIZE=address
    stage "campaigns (ASan + UBSan)" run build/asan -j 2 -L long
    stage "fuzzers" env FUZZ_SECONDS="${FUZZ_SECONDS:-30}" scripts/fuzz.sh
    stage "planted bugs" env MR_IMAGES=3000 MR_SEEDS=1000 MR_FLIPS=2000 tests/integration/plants.sh
    stage "build (release)" compile build product -DCMAKE_BUILD_TYPE=Release
    stage "figures" figures
}

# Resident memory means something only without a sanitizer. The store is on the disk of the build.
soak_for() {
    MR_SOAK_SECONDS=$1 TMPDIR=$PWD/build build/tests/millrace-soak
}

# Each round takes seeds nobody has run: the clock gives the first.
soak() {
    local seconds=${SOAK_SECONDS:-3600} round=0 until soaking
    stage "build (release)" compile build all -DCMAKE_BUILD_TYPE=Release
    stage "build (ASan + UBSan)" compile build/asan all -DCMAKE_BUILD_TYPE=Debug -DMR_SANITIZE=address
    [ "${#failed[@]}" -eq 0 ] || return 0
    until=$((SECONDS + seconds))
    soak_for "$seconds" >build/soak.log 2>&1 &
    soaking=$!
    while [ "$SECONDS" -lt "$until" ] && [ "${#failed[@]}" -eq 0 ]; do
        round=$((round + 1))
        export MR_SEED=$(($(date +%s) * 1000))
        stage "soak round $round (MR_SEED=$MR_SEED)" run build/asan -L campaign
    done
    stage "soak for $seconds s" wait "$soaking"
    cat build/soak.log
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
