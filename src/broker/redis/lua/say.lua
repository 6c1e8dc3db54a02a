-- SPDX-License-Identifier: Apache-2.0
-- Says what a server of ours is and does, as Asynq's do.
-- KEYS     keys of its info, of its workers, of our own details, all with the same hash tag; and, but not in a
--          Cluster, the three sets that name those
-- ARGV     seconds that the first two live, and the third (0: it is gone); info ('': it is none of Asynq's, so
--          the first two are not said), details; 1: whoever died without a word is forgotten; then for each run: id
--          of the task, WorkerInfo
local gone = ARGV[1] == '0'
call('DEL', KEYS[2]) -- first: see begin_when_full
if gone then
  call('DEL', KEYS[1], KEYS[3])
else
  if ARGV[3] ~= '' then call('SETEX', KEYS[1], ARGV[1], ARGV[3]) end
  call('SETEX', KEYS[3], ARGV[2], ARGV[4])
  for i = 6, #ARGV, 2 do call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
  if #ARGV > 5 then call('EXPIRE', KEYS[2], ARGV[1]) end
end
for i = ARGV[3] ~= '' and 4 or 6, #KEYS do
  if ARGV[5] == '1' then call('ZREMRANGEBYSCORE', KEYS[i], '-inf', now_s - 1) end
  if gone then
    call('ZREM', KEYS[i], KEYS[i - 3])
  else
    call('ZADD', KEYS[i], now_s + (i == 6 and ARGV[2] or ARGV[1]), KEYS[i - 3])
  end
end
return 0
