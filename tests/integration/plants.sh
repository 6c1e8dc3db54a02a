#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The test of the tests: every bug planted in the sources behind MR_PLANT_<NAME> must be caught, and without
# a plant the same tries must pass. What the simulator knows must be caught by one of its harnesses (crash points,
# simulator, bit rot) within a bounded number of tries; the others, in the table below, by the test that is named there.
# Everything is compiled once; for a plant only the files that know its name are compiled again.
#
#   plants.sh [NAME...]     only these plants; MR_PLANTS_EVERY=N: of all, every Nth
set -euo pipefail

root=${MR_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${MR_BINARY_DIR:-$root/build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
plants_min=30
limit_s=${MR_PLANT_SECONDS:-120} # a machine that does other things besides needs longer

# Plant, the program with the test, and the test that must fail; of a script of this folder the words that it must say.
named='
CURSOR_KEPT conform_embedded pages_over_all_queues_and_states_are_complete
FIRED_WITHOUT_LEASE store_sqlite test_only_the_holder_of_the_lease_fires
FOLD_FIRES_TWICE test_timer_rule acceptance_55_a_time_that_comes_twice_fires_the_first_time
GRACE_FROM_FIRST test_engine_groups grace_counts_from_the_last_who_joined
HELD_CALL_GROWS test_rpc a_held_call_takes_one_window_and_no_more
LEAVER_RETURNS test_names_registry test_who_has_left_never_comes_back
LOCK_ENDS_EARLY conform_redis a_key_is_free_when_its_time_is_over
LOST_END_ACCEPTED test_redis_doubt a_task_that_is_kept_cannot_have_ended_without_a_trace
MARKED_ONCE test_engine_space the_last_copy_is_guarded_once_all_is_quiet
MOVED_ONTO_ANOTHER migrate.sh not 1: millrace migrate --yes --json --queue mail
MOVE_UNFENCED test_names_subapp test_a_move_has_a_new_epoch
ONE_OVER_THE_LIMIT conform_embedded a_queue_has_no_more_in_hand_than_its_limit_whoever_the_nodes_are
OUTCOME_COUNTED_TWICE store_sqlite test_an_outcome_is_accepted_once
REDUCED_WITHOUT_A_PART test_job_reduce a_part_that_is_missing_is_noticed
ROLE_UNCHECKED test_api_access every_role_may_call_what_it_should
WHEEL_EARLY test_wheel wheel_never_fires_early
'
export MR_IMAGES=${MR_IMAGES:-1000} MR_SEEDS=${MR_SEEDS:-120} MR_FLIPS=${MR_FLIPS:-700}

cd "$root"
flags=(-std=gnu17 -O1 -D_GNU_SOURCE '-DMR_VERSION_TEXT="plant"' -DMR_SLAB_SHIFT=3 -Iinclude -Isrc -Itests)
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

# ---- by the simulator's harnesses -------------------------------------------------------------

# try_simulated PLANT: one line with the verdict.
try_simulated() {
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

# What all of them share, which must have nothing to object to.
prepare_simulated() {
    local found
    mkdir "$work/all"
    compile "$work/all" "" "${sources[@]}" "${mains[@]}"
    link "$work/all"
    found=$(objection "$work/all")
    if [ -n "$found" ]; then
        echo "plants: there is an objection without any plant: $found" >&2
        exit 1
    fi
    echo "no plant: all pass"
}

# ---- by a test of its own ---------------------------------------------------------------------

# row_of PLANT: its program and test; nothing for one that is simulated.
row_of() {
    sed -n "s/^$1 //p" <<<"$named"
}

# target_of PROGRAM: what is linked for it.
target_of() {
    [[ $1 = *.sh ]] && echo millrace || echo "$1"
}

# output_of TARGET: its file in the build folder.
output_of() {
    [ "$1" = millrace ] && echo millrace || echo "tests/$1"
}

prepare_named() {
    local plant program targets=()
    for plant in "$@"; do
        read -r program _ < <(row_of "$plant")
        targets+=("$(target_of "$program")")
    done
    [ -f "$build/build.ninja" ] || cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null
    cmake --build "$build" -j "${JOBS:-2}" --target "${targets[@]}" >/dev/null
}

# command_for OUTPUT: how the build makes it.
command_for() {
    ninja -C "$build" -t commands -s "$1" | tail -n 1
}

# link_planted PLANT TARGET: its program, from the objects of the build and those with the plant.
link_planted() {
    local plant=$1 output command object planted file
    output=$(output_of "$2")
    command=$(command_for "$output")
    for file in $(grep -lrwE "MR_PLANT_$plant" src --include='*.c'); do
        object=CMakeFiles/mr_$(cut -d / -f 2 <<<"$file")_objects.dir/$file.o
        planted=$work/$plant/$(object "$file")
        (cd "$build" && eval "$(command_for "$object" | sed "s|$object|$planted|g") -DMR_PLANT_$plant=1 -Wno-error")
        case " $command " in
        *" $object "*) command=${command/"$object"/"$planted"} ;;
        *) command=${command/" -o $output "/" $planted -o $output "} ;; # before the archive that has the other
        esac
    done
    (cd "$build" && eval "${command/" -o $output "/" -o $work/$plant/$2 "}")
}

# run_named BINARY PROGRAM TEST LOG: whether the test passed; a failure counts only where it is that test which failed.
run_named() {
    local binary=$1 program=$2 test=$3 log=$4 status=0
    if [[ $program = *.sh ]]; then
        MILLRACE=$binary MR_KILLS=1 MR_TASKS=20 timeout "$limit_s" "$root/tests/integration/$program" >"$log" 2>&1 || status=$?
        [ "$status" -eq 0 ] && return 0
        grep -qF "$test" "$log" && return 1
    else
        MR_SOURCE_DIR=$root timeout "$limit_s" "$binary" "*$test*" >"$log" 2>&1 || status=$?
        grep -qE "RUN +\] .*$test\$" "$log" || return 2
        grep -qE "OK +\] .*$test\$" "$log" || return 1
        [ "$status" -eq 0 ] && return 0
    fi
    return 2
}

# try_named PLANT: one line with the verdict.
try_named() {
    local plant=$1 program test target result=0
    read -r program test < <(row_of "$plant")
    target=$(target_of "$program")
    mkdir "$work/$plant"
    run_named "$build/$(output_of "$target")" "$program" "$test" "$work/$plant/log" || result=$?
    if [ "$result" -ne 0 ]; then
        echo "$plant: NOT CAUGHT ($program fails without it: $(tail -n 1 "$work/$plant/log"))"
        return
    fi
    link_planted "$plant" "$target"
    run_named "$work/$plant/$target" "$program" "$test" "$work/$plant/log" || result=$?
    if [ "$result" -eq 1 ]; then
        echo "$plant: caught by $program, $test"
    else
        echo "$plant: NOT CAUGHT (by $program, $test: $(tail -n 1 "$work/$plant/log"))"
    fi
    rm -rf "${work:?}/$plant"
}

# ---- all of them ------------------------------------------------------------------------------

simulated=() tested=()
for plant in "${plants[@]}"; do
    if [ -n "$(row_of "$plant")" ]; then tested+=("$plant"); else simulated+=("$plant"); fi
done
[ "${#simulated[@]}" -eq 0 ] || prepare_simulated
[ "${#tested[@]}" -eq 0 ] || prepare_named "${tested[@]}"
for plant in "${plants[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-2}" ]; do wait -n; done
    if [ -n "$(row_of "$plant")" ]; then
        try_named "$plant" >"$work/$plant.verdict" &
    else
        try_simulated "$plant" >"$work/$plant.verdict" &
    fi
done
wait
cat "$work"/*.verdict
caught=$(cat "$work"/*.verdict | grep -c ': caught by ' || true)
echo "plants: ${#plants[@]} planted, $((${#plants[@]} - caught)) missed"
[ "$caught" -eq "${#plants[@]}" ]
