#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The driver of `make peers`, with those that need nothing but what the tests have: ours. Each phase for a tenth of a second. Then what is
# made of results that are given: the table, the chart, who is ahead, and that nothing is published of a busy machine.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/cli_lib.bash"

tree=${MR_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
peers=$tree/bench/peers
export PYTHONDONTWRITEBYTECODE=1

"$peers/run.py" --millrace "$MILLRACE" --clients "${MR_BINARY_DIR:?is the build folder}/peers" --folder "$room/run" \
    --out "$room/found.json" --seconds 0.1 --rounds 2 --only millrace-file --only millrace-server \
    --only millrace-redis-second >"$room/out" || fail "the driver: $(cat "$room/out")"
is "subjects" 3 "$(jq '.subjects | length' found.json)"
is "rounds" "2 2 2" "$(jq -r '[.subjects[] | length] | join(" ")' found.json)"
is "phases without a task" 0 "$(jq '[.subjects[][][] | select(.tasks < 1 or .seconds <= 0)] | length' found.json)"
# What was run was there.
is "runs of more than waits" 0 "$(jq '[.subjects[][] | select(.run.tasks > .single.tasks + .batch.tasks)] | length' found.json)"
is "files that are left" "" "$(ls "$room/run")"
# Servers that change their folder find their files all the same.
python3 - "$peers" <<'PYTHON' || fail "a folder that depends on where one stands"
import argparse, os, sys
sys.path.insert(0, sys.argv[1])
import run
with run.place_for(argparse.Namespace(folder=".", millrace="millrace")) as place:
    sys.exit(not (os.path.isabs(place.folder) and os.path.isabs(place.millrace)))
PYTHON
# One that cannot be measured is named and left out, and does not stop the others.
if "$peers/run.py" --millrace "$MILLRACE" --clients "$MR_BINARY_DIR/peers" --folder run --out some.json --seconds 0.05 --rounds 1 \
    --only bullmq-second --only millrace-file >"$room/out" 2>"$room/err"; then fail "a peer without its packages was measured"; fi
grep -q 'bullmq-second is left out: bullmq-second needs --packages' "$room/err" || fail "who is left out: $(cat "$room/err")"
is "who was measured" '["millrace-file"]' "$(jq -c '.subjects | keys' some.json)"
if "$peers/run.py" --millrace "$MILLRACE" --clients . --folder . --out none --only nobody 2>"$room/err"; then fail "a stranger is measured"; fi
grep -q 'unknown: nobody' "$room/err" || fail "a stranger: $(cat "$room/err")"

# results OURS THEIRS OTHERS: what everybody's rates are, and what others had of two cores in a second.
results() {
    python3 - "$peers" "$@" <<'PYTHON'
import json, sys
sys.path.insert(0, sys.argv[1])
from subjects import SUBJECTS
ours, theirs, others = map(float, sys.argv[2:])
phase = lambda rate: {"tasks": int(rate), "seconds": 1.0, "cpu": rate / 10_000, "others": others}
rounds = lambda rate: [{name: phase(rate * factor) for name in ("single", "batch", "run")} for factor in (1, 0.9, 1.1)]
print(json.dumps({"date": "2026-01-02", "cpu": "a CPU", "cores": 2, "seconds": 1, "rounds": 3, "sync_ms": 0.1, "versions": {"one": "1"},
                  "subjects": {s.key: rounds(ours if s.ours else theirs) for s in SUBJECTS}}))
PYTHON
}

results 1234567 1000 0.01 >slow.json
"$peers/render.py" slow.json table.md chart.svg || fail "render"
grep -q '^| \*\*Millrace, embedded\*\* | group commit, fdatasync | .* | 1 230 000 | 1 230 000 | 1 230 000 | 2.00 |$' table.md || fail "$(cat table.md)"
grep -q '^In no column' table.md || fail "somebody is ahead: $(cat table.md)"
python3 -c 'import sys, xml.dom.minidom as d; sys.exit(d.parse("chart.svg").documentElement.tagName != "svg")' || fail "the chart"
is "bars" "$((2 * $(jq '.subjects | length' slow.json)))" "$(grep -c '<rect x=' chart.svg)"

results 1000 2500 0.01 >fast.json
"$peers/render.py" fast.json table.md chart.svg
grep -q '^\* beanstalkd (memory), take + run + finish: 2.5 × Millrace' table.md || fail "who is ahead: $(cat table.md)"
grep -q '^\* BullMQ on Redis (append-only file, fsync always), enqueue, batches: 2.5 × Millrace' table.md || fail "on Redis: $(cat table.md)"

# Into copies of the documents, twice, which is the same as once.
mkdir -p copy/docs copy/bench/peers
cp "$tree/README.md" copy
cp "$tree/docs/peers.md" copy/docs
"$peers/render.py" slow.json --publish copy
cp copy/README.md once.md
"$peers/render.py" slow.json --publish copy
cmp once.md copy/README.md
grep -q 'Measured on 2026-01-02' copy/docs/peers.md || fail "what was published: $(cat copy/docs/peers.md)"
[ -s copy/docs/images/peers.svg ] && cmp slow.json copy/bench/peers/results.json
grep -q 'Millrace, embedded' copy/README.md || fail "the README has no table"

results 1 1 0.5 >busy.json
if "$peers/render.py" busy.json --publish copy 2>"$room/err"; then fail "published, though others had a quarter of the machine"; fi
grep -q 'other work had 25 %' "$room/err" || fail "$(cat "$room/err")"
if "$peers/render.py" found.json --publish copy 2>"$room/err"; then fail "published without the peers"; fi
cmp once.md copy/README.md
