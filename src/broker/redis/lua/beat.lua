-- SPDX-License-Identifier: Apache-2.0
-- Renews leases.
-- KEYS[1]  prefix of the queue
-- ARGV     lease in ms, then for each: id, epoch, progress ('': as it was)
-- Returns  the numbers, from 1, of those that are lost; below 0: of those that are to be cancelled
begin_when_full()
local answer, ids, leases, n = {}, {}, {}, 0
local end_ms = up_ms(now_ms + tonumber(ARGV[1]))
local end_s = ceil_s(end_ms)
for i = 2, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
local before = #ids > 0 and call('ZMSCORE', P .. 'lease', unpack(ids))
for i = 2, #ARGV, 3 do
  local id, number = ARGV[i], (i + 1) / 3
  local hash = ask('HMGET', TASK .. id, 'state', 'mr:i', 'mr:x')
  local epoch, ends, node = hold_of(hash[2])
  if hash[1] == 'active' and epoch == ARGV[i + 1] and before[number] == ceil_s(ends) then
    n = n + 1
    leases[2 * n - 1], leases[2 * n] = end_s, id
    call('HSET', TASK .. id, 'mr:i', epoch .. ' ' .. end_ms .. ' ' .. node)
    if ARGV[i + 2] ~= '' then call('HSET', TASK .. id, 'mr:g', ARGV[i + 2]) end
    if hash[3] == '2' then answer[#answer + 1] = -number end
  else
    answer[#answer + 1] = number
  end
end
if n > 0 then call('ZADD', P .. 'lease', unpack(leases)) end
return answer
