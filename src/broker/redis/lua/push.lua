-- SPDX-License-Identifier: Apache-2.0
-- Enqueues tasks that are plain: pending now, with nothing that needs a field of ours.
-- KEYS[1]  prefix of the queue
-- ARGV     id, message, id, message, ... (1000 at most)
-- Returns  nothing for each that is new; of the others, one behind the other: its number from 0, 1 (there is
--          one with this id) or 3 (the queue is full), the state of the one that is there, its id
local max = tonumber(call('GET', P .. 'mr:max') or 0)
local room = 1000
if max > 0 then
  room = max - waiting()
end
-- A key of another type ends the script here, while nothing is half done.
call('LLEN', P .. 'pending')
call('ZCARD', P .. 'mr:order')
local answer, ids, n = {}, {}, 0
for i = 1, #ARGV, 2 do
  local id = ARGV[i]
  local key = TASK .. id
  if call('EXISTS', key) == 1 then
    local state = call('ZSCORE', P .. 'mr:order', id) and 'pending' or ask('HGET', key, 'mr:h')
      or ask('HGET', key, 'state')
    for _, value in ipairs({ (i - 1) / 2, 1, state or '', id }) do answer[#answer + 1] = value end
  elseif n >= room then
    for _, value in ipairs({ (i - 1) / 2, 3, '', id }) do answer[#answer + 1] = value end
  else
    call('HSET', key, 'msg', ARGV[i + 1], 'state', 'pending', 'pending_since',
      now_us_text .. format('%03d', n))
    n = n + 1
    ids[n] = id
  end
end
if n > 0 then tell_first(call('LPUSH', P .. 'pending', unpack(ids)), n) end
return answer
