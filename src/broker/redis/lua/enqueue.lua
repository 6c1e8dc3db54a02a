-- SPDX-License-Identifier: Apache-2.0
-- Enqueues tasks of any kind.
-- KEYS[1]  prefix of the queue
-- ARGV     for each task: id, message, when (n now, d delay, a at), ms of that, priority in ms, key of its
--          lock ('' none), how long that holds in ms, what to do if it is held (0 reject, 1 ignore, 2 replace),
--          group ('' none), how many slices of fields follow, these: names and values
-- Returns  for each that is not new and pending, one behind the other: its number from 0; 0 (new), 1 (there is one
--          with this id), 2 (its lock is held), 3 (the queue is full), 4 (the holder of the lock stands for it),
--          5 (that one runs); the state of the task that is there, its id
local max = tonumber(call('GET', P .. 'mr:max') or 0)
local answer, now_us = {}, tonumber(now_us_text)

local function say(number, code, state, id)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = number, code, state or '', id
end

local room -- until the queue is full, once it was asked

local function is_full()
  if max == 0 then return false end
  room = room or max - waiting()
  return room <= 0
end

-- ---- new tasks: what all of them need is done once for the call

local ids, scheduled, order, due, first_ms = {}, {}, {}, {}, math.huge
local open = {} -- those with a topic

local function add(list, value, id)
  local n = #list
  list[n + 1], list[n + 2] = value, id
end

-- Puts the state of a new task among the fields of its hash, and remembers where it goes; answers what it is.
local function place_new(id, hash, ns, due_ms, priority)
  if due_ms then
    add(hash, 'state', 'scheduled')
    add(scheduled, ceil_s(due_ms), id)
    add(due, up_ms(due_ms), id)
    first_ms = math.min(first_ms, due_ms)
    return 'scheduled'
  end
  if priority ~= 0 then
    add(hash, 'state', 'scheduled')
    add(scheduled, READY_SCORE, id)
    add(order, format('%.17g', ms_of(ns) - priority), id)
  else
    add(hash, 'state', 'pending')
    add(hash, 'pending_since', ns)
    ids[#ids + 1] = id
  end
  return 'pending'
end

-- They go there. Who waits is told of the first one that is due, and of those with a priority.
local function put_new()
  if #ids > 0 then tell_first(call('LPUSH', P .. 'pending', unpack(ids)), #ids) end
  if #scheduled > 0 then call('ZADD', P .. 'scheduled', unpack(scheduled)) end
  if #order > 0 then call('ZADD', P .. 'mr:order', unpack(order)) end
  local is_first = false
  if #due > 0 then
    local before = call('ZRANGE', P .. 'mr:due', 0, 0, 'WITHSCORES')[2]
    is_first = not before or first_ms < tonumber(before)
    call('ZADD', P .. 'mr:due', unpack(due))
  end
  if is_first or #order > 0 then wake() end
  open_topics(open)
  open = {}
  ids, scheduled, order, due, first_ms = {}, {}, {}, {}, math.huge
end

-- ---- a task that is there already

-- Where it waits from now on. ns is the creation of the one that it stands for.
local function place(id, ns, due_ms, priority)
  if due_ms then
    put_due(id, 'scheduled', due_ms)
    return 'scheduled'
  end
  if priority ~= 0 then
    put_in_order(id, ms_of(ns) - priority)
    wake()
  else
    call('HSET', TASK .. id, 'state', 'pending', 'pending_since', ns)
    call('LPUSH', P .. 'pending', id)
  end
  return 'pending'
end

-- The holder of a lock goes where the new task would have stood.
local function replace(holder, state, ns, due_ms, priority)
  if state == 'active' or state == 'held' then return 5, shown_state(holder, state) end
  if state == 'archived' or state == 'completed' then return 2, state end
  if state == 'aggregating' then return 4, state end -- it has no place in the order
  take_out(holder, state)
  if not call('HGET', TASK .. holder, 'mr:t') then
    call('HSET', TASK .. holder, 'mr:t', call('HGET', TASK .. holder, 'pending_since') or ns)
  end
  call('HDEL', TASK .. holder, 'pending_since')
  if priority ~= 0 then
    call('HSET', TASK .. holder, 'mr:p', priority)
  else
    call('HDEL', TASK .. holder, 'mr:p')
  end
  return 4, place(holder, ns, due_ms, priority)
end

-- Before the first of them is written: see check_places.
local function check_all()
  call('LLEN', P .. 'pending')
  for _, name in ipairs({ 'scheduled', 'mr:order', 'mr:due', 'mr:open' }) do call('ZCARD', P .. name) end
  local i, grouped = 1, false
  while i <= #ARGV do
    local lock, group = ARGV[i + 5], ARGV[i + 8]
    if lock ~= '' then call('GET', lock) end
    if group ~= '' then
      grouped = true
      call('ZCARD', P .. 'g:' .. group)
    end
    i = i + 10 + tonumber(ARGV[i + 9])
  end
  if not grouped then return end
  call('SCARD', P .. 'groups')
  for _, key in ipairs({ SIZE, OLDEST, NEWEST }) do call('ZCARD', key) end
end

check_all()
local i, number = 1, 0
while i <= #ARGV do
  local id, when, ms = ARGV[i], ARGV[i + 2], tonumber(ARGV[i + 3])
  local priority, lock, group = tonumber(ARGV[i + 4]), ARGV[i + 5], ARGV[i + 8]
  local fields, key = tonumber(ARGV[i + 9]), TASK .. id
  -- 1 us apart, less than it takes to put one there: scores in ms can still tell them apart.
  local ns = format('%d000', now_us + number)
  local due_ms = when == 'a' and ms or when == 'd' and math.ceil(now_ms + ms)
  if due_ms and due_ms <= now_ms then due_ms = false end
  local there = call('EXISTS', key) == 1
  local holder = lock ~= '' and call('GET', lock)
  local held = holder and ask('HGET', TASK .. holder, 'state')
  if there or held then put_new() end -- it may be one of them
  if there then
    say(number, 1, shown_state(id, ask('HGET', key, 'state')), id)
  elseif held then
    local code, state, action = 2, shown_state(holder, held), ARGV[i + 7]
    if action == '1' then code = 4 end
    if action == '2' then code, state = replace(holder, held, ns, due_ms, priority) end
    say(number, code, state, holder)
  elseif is_full() then
    say(number, 3, '', id)
  else
    if room then room = room - 1 end
    local hash = { 'msg', ARGV[i + 1] }
    for f = i + 10, i + 9 + fields do
      hash[#hash + 1] = ARGV[f]
      if ARGV[f] == 'mr:k' and f % 2 == i % 2 then add(open, up_ms(due_ms or now_ms), id) end
    end
    if due_ms or priority ~= 0 or group ~= '' then
      hash[#hash + 1], hash[#hash + 2] = 'mr:t', ns
    end
    if lock ~= '' then
      local hold_ms = tonumber(ARGV[i + 6]) + (due_ms and due_ms - now_ms or 0)
      call('SET', lock, id, 'PX', up_ms(hold_ms))
      hash[#hash + 1], hash[#hash + 2] = 'unique_key', lock
      hash[#hash + 1], hash[#hash + 2] = 'mr:q', up_ms(now_ms + hold_ms)
    end
    local grouped = group ~= '' and not due_ms
    local state = grouped and 'aggregating' or place_new(id, hash, ns, due_ms, priority)
    call('HSET', key, unpack(hash))
    if grouped then put_in_group(id, group) end
    if state ~= 'pending' then say(number, 0, state, id) end
  end
  i = i + 10 + fields
  number = number + 1
end
put_new()
return answer
