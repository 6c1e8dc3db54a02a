-- SPDX-License-Identifier: Apache-2.0
-- Says what a server of ours is and does, as Asynq's do.
-- KEYS     keys of its info, of its workers, of our own details; all with the same hash tag
-- ARGV     seconds that the first two live, and the third (0: it is gone); info, details; then for each run:
--          id of the task, WorkerInfo
if ARGV[1] == '0' then return call('DEL', KEYS[1], KEYS[2], KEYS[3]) end
call('DEL', KEYS[2]) -- first: see begin_when_full
call('SETEX', KEYS[1], ARGV[1], ARGV[3])
call('SETEX', KEYS[3], ARGV[2], ARGV[4])
for i = 5, #ARGV, 2 do call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
if #ARGV > 4 then call('EXPIRE', KEYS[2], ARGV[1]) end
return 0
