-- SPDX-License-Identifier: Apache-2.0
-- Looks at tasks: whether each is somewhere.
-- KEYS: 1 the queue
-- ARGV: 1 '1': mend what is found, then ids
-- Returns: per finding its number and the id.
local mend = ARGV[1] == '1'
local NO_PLACE, NO_MESSAGE, NO_SENSE = 8, 9, 10
local out = {}

-- What has ended does not run again.
local function put_somewhere(id, state, message)
  if state == 'archived' then
    call('ZADD', P .. 'archived', now_s, id)
  elseif state == 'completed' then
    call('ZADD', P .. 'completed', now_s + message.retention, id)
  elseif state == 'held' then
    call('ZADD', P .. 'mr:held', format('%.0f', floor(now_ms)), id)
  else
    put_back(id)
  end
end

local function check(id)
  local state, msg = unpack(call('HMGET', TASK .. id, 'state', 'msg'))
  local message = msg and message_read(msg)
  if not msg and call('EXISTS', TASK .. id) == 0 then return end -- it has ended since its key was found
  if not msg then
    out[#out + 1], out[#out + 2] = NO_MESSAGE, id
    if mend then call('DEL', TASK .. id) end
  elseif not is_anywhere(id, state) then
    out[#out + 1], out[#out + 2] = NO_PLACE, id
    if mend then put_somewhere(id, state, message) end
  elseif message.damaged then
    out[#out + 1], out[#out + 2] = NO_SENSE, id
  end
end

for i = 2, #ARGV do
  if is_type(TASK .. ARGV[i], 'hash') then
    check(ARGV[i])
  else
    out[#out + 1], out[#out + 2] = WRONG_TYPE, 't:' .. ARGV[i]
  end
end
return out
