-- SPDX-License-Identifier: Apache-2.0
-- What the scripts share that look at single tasks and act on them; it stands behind common.lua.

-- Calls each(number, from, value, after) for the fields of a message until that answers true. false: the
-- bytes are no message.
local function each_field(s, each)
  return pcall(function()
    local i, n = 1, #s
    while i <= n do
      local tag, at = varint(s, i)
      local kind, after = tag % 8, nil
      if kind == 0 then
        local _
        _, after = varint(s, at)
      elseif kind == 2 then
        local len
        len, at = varint(s, at)
        after = at + len
      else
        after = at + (kind == 1 and 8 or 4)
      end
      if after > n + 1 then error('cut') end
      if each(floor(tag / 8), i, at, after) then return end
      i = after
    end
  end)
end

-- The type of a task. Go writes it first and once.
local function type_of(msg)
  local found = ''
  each_field(msg, function(number, _, at, after)
    if number == 1 then found = sub(msg, at, after - 1) end
    return number == 1
  end)
  return found
end

-- The message without its payload; one that is none as it is.
local function without_payload(msg)
  local out, from = '', 1
  local ok = each_field(msg, function(number, start, _, after)
    if number == 2 then
      out = out .. sub(msg, from, start - 1)
      from = after
    end
  end)
  return ok and out .. sub(msg, from) or msg
end

-- What HGETALL gave, and where in it the value of a field stands.
local function field_at(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then return i + 1 end
  end
  return nil
end

-- ---- where tasks are

local STATES = { scheduled = 1, pending = 2, active = 3, retry = 4, archived = 5, completed = 6,
  aggregating = 7 }

-- The same as standing says, of a held task: as it was where it came from.
local function held_standing(id)
  local state, at, order, created = unpack(ask('HMGET', TASK .. id, 'mr:h', 'mr:w', 'mr:o', 'mr:t'))
  local number = STATES[state] or 0
  if number == 1 or number == 4 then return number, at and ceil_s(at), at end
  if number ~= 2 then return number, false, false end
  local score = format('%.17g', ms_of(order or created or 0))
  return number, score, score
end

-- A lock of another program says by itself how long it holds.
local function with_lock(id, fields)
  local at = field_at(fields, 'unique_key')
  if at and not field_at(fields, 'mr:q') and call('GET', fields[at]) == id then
    local left_ms = call('PTTL', fields[at])
    if left_ms > 0 then fields[#fields + 1], fields[#fields + 2] = 'mr:q', up_ms(now_ms + left_ms) end
  end
  return fields
end

-- The number of a task's state as we say it, its score there, and ours for it: the order time or the due
-- time in ms. What has a priority and is ready is scheduled for Asynq and pending for us.
local function standing(id, state)
  if state == 'held' then return held_standing(id) end
  local number = STATES[state] or 0
  if number == 1 then
    local order = call('ZSCORE', P .. 'mr:order', id)
    if order and tonumber(call('ZSCORE', P .. 'scheduled', id) or 0) == READY_SCORE then
      return 2, order_of(order), order_of(order)
    end
  end
  if number == 1 or number == 4 then
    return number, call('ZSCORE', P .. state, id), call('ZSCORE', P .. 'mr:due', id)
  end
  return number, number > 4 and number < 7 and call('ZSCORE', P .. state, id), false
end

-- ---- the list of pending tasks

-- It is in the order of pending_since, but for what other programs put there without one. Places are
-- counted from the oldest on, so that what comes does not move them.
local STEPS, WINDOW = 16, 32

local function since_at(place)
  for p = place, place + STEPS do
    local id = call('LINDEX', P .. 'pending', -(p + 1))
    if not id then return nil end
    local ns = since(id)
    if ns then return ns end
  end
  return nil
end

-- The first place whose time is beyond, and whether there were times wherever it was looked for.
local function place_beyond(beyond)
  local low, high, sure = 0, call('LLEN', P .. 'pending'), true
  while low < high do
    local middle = floor((low + high) / 2)
    local ns = since_at(middle)
    if not ns then sure = false end
    if not ns or beyond(ns) then high = middle else low = middle + 1 end
  end
  return low, sure
end

-- The place of this id if it is around there.
local function place_near(id, place)
  local first = math.max(place - WINDOW, 0)
  local ids = call('LRANGE', P .. 'pending', -(place + WINDOW), -(first + 1))
  for i = #ids, 1, -1 do
    if ids[i] == id then return first + #ids - i end
  end
  return nil
end

-- ---- groups

-- When a member joined: scores are whole seconds, but ours have their time in the hash.
local function joined_ms(id, score)
  local ns = ask('HGET', TASK .. id, 'mr:t')
  if ns and floor(ms_of(ns) / 1000) == tonumber(score) then return ms_of(ns) end
  return tonumber(score) * 1000
end

-- A time that we noted of a group holds while the member at that end joined in the same second.
local function noted_ms(key, name, rank)
  local member, score = unpack(call('ZRANGE', P .. 'g:' .. name, rank, rank, 'WITHSCORES'))
  local noted = tonumber(call('ZSCORE', key, name) or 0)
  if floor(noted / 1000) == tonumber(score) then return noted end
  local ms = joined_ms(member, score)
  call('ZADD', key, format('%.3f', ms), name)
  return ms
end

-- Notes of a group what is so, and answers it: its size, when its first and its last member joined. One without
-- members is none.
local function note_group(name)
  local size = call('ZCARD', P .. 'g:' .. name)
  if size == 0 then
    call('SREM', P .. 'groups', name)
    forget_group(name)
    return 0, 0, 0
  end
  if #name > NAME_MAX then return size, 0, 0 end
  call('ZADD', SIZE, size, name)
  return size, noted_ms(OLDEST, name, 0), noted_ms(NEWEST, name, -1)
end

-- The members of a set are back in their group, with their scores; its name is known again.
local function return_set(set)
  local group = string.match(set, '^(.*):[^:]*$')
  local name, members = sub(group, #P + 3), call('ZRANGE', set, 0, -1, 'WITHSCORES')
  for i = 1, #members, 2 do call('ZADD', group, members[i + 1], members[i]) end
  call('DEL', set)
  call('ZREM', P .. 'aggregation_sets', set)
  if #members > 0 then call('SADD', P .. 'groups', name) end
  note_group(name)
  tell_ripe()
end
