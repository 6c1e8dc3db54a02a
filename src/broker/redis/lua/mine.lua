-- SPDX-License-Identifier: Apache-2.0
-- What was taken for a node and has not begun to run, as far as is known here. Only the newest are looked at.
-- KEYS[1]  prefix of the queue
-- ARGV     the holder, the least epoch
-- Returns  for each, the newest first: its id, its epoch
local holder, least, answer = ARGV[1], tonumber(ARGV[2]), {}
for _, id in ipairs(call('LRANGE', P .. 'active', 0, 999)) do
  local hash = ask('HMGET', TASK .. id, 'mr:i', 'mr:b')
  local epoch, _, node = hold_of(hash[1])
  if node == holder and tonumber(epoch) >= least and hash[2] ~= epoch then
    answer[#answer + 1] = id
    answer[#answer + 1] = epoch
  end
end
return answer
