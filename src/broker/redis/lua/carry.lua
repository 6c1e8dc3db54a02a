-- SPDX-License-Identifier: Apache-2.0
-- Takes over tasks of another broker as they stood there. They are held: in mr:held and nowhere else.
-- KEYS[1]  prefix of the queue
-- ARGV     for each task: id, message, its state, key of its lock ('' none), until when that holds in ms, 1 if it
--          takes it now, order time in ms, its last epoch, how many slices of fields follow, these: names and values
-- Returns  for each that is not new, one behind the other: its number from 0; 1 (there is one with this id); the
--          state of the task that is there, its id
local HEAD = 9
local answer, i, number, new = {}, 1, 0, 0
local last = tonumber(call('GET', P .. 'mr:epoch') or 0)

-- Whoever takes what had this epoch has a higher one.
local function go_beyond(epoch)
  if epoch <= last then return end
  last = epoch
  call('SET', P .. 'mr:epoch', format('%d', epoch))
end

while i <= #ARGV do
  local id, lock, fields = ARGV[i], ARGV[i + 3], tonumber(ARGV[i + 8])
  local key = TASK .. id
  if call('EXISTS', key) == 1 then
    local state = shown_state(id, ask('HGET', key, 'state'))
    for _, value in ipairs({ number, 1, state or '', id }) do answer[#answer + 1] = value end
  else
    local hash = { 'msg', ARGV[i + 1], 'state', 'held', 'mr:h', ARGV[i + 2], 'mr:e', now_us_text }
    for f = i + HEAD, i + HEAD - 1 + fields do hash[#hash + 1] = ARGV[f] end
    local left_ms = tonumber(ARGV[i + 4]) - now_ms
    if lock ~= '' and left_ms > 0 then
      -- Who has it here keeps it.
      if ARGV[i + 5] ~= '1' or call('SET', lock, id, 'NX', 'PX', up_ms(left_ms)) then
        for _, value in ipairs({ 'unique_key', lock, 'mr:q', ARGV[i + 4] }) do hash[#hash + 1] = value end
      end
    end
    go_beyond(tonumber(ARGV[i + 7]))
    call('HSET', key, unpack(hash))
    call('ZADD', P .. 'mr:held', ARGV[i + 6], id)
    new = new + 1
  end
  i = i + HEAD + fields
  number = number + 1
end
if new > 0 then count('carried', new) end
return answer
