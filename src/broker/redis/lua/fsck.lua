-- SPDX-License-Identifier: Apache-2.0
-- What the scripts of fsck share; it stands behind look.lua.

local WRONG_TYPE = 13
if ARGV[1] == '1' then begin_when_full() end -- mending takes out more than it puts in

local function is_type(key, type)
  local found = call('TYPE', key).ok
  return found == type or found == 'none'
end

-- Whether a task is in the place that its state names.
local function is_placed(id, state)
  if state == 'pending' then
    local ns = since(id)
    return ns and place_near(id, place_beyond(function(other) return other >= ns end))
      or call('LPOS', P .. 'pending', id)
  elseif state == 'active' then
    return call('LPOS', P .. 'active', id)
  elseif state == 'aggregating' then
    local group = call('HGET', TASK .. id, 'group')
    if group and call('ZSCORE', P .. 'g:' .. group, id) then return true end
    for _, set in ipairs(call('ZRANGE', P .. 'aggregation_sets', 0, -1)) do
      if call('ZSCORE', set, id) then return true end
    end
    return false
  elseif state == 'held' then
    return call('ZSCORE', P .. 'mr:held', id)
  end
  return STATES[state] and call('ZSCORE', P .. state, id)
end

local function is_anywhere(id, state)
  if is_placed(id, state) then return true end
  for _, other in ipairs({ 'scheduled', 'retry', 'archived', 'completed', 'active', 'pending' }) do
    if other ~= state and is_placed(id, other) then return true end
  end
  return false
end

-- Makes a task pending that is in no place, at its order time as far as that is known.
local function put_back(id)
  local ns, created, order, priority, hold, run =
    unpack(call('HMGET', TASK .. id, 'pending_since', 'mr:t', 'mr:o', 'mr:p', 'mr:i', 'mr:s'))
  local epoch = hold_of(hold)
  if epoch then keep_epoch(id, epoch, run) end
  if not created then call('HSET', TASK .. id, 'mr:t', ns or now_ns) end
  call('HDEL', TASK .. id, 'mr:b', 'mr:i', 'mr:g')
  put_ready(id, ns or order or created or now_ns, priority)
  wake()
end
