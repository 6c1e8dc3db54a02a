#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The dashboard in headless Chromium, on a server with workers, timers, a job and dead letters; and on one that wants
# tokens, below a path. Its pictures are left in the build folder, in web-pictures. The packages are those of the lock
# file, kept in the build folder.

set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
source "$here/cli_lib.bash"
source "$here/serve_lib.bash"
web=$here/../web

packages=${MR_BINARY_DIR:?is set by ctest: the build folder}/web-tests
if ! cmp -s "$web/package-lock.json" "$packages/installed.json"; then
    mkdir -p "$packages"
    cp "$web/package.json" "$web/package-lock.json" "$web/.npmrc" "$packages"
    (cd "$packages" && npm ci --no-audit --no-fund --loglevel=error)
    cp "$web/package-lock.json" "$packages/installed.json"
fi
export MR_WEB_PACKAGES=$packages MR_WEB_PICTURES=$MR_BINARY_DIR/web-pictures

# ---- what needs no browser --------------------------------------------------------------------------

# Its types fit, and what it works out by itself is right. The packages it was built with have their types, too.
built=${MR_WEB_DIR:-$MR_SOURCE_DIR/build/web}
cp "$web/../../web/tsconfig.json" "$built/tsconfig.json"
ln -sfn "$(realpath "$web/../../web/src")" "$built/src"
"$packages/node_modules/.bin/tsc" -p "$built" --preserveSymlinks || fail "types"
node "$web/pure.mjs" "$built" "$web/../../web/src"

# Without a registry there is a page in its place, unless it is wanted for sure.
make_files() { PATH="$room/bin:$PATH" "$web/../../scripts/web.sh" "$room/web" "$room/files.c" "$1" 2>"$room/err"; }
mkdir "$room/bin"
printf '#!/bin/sh\nexit 1\n' >"$room/bin/npm"
chmod +x "$room/bin/npm"
make_files auto
grep -q 'could not be built' "$room/err" || fail "it does not say that it was not built"
is "files of the page in its place" 1 "$(grep -c '^static const unsigned char file_' "$room/files.c")"
make_files on && fail "built without packages"
make_files off
[ ! -s "$room/err" ] || fail "nothing was wanted: $(cat "$room/err")"

# ---- its files ------------------------------------------------------------------------------------

start
page=$(curl -s -D "$room/head" "http://$http/")
grep -q 'assets/app-' <<<"$page" || fail "the dashboard was not built: $page"
grep -qi "^content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'" \
    "$room/head" || fail "no policy: $(cat "$room/head")"
grep -qi '^x-content-type-options: nosniff' "$room/head" || fail "no nosniff"
grep -qi '^cache-control: no-cache' "$room/head" || fail "the page may be kept"
grep -q '"/' <<<"$page" && fail "an address that is not relative: $page"
asset=$(sed -n 's/.*src="\(assets\/app-[^"]*\.js\)".*/\1/p' <<<"$page")
curl -s "http://$http/$asset" >"$room/plain.js"
curl -s -D "$room/head" -H 'Accept-Encoding: gzip' "http://$http/$asset" >"$room/packed.js"
gunzip <"$room/packed.js" | cmp - "$room/plain.js" || fail "packed and plain differ"
grep -qi '^cache-control: .*immutable' "$room/head" || fail "an asset with its content in its name is not kept"
etag=$(sed -n 's/^etag: \(.*\)\r$/\1/Ip' "$room/head")
: >"$room/body"
is "known already" 304 "$(curl -s -o "$room/body" -w '%{http_code}' -H "If-None-Match: W/\"x\", $etag" "http://$http/$asset")"
is "nothing with it" 0 "$(wc -c <"$room/body")"
is "of another content" 200 "$(curl -s -o /dev/null -w '%{http_code}' -H 'If-None-Match: "x"' "http://$http/$asset")"
is "HEAD" 200 "$(curl -s -I -o /dev/null -w '%{http_code}' "http://$http/")"
is "another method" 405 "$(curl -s -o /dev/null -w '%{http_code}' -X POST "http://$http/")"
is "no such asset" 404 "$(curl -s -o /dev/null -w '%{http_code}' "http://$http/assets/none.js")"

# ---- something to be seen -------------------------------------------------------------------------

seq 40 | sed 's/.*/{"to":"user&@example.org","template":"welcome"}/' | m enqueue -q mail -t send --lines --quiet 2>/dev/null
seq 30 | m enqueue -q reports -t render --delay 2h --lines --quiet 2>/dev/null
for i in 1 2 3 4; do m enqueue -q idle --delay 1h "$i" >/dev/null; done
m enqueue -q billing -t invoice --id invoice-4711 '{"n":12345678901234567890,"x":0.1000000000000000055,"list":[1,2,{"deep":null}],"ok":true}' >/dev/null
for i in 1 2 3; do m enqueue -q broken -t welcome --retry 0 "user-$i" >/dev/null; done
m timer create nightly --cron '30 2 * * *' --tz Europe/Berlin -q reports '{"all":true}' >/dev/null
m timer create poll --every 1h -q mail x >/dev/null

worker() {
    "$MILLRACE" work "$@" >/dev/null 2>&1 &
    servers+=($!)
}
worker -q mail -q parts -c 2 --node worker-1 -- sh -c 'read -r line; case $line in *7*) echo "connection refused" >&2; exit 100;; esac; echo "$line"'
# shellcheck disable=SC2016
worker -q broken -c 1 --node worker-2 -- sh -c 'read -r line; echo "no such user" >&2; exit 100'
job=$(seq 30 | m job submit --name count --split lines -q parts -)
dead() { [ "$(m queue show broken --json | jq .archived)" = 3 ]; }
until_true dead
job_ended() { m job show "$job" --json | jq -e '.state == "failed"' >/dev/null; }
until_true job_ended
first=http://$http

# ---- one that wants tokens, below a path -----------------------------------------------------------

data=$room/locked
admin=$(m token create --role admin --data "$data" --json | jq -r .token)
viewer=$(m token create --role viewer --data "$data" --json | jq -r .token)
start --require-token --http-prefix /mill
timeout 280 node "$web/dashboard.mjs" "$first" "http://$http/mill" "$admin" "$viewer" "$job" || fail "see above, and $MR_WEB_PICTURES"
