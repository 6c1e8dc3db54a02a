-- SPDX-License-Identifier: Apache-2.0
-- Looks at locks of unique keys: whether the task that holds each is there and has not ended.
-- KEYS: 1 the queue
-- ARGV: 1 '1': mend what is found, then keys of locks
-- Returns: per finding its number and the key.
local STALE_LOCK = 11
local out = {}
for i = 2, #ARGV do
  local usable = is_type(ARGV[i], 'string')
  local id = usable and call('GET', ARGV[i])
  local state = id and is_type(TASK .. id, 'hash') and call('HGET', TASK .. id, 'state')
  if not usable then
    out[#out + 1], out[#out + 2] = WRONG_TYPE, ARGV[i]
  elseif id and (not state or state == 'archived' or state == 'completed') then
    out[#out + 1], out[#out + 2] = STALE_LOCK, ARGV[i]
    if ARGV[1] == '1' then call('DEL', ARGV[i]) end
  end
end
return out
