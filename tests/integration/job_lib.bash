# SPDX-License-Identifier: Apache-2.0
#
# Sourced, behind cli_lib.bash and serve_lib.bash, by the tests of jobs: what is asked of every server, whichever broker
# and store it has. A server runs; what else it was started with is in the array serve_args. The numbers are those of the
# acceptance tests.

serve_args=()

# of ID FIELD: of a job.
of() { m job show "$1" --json | jq -r ".$2"; }
state_is() { [ "$(of "$1" state)" = "$2" ]; }

# as TOKEN ARG...
as() {
    local token=$1
    shift
    MILLRACE_TOKEN=$token m "$@"
}
token() { m token create "$@" --json | jq -r .token; }
# refused TOKEN ARG...: with exit code 5.
refused() {
    local code=0
    as "$@" >"$room/out" 2>"$room/err" || code=$?
    is "exit code of ${*:2}" 5 "$code"
}
# asked CODE TOKEN ARG...: curl as this token; what came is in $room/body.
asked() {
    is "status of ${*:3}" "$1" "$(curl -s -o "$room/body" -w '%{http_code}' -H "Authorization: Bearer $2" "${@:3}")"
}

# ---- 110 ------------------------------------------------------------------------------------------

# Quota: as a whole, on the command line and over HTTP.
check_quota() {
    local few api=http://$http/api/v1/jobs
    few=$(token --role producer --quota 5)
    seq 6 >six
    seq 5 >five
    refused "$few" job submit -q rest six
    grep -q quota "$room/err" || fail "said: $(cat "$room/err")"
    is "refused as a whole" 0 "$(m job list -q rest --json | jq length)"
    as "$few" job submit -q rest five >/dev/null || fail "five of five are not allowed"
    refused "$few" job submit -q rest <(echo x)
    few=$(token --role producer --quota 5)
    asked 403 "$few" -d '{"queue":"rest","input":"1\n2\n3\n4\n5\n6\n"}' "$api"
    asked 403 "$few" -d '{"queue":"rest","parts":["1","2","3","4","5","6"]}' "$api"
    asked 201 "$few" -d '{"queue":"rest","parts":["1","2","3","4","5"]}' "$api"
    asked 403 "$few" -d '{"queue":"rest","input":"x"}' "$api"
    is "jobs of both" '5 5' "$(m job list -q rest --json | jq -r 'map(.total) | join(" ")')"
}

# The priority of a token: created together, behind one that has none, its tasks run first.
check_priority() {
    local normal vip api=http://$http/api/v1/jobs last
    normal=$(token --role producer)
    vip=$(token --role producer --queue 'a*' --priority-max 60)
    seq 1 5 | sed 's/^/normal /' | as "$normal" job submit -q avenue - >"$room/normal"
    seq 1 5 | sed 's/^/high /' | as "$vip" job submit -q avenue - >"$room/high"
    is "the priority of the token" 60 "$(of "$(cat "$room/high")" priority)"
    asked 201 "$vip" -d '{"queue":"avenue","parts":["posted 1\n","posted 2\n"]}' "$api"
    is "over HTTP too" 60 "$(jq .priority "$room/body")"
    last=$(cat "$room/normal")
    # Runs so long that nothing is held ahead of the slot: what is handed back from there may fall behind the next.
    "$MILLRACE" --quiet work -q avenue -c 1 -- sh -c "sleep 0.05; cat >>'$room/order'" >/dev/null 2>&1 &
    servers+=("$!")
    until_true state_is "$last" succeeded
    is "who was first" 'high high high high high posted posted normal normal normal normal normal' \
        "$(cut -d ' ' -f 1 "$room/order" | tr '\n' ' ' | sed 's/ $//')"
    refused "$vip" job submit -q alpha --priority 61 five
    asked 403 "$vip" -d '{"queue":"alpha","priority":61,"input":"x"}' "$api"
}

