-- SPDX-License-Identifier: Apache-2.0
-- What an entry of a scheduler has enqueued; the newest thousand are kept, as Asynq does.
-- KEYS[1]  the history of the entry
-- ARGV     seconds that it lives, then for each task: when it was, in seconds, and the event
call('ZREMRANGEBYRANK', KEYS[1], 0, -1001) -- first: see begin_when_full
for i = 2, #ARGV, 2 do call('ZADD', KEYS[1], ARGV[i], ARGV[i + 1]) end
call('ZREMRANGEBYRANK', KEYS[1], 0, -1001)
call('EXPIRE', KEYS[1], ARGV[1])
return 0
