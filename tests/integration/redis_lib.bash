# SPDX-License-Identifier: Apache-2.0
#
# Sourced, behind cli_lib.bash (and serve_lib.bash), by the tests that need a Redis server of their own.
# It lives in the test's room and goes with the test, also when that is killed.

redises=()
redis_program=$room/redis-server
# Where only the tools of Redis are installed, one of them is the server under another name.
ln -s "$(command -v redis-server || command -v redis-check-rdb)" "$redis_program"
trap 'for p in "${redises[@]}" "${servers[@]}"; do kill -9 "$p" && wait "$p" || true; done 2>/dev/null
chmod -R u+rwX "$room" 2>/dev/null; rm -rf "$room"' EXIT

# redis_start NAME [CONFIG LINE]...: a server, empty at its first start. $redis becomes its URL,
# $redis_port its port (PORT in a line stands for it) and $redis_pid its number; a second start under the same name keeps the port.
redis_start() {
    local dir=$room/redis-$1 line tries
    mkdir -p "$dir"
    for ((tries = 0; tries < 20; tries++)); do
        # Below the ports that the system gives to clients.
        redis_port=$(cat "$dir/port" 2>/dev/null || echo $((10240 + (RANDOM << 1 | RANDOM & 1) % 22528)))
        printf '%s\n' "bind 127.0.0.1" "port $redis_port" "unixsocket $dir/sock" "dir $dir" 'save ""' \
            "protected-mode no" "enable-debug-command yes" >"$dir/redis.conf"
        for line in "${@:2}"; do echo "${line//PORT/$redis_port}" >>"$dir/redis.conf"; done
        setpriv --pdeathsig KILL "$redis_program" "$dir/redis.conf" >>"$dir/log" 2>&1 </dev/null &
        redis_pid=$!
        redises+=("$redis_pid")
        until_true redis_ready_or_gone "$dir/sock"
        if kill -0 "$redis_pid" 2>/dev/null; then
            echo "$redis_port" >"$dir/port"
            redis=redis://127.0.0.1:$redis_port
            return
        fi
    done
    fail "no Redis server: $(tail -n 5 "$dir/log")"
}

# A password does not matter here: any answer is an answer.
redis_ready_or_gone() {
    ! kill -0 "$redis_pid" 2>/dev/null || redis-cli -s "$1" ping 2>/dev/null | grep -qE 'PONG|NOAUTH'
}

# redis_kill: kill -9 of the last one started.
redis_kill() {
    kill -9 "$redis_pid"
    wait "$redis_pid" 2>/dev/null || true
}

# r ARG...: a command to the last one started.
r() { redis-cli -p "$redis_port" "$@"; }