# Roles and queues: who only looks changes nothing, and that it was tried is in the audit.
check_roles() {
    local viewer other worker seen api=http://$http/api/v1/jobs verb
    viewer=$(token --role viewer)
    worker=$(token --role worker)
    other=$(token --role producer --queue 'b*')
    seen=$(m job submit -q alpha five)
    refused "$viewer" job submit -q alpha five
    refused "$other" job submit -q alpha five
    asked 403 "$viewer" -d '{"queue":"alpha","input":"x"}' "$api"
    asked 403 "$other" -d '{"queue":"alpha","input":"x"}' "$api"
    for verb in cancel retry; do
        refused "$viewer" job "$verb" "$seen"
        refused "$other" job "$verb" "$seen"
        asked 403 "$viewer" -X POST "$api/$seen/$verb"
        asked 403 "$other" -X POST "$api/$seen/$verb"
    done
    as "$viewer" job show "$seen" --json >/dev/null || fail "a viewer cannot look"
    asked 200 "$viewer" "$api/$seen"
    for verb in show result watch; do refused "$other" job "$verb" "$seen"; done
    for verb in '' /parts /result /events; do
        asked 403 "$other" "$api/$seen$verb"
        asked 403 "$worker" "$api/$seen$verb"
    done
    asked 403 "$other" "$api?queue=alpha"
    is "what it does not see in a list" 0 "$(as "$other" job list --json | jq length)"
    is "nothing was changed" created "$(of "$seen" state)"
    viewer=$(cut -d _ -f 2 <<<"$viewer")
    other=$(cut -d _ -f 2 <<<"$other")
    for verb in "token=$viewer [^\"]*method=Jobs/Submit about=\"\" result=DENIED 2" \
        "token=$viewer [^\"]*method=Jobs/Cancel about=\"$seen\" result=DENIED 2" \
        "token=$other [^\"]*method=Jobs/Submit about=\"\" result=DENIED 2" \
        "token=$other [^\"]*method=Jobs/Retry about=\"$seen\" result=DENIED 2"; do
        is "lines of audit: $verb" "${verb##* }" "$(grep -c "${verb% *}" "$room/server.err")"
    done
}

check_revoked() {
    local gone api=http://$http/api/v1/jobs
    gone=$(token --role producer)
    as "$gone" job submit -q rest five >/dev/null
    m token revoke "$(cut -d _ -f 2 <<<"$gone")" >/dev/null
    refused "$gone" job submit -q rest five
    grep -q revoked "$room/err" || fail "said: $(cat "$room/err")"
    asked 401 "$gone" -d '{"input":"x"}' "$api"
    asked 401 mr_nonsense "$api"
}

check_tokens() {
    check_quota
    check_priority
    check_roles
    check_revoked
}

# ---- 108 ------------------------------------------------------------------------------------------

# What real connections see; then a watch that goes on over the death of the server, and misses no version.
check_events() {
    local token token_id watch
    token=$(m token create --role viewer --json | jq -r .token)
    token_id=$(cut -d _ -f 2 <<<"$token")
    EVENTS_HTTP=$http EVENTS_TOKEN=$token EVENTS_TOKEN_ID=$token_id timeout 120 python3 "$here/job_events.py"
    grep -q 'Sanitizer' "$room/server.err" && fail "$(cat "$room/server.err")"
    seq 40 >lines
    m job submit -q slow lines >id
    m job watch "$(cat id)" --json >seen 2>watch.err &
    watch=$!
    servers+=("$watch")
    until_true test -s seen
    "$MILLRACE" --quiet work -q slow -c 1 -- sh -c 'cat; sleep 0.05' >/dev/null 2>&1 &
    servers+=("$!")
    until_true grep -q '"done":[1-9]' seen
    kill -9 "$server"
    wait "$server" || true
    start --grpc "$grpc" "${serve_args[@]}"
    await "$watch"
    is "how the watch ended" 0 "$code"
    jq -s -e 'length > 3 and ([.[].version] | . == [range(.[0]; .[0] + length)])' seen >/dev/null ||
        fail "versions: $(jq -c .version seen | tr '\n' ' ')"
    is "the end" 'succeeded 40' "$(tail -n 1 seen | jq -r '"\(.state) \(.done)"')"
}
