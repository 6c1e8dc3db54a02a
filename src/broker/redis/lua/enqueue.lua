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
local answer = {}

local function say(number, code, state, id)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = number, code, state or '', id
end

local function is_full()
  return max > 0 and waiting() >= max
end

-- Where a task begins to wait. ns is its creation, or now.
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

local i, number = 1, 0
while i <= #ARGV do
  local id, when, ms = ARGV[i], ARGV[i + 2], tonumber(ARGV[i + 3])
  local priority, lock, group = tonumber(ARGV[i + 4]), ARGV[i + 5], ARGV[i + 8]
  local fields, key = tonumber(ARGV[i + 9]), TASK .. id
  -- 1 us apart, less than it takes to put one there: scores in ms can still tell them apart.
  local ns = format('%.0f000', tonumber(now_us_text) + number)
  local due_ms = when == 'a' and ms or when == 'd' and math.ceil(now_ms + ms)
  if due_ms and due_ms <= now_ms then due_ms = false end
  local there = call('HGET', key, 'state')
  local holder = lock ~= '' and call('GET', lock)
  local held = holder and call('HGET', TASK .. holder, 'state')
  if there or call('EXISTS', key) == 1 then
    say(number, 1, shown_state(id, there), id)
  elseif held then
    local code, state, action = 2, shown_state(holder, held), ARGV[i + 7]
    if action == '1' then code = 4 end
    if action == '2' then code, state = replace(holder, held, ns, due_ms, priority) end
    say(number, code, state, holder)
  elseif is_full() then
    say(number, 3, '', id)
  else
    local hash = { 'msg', ARGV[i + 1] }
    for f = i + 10, i + 9 + fields do hash[#hash + 1] = ARGV[f] end
    if due_ms or priority ~= 0 or group ~= '' then
      hash[#hash + 1], hash[#hash + 2] = 'mr:t', ns
    end
    if lock ~= '' then
      local hold_ms = tonumber(ARGV[i + 6]) + (due_ms and due_ms - now_ms or 0)
      call('SET', lock, id, 'PX', up_ms(hold_ms))
      hash[#hash + 1], hash[#hash + 2] = 'unique_key', lock
      hash[#hash + 1], hash[#hash + 2] = 'mr:q', up_ms(now_ms + hold_ms)
    end
    call('HSET', key, unpack(hash))
    if group ~= '' and not due_ms then
      put_in_group(id, group)
      say(number, 0, 'aggregating', id)
    elseif place(id, ns, due_ms, priority) == 'scheduled' then
      say(number, 0, 'scheduled', id)
    end
  end
  i = i + 10 + fields
  number = number + 1
end
return answer
