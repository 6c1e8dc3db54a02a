#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The test of the tests: every bug planted in the sources behind MR_PLANT_<NAME> must be caught by one of
# the harnesses (crash points, simulator, bit rot) within a bounded number of tries, and without a plant
# the same tries must pass. Everything is compiled once; for a plant only the files that know its name are
# compiled again.
#
#   plants.sh [NAME...]     only these plants; MR_PLANTS_EVERY=N: of all, every Nth
set -euo pipefail

root=${MR_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
plants_min=10
limit_s=120
export MR_IMAGES=${MR_IMAGES:-1000} MR_SEEDS=${MR_SEEDS:-120} MR_FLIPS=${MR_FLIPS:-700}

cd "$root"
flags=(-std=gnu17 -O1 -g -D_GNU_SOURCE '-DMR_VERSION_TEXT="plant"' -DMR_SLAB_SHIFT=3 -Iinclude -Isrc -Itests)
programs=(crash sim bitrot)
# What speaks the network is not simulated.
mapfile -t sources < <(find src/{base,wire,wheel,log,broker} -name '*.c' ! -path '*/remote/*' ! -path '*/many/*' ! -path '*/broker/redis/*' ! -name pb.c ! -name asynq.c
    find tests/sim -name '*.c' ! -name 'main_*')
mapfile -t mains < <(printf 'tests/sim/main_%s.c\n' "${programs[@]}")
plants=("$@")
if [ "${#plants[@]}" -eq 0 ]; then
    mapfile -t plants < <(grep -rhoE 'MR_PLANT_[A-Z0-9_]+' src --include='*.c' | sed 's/MR_PLANT_//' | sort -u)
    if [ "${#plants[@]}" -lt "$plants_min" ]; then
        echo "plants: ${#plants[@]} in the sources, at least $plants_min wanted" >&2
        exit 1
    fi
    mapfile -t plants < <(printf '%s\n' "${plants[@]}" | awk -v n="${MR_PLANTS_EVERY:-1}" 'NR % n == 0')
fi

# object FILE: the name of its object file.
object() {
    local name=${1//\//_}
    echo "${name%.c}.o"
}

# compile FOLDER DEFINITION FILES...: two at a time.
compile() {
    local folder=$1 definition=$2 file
    shift 2
    for file in "$@"; do
        while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-2}" ]; do wait -n; done
        "${CC:-cc}" "${flags[@]}" $definition -c "$file" -o "$folder/$(object "$file")" &
    done
    while [ "$(jobs -p | wc -l)" -gt 0 ]; do wait -n; done
}

# link FOLDER: the programs from the objects there and, for the rest, from the common ones.
link() {
    local folder=$1 objects=() file program
    for file in "${sources[@]}"; do
        if [ -f "$folder/$(object "$file")" ]; then
            objects+=("$folder/$(object "$file")")
        else
            objects+=("$work/all/$(object "$file")")
        fi
    done
    for program in "${programs[@]}"; do
        "${CC:-cc}" -o "$folder/$program" "$work/all/tests_sim_main_$program.o" "${objects[@]}" -lpthread -lm
    done
}

# objection FOLDER: the first harness that objects, and its first words; empty when none does.
objection() {
    local folder=$1 program status
    for program in "${programs[@]}"; do
        status=0
        timeout "$limit_s" "$folder/$program" >"$folder/$program.log" 2>&1 || status=$?
        if [ "$status" -eq 124 ]; then
            echo "slow: millrace-$program has not ended after $limit_s s"
            return
        fi
        if [ "$status" -ne 0 ]; then
            echo "millrace-$program (exit $status): $(head -n 1 "$folder/$program.log" | cut -c 1-110)"
            return
        fi
    done
}

mkdir "$work/all"
compile "$work/all" "" "${sources[@]}" "${mains[@]}"
link "$work/all"
found=$(objection "$work/all")
if [ -n "$found" ]; then
    echo "plants: there is an objection without any plant: $found" >&2
    exit 1
fi
echo "no plant: all pass"

# try PLANT: one line with the verdict.
try() {
    local plant=$1 found files
    mkdir "$work/$plant"
    mapfile -t files < <(grep -lrwE "MR_PLANT_$plant" src --include='*.c')
    compile "$work/$plant" "-DMR_PLANT_$plant=1" "${files[@]}"
    link "$work/$plant"
    found=$(objection "$work/$plant")
    if [ "${#files[@]}" -gt 0 ] && [ -n "$found" ] && [[ $found != slow:* ]]; then
        echo "$plant: caught by $found"
    else
        echo "$plant: NOT CAUGHT${found:+ ($found)}"
    fi
    rm -rf "${work:?}/$plant"
}

for plant in "${plants[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-2}" ]; do wait -n; done
    try "$plant" >"$work/$plant.verdict" &
done
wait
cat "$work"/*.verdict
caught=$(cat "$work"/*.verdict | grep -c ': caught by ' || true)
echo "plants: ${#plants[@]} planted, $((${#plants[@]} - caught)) missed"
[ "$caught" -eq "${#plants[@]}" ]
