-- SPDX-License-Identifier: Apache-2.0
-- Which runs have begun, so that losing their worker is a crash.
-- KEYS[1]  prefix of the queue
-- ARGV     for each: id, epoch, 1 (it runs) or 0 (it has ended, and is not finished yet)
begin_when_full()
for i = 1, #ARGV, 3 do
  local key = TASK .. ARGV[i]
  if hold_of(ask('HGET', key, 'mr:i')) == ARGV[i + 1] then
    if ARGV[i + 2] == '1' then
      call('HSET', key, 'mr:b', ARGV[i + 1])
    else
      call('HDEL', key, 'mr:b')
    end
  end
end
return 0
