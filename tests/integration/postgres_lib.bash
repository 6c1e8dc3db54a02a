# SPDX-License-Identifier: Apache-2.0
#
# Sourced, behind the other libraries, by the tests that need a PostgreSQL of their own. It lives in the test's room, is
# reached by a socket there, and goes with the test. It does not run as root: then it is nobody's.

postgres_pid=
trap '[ -z "$postgres_pid" ] || { kill -QUIT "$postgres_pid" && wait "$postgres_pid"; } 2>/dev/null || true
for p in "${redises[@]}" "${servers[@]}"; do kill -9 "$p" && wait "$p" || true; done 2>/dev/null
chmod -R u+rwX "$room" 2>/dev/null; rm -rf "$room"' EXIT

# postgres_start: an empty one. $postgres becomes its URL.
postgres_start() {
    local bin dir=$room/postgres as=()
    bin=$(find /usr/lib/postgresql -mindepth 2 -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)
    mkdir -m 700 "$dir"
    if [ "$(id -u)" -eq 0 ]; then
        chmod 755 "$room"
        chown nobody "$dir"
        as=(setpriv --reuid nobody --regid nogroup --clear-groups)
    fi
    (cd / && "${as[@]}" "${bin:+$bin/}initdb" -D "$dir/data" -U mill -A trust -E UTF8 --locale=C -N --no-instructions) \
        >"$room/postgres.log" 2>&1 || fail "no PostgreSQL: $(tail -n 5 "$room/postgres.log")"
    (cd / && exec "${as[@]}" setpriv --pdeathsig QUIT "${bin:+$bin/}postgres" -D "$dir/data" -k "$dir" \
        -c listen_addresses= -c fsync=off) >>"$room/postgres.log" 2>&1 </dev/null &
    postgres_pid=$!
    until_true postgres_ready_or_gone
    kill -0 "$postgres_pid" 2>/dev/null || fail "no PostgreSQL: $(tail -n 5 "$room/postgres.log")"
    postgres="postgresql://mill@/postgres?host=$dir&port=5432"
}

postgres_ready_or_gone() {
    ! kill -0 "$postgres_pid" 2>/dev/null || grep -q 'ready to accept connections' "$room/postgres.log"
}
