-- SPDX-License-Identifier: Apache-2.0
-- Renews leases.
-- KEYS[1]  prefix of the queue
-- ARGV     lease in ms, then for each: id, epoch, progress ('': as it was)
-- Returns  the numbers, from 0, of those that are lost
begin_when_full()
local lost, leases, own, n = {}, {}, {}, 0
local end_ms = up_ms(now_ms + tonumber(ARGV[1]))
local end_s = ceil_s(end_ms)
for i = 2, #ARGV, 3 do
  local id = ARGV[i]
  local hash = call('HMGET', TASK .. id, 'state', 'mr:e')
  local ours = call('ZSCORE', P .. 'mr:lease', id)
  if hash[1] == 'active' and hash[2] == ARGV[i + 1] and ours
    and call('ZSCORE', P .. 'lease', id) == ceil_s(ours) then
    n = n + 1
    leases[2 * n - 1], leases[2 * n] = end_s, id
    own[2 * n - 1], own[2 * n] = end_ms, id
    if ARGV[i + 2] ~= '' then call('HSET', TASK .. id, 'mr:g', ARGV[i + 2]) end
  else
    lost[#lost + 1] = (i - 2) / 3
  end
end
if n > 0 then
  call('ZADD', P .. 'lease', unpack(leases))
  call('ZADD', P .. 'mr:lease', unpack(own))
end
return lost
