# SPDX-License-Identifier: Apache-2.0
#
# Sourced, behind cli_lib.bash and serve_lib.bash, by the tests of HTTP. A server runs.

schema=$here/http_schema.py

# ask STATUS METHOD PATH ARG...: curl; what came is in $room/body, and it is what the document of the server says.
ask() {
    local want=$1 method=$2 path=$3 got
    shift 3
    [ -s "$room/openapi" ] || curl -s "http://$http/openapi.json" >"$room/openapi"
    got=$(curl -s -g -o "$room/body" -w '%{http_code}' -X "$method" "$@" "http://$http$path")
    [ "$got" = "$want" ] || fail "$method $path: $got, not $want: $(head -c 300 "$room/body")"
    "$schema" "$room/openapi" "$method" "$path" "$got" <"$room/body" || fail "$method $path: $(head -c 300 "$room/body")"
}
# of_it FILTER: jq on the last answer.
of_it() { jq -r "$1" "$room/body"; }
# errs STATUS CODE METHOD PATH ARG...: the answer is an error of this kind.
errs() {
    local code=$2
    ask "$1" "${@:3}"
    is "code of ${*:3}" "$code" "$(of_it .error.code)"
}
token() { m token create "$@" --json | jq -r .token; }
