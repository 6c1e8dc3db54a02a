-- SPDX-License-Identifier: Apache-2.0
-- KEYS     1 asynq:mr:cluster
-- Returns  the time in ms; then all of the hash
return { format('%d', now_ms), call('HGETALL', KEYS[1]) }
