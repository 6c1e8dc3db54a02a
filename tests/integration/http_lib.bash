# SPDX-License-Identifier: Apache-2.0
#
# Sourced, behind cli_lib.bash and serve_lib.bash, by the tests of HTTP. A server runs.

# One process judges all answers: starting one for each took more time than the server.
begin_to_judge() {
    curl -s "http://$http/openapi.json" >"$room/openapi"
    mkfifo "$room/answers" "$room/verdicts"
    "$here/http_schema.py" "$room/openapi" <"$room/answers" >"$room/verdicts" &
    exec {answers}>"$room/answers" {verdicts}<"$room/verdicts"
}

# ask STATUS METHOD PATH ARG...: curl; what came is in $room/body, and it is what the document of the server says.
ask() {
    local want=$1 method=$2 path=$3 got verdict
    shift 3
    [ -n "${answers:-}" ] || begin_to_judge
    got=$(curl -s -g -o "$room/body" -w '%{http_code}' -X "$method" "$@" "http://$http$path")
    [ "$got" = "$want" ] || fail "$method $path: $got, not $want: $(head -c 300 "$room/body")"
    printf '%s\n' "$method $got $room/body $path" >&"$answers"
    read -r verdict <&"$verdicts"
    [ "$verdict" = good ] || fail "$method $path: $verdict: $(head -c 300 "$room/body")"
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
