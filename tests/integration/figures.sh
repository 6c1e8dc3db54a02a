#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The promised figures that no noise can spoil, at a small size: memory a task, disk, nothing early,
# restart, start and memory of a server, memory on a Redis. And that figures.py notices what is missed.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/cli_lib.bash"

figures=${MR_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}/scripts/figures.py
cd "$room"
"$figures" "$MILLRACE" sample || fail "figures"

# A bench that says what it is told to say.
cat >told <<'EOF'
#!/usr/bin/env bash
jq -c --arg name "$TOLD_NAME" --argjson value "$TOLD_VALUE" --arg note "$TOLD_NOTE" \
    'map(if .name == $name then .value = $value | .ratio = $value / .yardstick_value | .note = $note else . end)' rows
EOF
chmod +x told
row() { printf '{"name":"%s","value":%s,"unit":"u","yardstick":"y","yardstick_value":%s,"ratio":%s,"note":"10 tasks, 0 early"}' "$@"; }
printf '[%s,%s,%s,%s,%s,%s,%s,%s,%s]' "$(row redis-memory 600 626 0.96)" "$(row redis-lateness-p99 1 10 0.1)" "$(row memory 100 128 0.8)" "$(row restart 1 5 0.2)" "$(row disk 1 2 0.5)" \
    "$(row lateness-p99 1 5 0.2)" "$(row names-workers 50 100 0.5)" "$(row server-idle-workers 30 200 0.15)" "$(row server-start 0.1 1 0.1)" >rows
judged() { TOLD_NAME=$1 TOLD_VALUE=$2 TOLD_NOTE=$3 "$figures" ./told sample >out 2>&1; }
judged memory 128 "of 0 early" || fail "what is met: $(cat out)"
for case in "memory 129" "disk 3" "restart 6" "lateness-p99 1" "server-idle-workers 200" "names-workers 100" "server-start 2" \
    "redis-memory 700" "redis-lateness-p99 1"; do
    read -r name value <<<"$case"
    if judged "$name" "$value" "1 early"; then fail "$case passes"; fi
    grep -q "missed.*$name" out || fail "$case: $(cat out)"
done
