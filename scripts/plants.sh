#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Shows that the net holds: builds the tests once for each bug planted in src/ (#ifdef MR_PLANT_NAME) and
# expects one of them to fail. Without a plant all must pass, or a catch would mean nothing.
#
#   plants.sh [NAME]...   these plants, or all that src/ names
#
# Sizes come from MR_STEPS, MR_SEEDS, MR_IMAGES and MR_KILLS, as for the programs themselves.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=build/plants
limit_s=120
programs=(conform model millrace-crash millrace-sim)
export MR_STEPS=${MR_STEPS:-20000} MR_SEEDS=${MR_SEEDS:-60} MR_IMAGES=${MR_IMAGES:-600} MR_KILLS=${MR_KILLS:-3}

plants=("$@")
if [ "${#plants[@]}" -eq 0 ]; then
    mapfile -t plants < <(grep -rhoE 'MR_PLANT_[A-Z0-9_]+' src --include='*.c' | sed 's/MR_PLANT_//' | sort -u)
fi

# build PLANT: the test programs with that bug, or none.
build() {
    cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMR_PLANT="$1" >/dev/null
    cmake --build "$folder" -j "${JOBS:-2}" --target "${programs[@]}" >"$folder/build.log" || {
        cat "$folder/build.log"
        exit 1
    }
}

# first_failing: the first program that fails, and its last words; empty when all pass.
first_failing() {
    local program status
    for program in "${programs[@]}"; do
        status=0
        timeout "$limit_s" "$folder/tests/$program" >"$folder/run.log" 2>&1 || status=$?
        if [ "$status" -ne 0 ]; then
            echo "$program (exit $status): $(grep -avE '^\s*$' "$folder/run.log" | tail -n 1 | cut -c 1-120)"
            return
        fi
    done
}

build ""
found=$(first_failing)
if [ -n "$found" ]; then
    echo "plants: the tests fail without any plant: $found" >&2
    exit 1
fi
echo "no plant: all pass"

missed=0
for plant in "${plants[@]}"; do
    build "$plant"
    found=$(first_failing)
    if [ -n "$found" ]; then
        echo "$plant: caught by $found"
    else
        echo "$plant: NOT CAUGHT"
        missed=$((missed + 1))
    fi
done
echo "plants: ${#plants[@]} planted, $missed missed"
[ "$missed" -eq 0 ]
