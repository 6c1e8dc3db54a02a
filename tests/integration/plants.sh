#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The test of the tests: every bug planted in the sources behind MR_PLANT_<NAME> must be caught by one of
# the harnesses (crash points, simulator, bit rot) within a bounded number of tries, and without a plant
# the same tries must pass. Everything is compiled once; for a plant only the files that know its name are
# compiled again.
#
#   plants.sh [NAME...]     only these plants
set -eu

root=${MR_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
cc=${CC:-cc}
flags="-std=gnu17 -O1 -g -D_GNU_SOURCE -DMR_VERSION_TEXT=\"plant\" -I$root/include -I$root/src -I$root/tests"
plants_min=10

modules="base wire wheel log broker"
sources=$(cd "$root" && for m in $modules; do find "src/$m" -name '*.c'; done)
tests="tests/sim/simfs.c tests/sim/simfs_crash.c tests/sim/oracle.c tests/sim/oracle_check.c
    tests/sim/rig.c tests/sim/world.c tests/sim/world_acts.c"

# object FILE: the name of its object file.
object() {
    echo "$(echo "$1" | tr / _ | sed 's/\.c$/.o/')"
}

# compile OUTPUT-FOLDER EXTRA-FLAGS FILES...
compile() {
    out=$1 extra=$2
    shift 2
    for file in "$@"; do
        echo "$file $out/$(object "$file")"
    done | xargs -P "$(nproc)" -L 1 sh -c \
        "$cc $flags $extra -c $root/\$0 -o \$1"
}

# link FOLDER: the three programs from the objects there and, for the rest, from the common ones.
link() {
    objects=""
    for file in $sources $tests; do
        name=$(object "$file")
        if [ -f "$1/$name" ]; then objects="$objects $1/$name"; else objects="$objects $work/all/$name"; fi
    done
    for kind in crash sim bitrot; do
        $cc -o "$1/millrace-$kind" "$work/all/tests_sim_main_$kind.o" $objects -lpthread -lm
    done
}

# try FOLDER: runs the harnesses until one objects; says which. 0 when none did.
try() {
    for kind in crash sim bitrot; do
        if ! MR_IMAGES=1500 MR_SEEDS=300 MR_FLIPS=600 timeout 120 "$1/millrace-$kind" \
            >"$1/$kind.log" 2>&1; then
            caught="millrace-$kind: $(grep -v -e '^  repeat' "$1/$kind.log" | head -n 1)"
            return 1
        fi
    done
    return 0
}

names=${*:-$(cd "$root" && grep -rhoE 'MR_PLANT_[A-Z0-9_]+' src | sed 's/^MR_PLANT_//' | sort -u)}
count=$(echo "$names" | wc -w)
mkdir "$work/all"
compile "$work/all" "" $sources $tests tests/sim/main_crash.c tests/sim/main_sim.c tests/sim/main_bitrot.c
link "$work/all"

failed=0
if try "$work/all"; then
    echo "ok    no plant: all passed"
else
    echo "FAIL  no plant, yet $caught"
    failed=1
fi
if [ $# -eq 0 ] && [ "$count" -lt "$plants_min" ]; then
    echo "FAIL  $count plants in the sources, at least $plants_min wanted"
    failed=1
fi
for name in $names; do
    mkdir "$work/$name"
    files=$(cd "$root" && grep -lrE "MR_PLANT_$name([^A-Z0-9_]|\$)" src --include='*.c' || true)
    if [ -z "$files" ]; then
        echo "FAIL  $name: no source knows it"
        failed=1
        continue
    fi
    compile "$work/$name" "-DMR_PLANT_$name=1" $files
    link "$work/$name"
    if try "$work/$name"; then
        echo "FAIL  $name: not caught"
        failed=1
    else
        echo "ok    $name: $caught"
    fi
    rm -rf "${work:?}/$name"
done
[ "$failed" -eq 0 ] && echo "$count plants, all caught"
exit "$failed"
