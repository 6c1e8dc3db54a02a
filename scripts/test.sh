#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds what the tests need and runs them:
#
#   test.sh sample   tidy; everything at a small size under ASan + UBSan; what has threads under TSan;
#                    integration tests, and those of lack of memory, on the release build
#   test.sh long     the campaigns at full size under ASan + UBSan, and beside them every planted bug; then every
#                    promised figure and time, with nothing beside it
#   test.sh soak     for SOAK_SECONDS (default 600) on the release build: mixed load on a store whose process is
#                    killed, and masters and workers at a server and at a Redis that are killed, stopped and cut
#                    off at random; and beside it the campaigns with fresh seeds
#
# All stages run even when one fails; the end says which failed.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

jobs=${JOBS:-2}
failed=()

# stage NAME COMMAND...: runs the command, says how long it took, remembers a failure.
stage() {
    local name=$1 began=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    if "$@"; then
        passed "$name" $((SECONDS - began))
    else
        printf '== %s: FAILED after %d s\n' "$name" $((SECONDS - began))
        failed+=("$name")
    fi
}

passed() {
    printf '== %s: passed in %d s\n' "$1" "$2"
}

# begin NAME COMMAND...: a stage beside those that follow; what it says is in a file of build/stages. finish shows it.
begun=()
begin() {
    local name=$1 log
    shift
    begun+=("$name")
    log=build/stages/${#begun[@]}
    mkdir -p build/stages
    printf '\n== %s: begun, see %s\n' "$name" "$log"
    rm -f "$log.ended"
    {
        SECONDS=0
        "$@" && passed "$name" "$SECONDS" && touch "$log.ended"
    } >"$log" 2>&1 &
}

# finish: waits for what was begun. What tests alone can have failed is run once more by itself: `beside` has left its folder.
finish() {
    local i name log folder
    wait
    for i in "${!begun[@]}"; do
        name=${begun[i]} log=build/stages/$((i + 1))
        if [ -e "$log.ended" ]; then
            tail -n 1 "$log"
            continue
        fi
        cat "$log"
        folder=$(sed -n 's/^beside: once more in //p' "$log")
        if [ -n "$folder" ]; then
            stage "$name, what failed beside others, by itself" run "$folder" -j 1 --rerun-failed
        else
            failed+=("$name")
        fi
    done
    begun=()
}

# Nothing has failed so far: what is built next can be run.
is_sound() {
    [ "${#failed[@]}" -eq 0 ]
}

# compile FOLDER TARGET CMAKE-OPTION...: tests that run meanwhile go first.
compile() {
    local folder=$1 target=$2
    shift 2
    cmake -S . -B "$folder" -G Ninja "$@" >/dev/null && nice -n 5 cmake --build "$folder" -j "$jobs" --target "$target"
}

# run FOLDER CTEST-OPTION...
run() {
    local folder=$1
    shift
    ctest --test-dir "$folder" --output-on-failure --no-tests=error "$@"
}

# beside FOLDER CTEST-OPTION...: many at a time. Some of these tests judge how long something took, and a machine that has ten of
# them to run is late itself at times: what failed may be run once more. What a sanitizer finds is no matter of time: that stays
# a failure.
beside() {
    local folder=$1 log
    log=$folder/Testing/beside.log
    mkdir -p "$folder/Testing"
    if run "$@" | tee "$log"; then
        return 0
    fi
    if ! grep -qE 'ERROR: AddressSanitizer|runtime error:|WARNING: ThreadSanitizer' "$log"; then
        grep -E '^ *[0-9]+/[0-9]+ Test .*\*\*\*' "$log" || true
        echo "beside: once more in $folder"
    fi
    return 1
}

# In the build folder, which is on a disk.
figures() {
    (cd build && ../scripts/figures.py ./millrace all)
}

# Tests mostly wait for something, and compilers do not: so each build's tests run while the next is built.
sample() {
    begin "check" scripts/tidy.py
    stage "build (release)" compile build release_tests -DCMAKE_BUILD_TYPE=Release
    is_sound || return 0
    begin "soak (release)" soak_for 10
    # Where the allocator fails, no sanitizer's own is in its place.
    begin "integration and alloc (release)" beside build -j $((3 * jobs)) -L 'integration|alloc'
    stage "build (ASan + UBSan)" compile build/asan all -DCMAKE_BUILD_TYPE=Debug -DMR_SANITIZE=address
    is_sound || return 0
    begin "sample (ASan + UBSan)" beside build/asan -j $((4 * jobs)) -L sample
    stage "build (TSan)" compile build/tsan threads_tests -DCMAKE_BUILD_TYPE=Debug -DMR_SANITIZE=thread
    is_sound || return 0
    begin "threads (TSan)" beside build/tsan -j $((4 * jobs)) -L threads
}

# Beside the campaigns, which wait now and then, stands what only computes; what is judged by the clock has the machine to itself.
long() {
    stage "build (ASan + UBSan)" compile build/asan all -DCMAKE_BUILD_TYPE=Debug -DMR_SANITIZE=address
    is_sound || return 0
    begin "campaigns (ASan + UBSan)" run build/asan -j $((2 * jobs + 1)) -L long
    stage "build (release)" compile build time_tests -DCMAKE_BUILD_TYPE=Release
    stage "planted bugs" nice -n 5 env JOBS=1 MR_PLANT_SECONDS=600 MR_IMAGES=3000 MR_SEEDS=1000 MR_FLIPS=2000 tests/integration/plants.sh
    finish
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
sample | long | soak)
    "${1:-sample}"
    finish
    ;;
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
