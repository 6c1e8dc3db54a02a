#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the clients, brings the packages of those in JavaScript, measures everybody and puts the table and the chart into
# README.md and docs/. PEERS_SECONDS (3) is the length of a phase, PEERS_ROUNDS (3) how often. Arguments go to run.py; with
# --only nothing is published.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

here=bench/peers
packages=build/peers/node
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build build -j "${JOBS:-2}" --target product peers

if ! cmp -s "$here/node/package-lock.json" "$packages/installed.json"; then
    mkdir -p "$packages"
    cp "$here/node/package.json" "$here/node/package-lock.json" "$packages"
    # Some of them want a newer Node than Debian's, which is among them. Not `npm ci`: it refuses a lock file without those
    # optional packages for other systems that the registry does not have.
    (cd "$packages" && npm install --ignore-scripts --no-audit --no-fund --loglevel=error)
    cp "$here/node/package-lock.json" "$packages/installed.json"
fi
cp "$here"/node/*.mjs "$packages"

export PYTHONDONTWRITEBYTECODE=1
"$here/run.py" --millrace build/millrace --clients build/peers --packages "$packages" --folder build/peers/run \
    --out build/peers/results.json --seconds "${PEERS_SECONDS:-3}" --rounds "${PEERS_ROUNDS:-3}" "$@"
"$here/render.py" build/peers/results.json build/peers/table.md build/peers/chart.svg
cat build/peers/table.md
if [ $# -eq 0 ]; then
    "$here/render.py" build/peers/results.json --publish .
fi
