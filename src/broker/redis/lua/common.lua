-- SPDX-License-Identifier: Apache-2.0
-- What the scripts share that change the state of tasks; it stands behind head.lua.

-- Whoever waits for a task of this queue looks again.
local function wake()
  tell(P .. 'mr:wake', '1')
end

local function count(name, n)
  call('HINCRBY', P .. 'mr:counts', name, n)
end

-- A key of another type, set by hand, ends the script here, while nothing is half done.
local function check_places()
  call('LLEN', P .. 'pending')
  for _, name in ipairs({ 'scheduled', 'retry', 'archived', 'completed', 'mr:order', 'mr:due', 'mr:late', 'mr:keep' }) do
    call('ZCARD', P .. name)
  end
end

-- The lock of a unique key is free, if it is this task's.
local function unlock(id, lock)
  if lock and lock ~= '' and call('GET', lock) == id then
    call('DEL', lock)
  end
end

-- ---- those who wait for the end of a task: they have left a mark in mr:await

local END_MS = 60000
local awaits

local function is_awaited(id)
  if awaits == nil then awaits = call('EXISTS', P .. 'mr:await') == 1 end
  return awaits and call('ZSCORE', P .. 'mr:await', id)
end

-- A task ended, or is gone; a message only means that there is something to look at.
local function tell_end(id)
  if not is_awaited(id) then return end
  call('ZREM', P .. 'mr:await', id)
  tell(string.match(P, '^(.*){') .. 'mr:ended', id)
end

-- The hash of a task that was done and leaves nothing: only for those who wait it stays for a while, beside.
local function drop_done(id, result)
  if not is_awaited(id) then
    call('DEL', TASK .. id)
    return
  end
  call('HSET', TASK .. id, 'state', 'completed', 'result', result, 'mr:f', format('%.0f', floor(now_ms)))
  call('RENAME', TASK .. id, P .. 'mr:end:' .. id)
  call('PEXPIRE', P .. 'mr:end:' .. id, END_MS)
  tell_end(id)
end

-- ---- ready tasks

local function order_of(score)
  local ms = tonumber(score)
  return ms and ms >= PARKED and format('%.17g', ms - PARKED) or score
end

local function put_in_order(id, ms)
  call('HSET', TASK .. id, 'state', 'scheduled')
  call('HDEL', TASK .. id, 'pending_since')
  call('ZADD', P .. 'scheduled', READY_SCORE, id)
  call('ZADD', P .. 'mr:order', format('%.17g', ms), id)
end

-- At an end of the list, where that keeps the list in order; false: it does not, or nobody knows, since what stands
-- there has no time.
local function put_right(id, ns)
  local last = call('LINDEX', P .. 'pending', -1)
  local right = since(last)
  if last and (not right or ns > right) then return false end
  call('HSET', TASK .. id, 'state', 'pending', 'pending_since', ns)
  call('RPUSH', P .. 'pending', id)
  return true
end

local function put_left(id, ns)
  local first = call('LINDEX', P .. 'pending', 0)
  local left = since(first)
  if first and (not left or ns < left) then return false end
  call('HSET', TASK .. id, 'state', 'pending', 'pending_since', ns)
  call('LPUSH', P .. 'pending', id)
  return true
end

-- Makes a task pending that is in no container, at its order time (text of ns): at an end of the list, behind those of
-- the same time, or beside it.
local function put_ready(id, ns, priority)
  if priority or not (put_left(id, ns) or put_right(id, ns)) then put_in_order(id, ms_of(ns)) end
end

-- The same for many, each with id, order, priority and epoch: as far as they can, they stand in the list, where
-- those of one moment keep their order.
local function put_ready_all(tasks)
  local rest = {}
  table.sort(tasks, function(a, b)
    if a.order ~= b.order then return a.order > b.order end
    return tonumber(a.epoch or 0) > tonumber(b.epoch or 0)
  end)
  for _, task in ipairs(tasks) do
    if task.priority or not put_right(task.id, task.order) then rest[#rest + 1] = task end
  end
  for i = #rest, 1, -1 do
    local task = rest[i]
    if task.priority or not put_left(task.id, task.order) then put_in_order(task.id, ms_of(task.order)) end
  end
end

-- To wait for its time: state is scheduled or retry, due_ms whole ms. Who waits is told of the first one.
local function put_due(id, state, due_ms)
  call('HSET', TASK .. id, 'state', state)
  call('ZADD', P .. state, ceil_s(due_ms), id)
  call('ZADD', P .. 'mr:due', format('%.0f', due_ms), id)
  if call('ZRANGE', P .. 'mr:due', 0, 0)[1] == id then wake() end
end

-- ---- groups

-- Of each group how many members it has, and when the first and the last of them joined, ms: so what is ripe is
-- found without looking at every group, by whatever rule. Other programs do not keep them, so what they say is
-- looked at again before a group is taken for ripe, and gather.lua walks through all groups bit by bit.
local SIZE, OLDEST, NEWEST = P .. 'mr:size', P .. 'mr:oldest', P .. 'mr:newest'
local NAME_MAX = 128 -- a group of another program with a longer name is left to that
local full -- so many members wake those who gather; false: nobody waits
local told

-- Those who gather look again.
local function tell_ripe()
  if not told then tell(P .. 'mr:ripe', '1') end
  told = true
end

-- Members that came, or are gone.
local function count_members(n)
  if call('EXISTS', P .. 'mr:members') == 1 then call('INCRBY', P .. 'mr:members', n) end
end

local function forget_group(name)
  for _, key in ipairs({ SIZE, OLDEST, NEWEST }) do call('ZREM', key, name) end
end

-- Other programs empty groups and leave what we noted of them. Two are looked at for each that is new, so no more
-- are left than there are groups.
local function forget_some()
  for _, name in ipairs(call('ZRANDMEMBER', SIZE, 2)) do
    if call('EXISTS', P .. 'g:' .. name) == 0 then forget_group(name) end
  end
end

-- A member that joins makes its group ripe later, if not by its size; only the first of all groups gives a time to
-- those who have none.
local function put_in_group(id, group)
  local key, now = P .. 'g:' .. group, format('%.3f', now_ms)
  call('HSET', TASK .. id, 'state', 'aggregating', 'group', group)
  call('ZADD', key, now_s, id)
  call('SADD', P .. 'groups', group)
  count_members(1)
  if #group > NAME_MAX then return end
  local size, first = call('ZCARD', key), call('ZADD', OLDEST, 'NX', now, group) == 1
  if first then forget_some() end
  if first and size > 1 then -- of another program
    call('ZADD', OLDEST, call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] * 1000, group)
  end
  call('ZADD', NEWEST, now, group)
  call('ZADD', SIZE, size, group)
  if full == nil then full = tonumber(call('GET', P .. 'mr:full')) or false end
  if full and size >= full or first and call('ZCARD', OLDEST) == 1 then tell_ripe() end
end

-- The state that is shown.
local function shown_state(id, state)
  if state == 'held' then return call('HGET', TASK .. id, 'mr:h') end
  if state == 'scheduled' and call('ZSCORE', P .. 'mr:order', id) then return 'pending' end
  return state
end

-- Takes a task that does not run out of the container that its hash names.
local function take_out(id, state)
  if state == 'pending' then
    call('LREM', P .. 'pending', 0, id)
  else
    call('ZREM', P .. state, id)
    call('ZREM', P .. 'mr:due', id)
    call('ZREM', P .. 'mr:late', id)
    call('ZREM', P .. 'mr:order', id)
    call('ZREM', P .. 'mr:keep', id)
  end
end

-- ---- topics

-- Tasks with a topic that are new, or run again: scores (the time from which on they can run, ms) and ids alternate.
-- Some are gone without an end, by the hands of others: a few are looked at, and where there is such a one, two for each
-- that comes.
local function forget_gone(key, n)
  local gone = 0
  for _, id in ipairs(call('ZRANDMEMBER', key, n)) do
    if call('EXISTS', TASK .. id) == 0 then gone = gone + call('ZREM', key, id) end
  end
  return gone
end

local function open_topics(entries)
  local key, FEW = P .. 'mr:open', 8
  if #entries == 0 then return end
  -- Its name may be gone with a queue of that name (remove.lua). In a Cluster it never goes, and is another slot's.
  if call('EXISTS', key) == 0 then
    redis.pcall('SADD', string.match(P, '^(.*){') .. 'mr:results', string.match(P, '{([^}]*)}:$'))
  end
  if forget_gone(key, math.min(#entries, FEW)) > 0 and #entries > FEW then forget_gone(key, #entries) end
  call('ZADD', key, unpack(entries))
end

-- ---- the archive

-- The archive keeps `most` tasks, and those for `keep_ms`.
local function trim_archive(most, keep_ms)
  local key = P .. 'archived'
  local old = call('ZRANGEBYSCORE', key, '-inf', now_s - floor(keep_ms / 1000), 'LIMIT', 0, 1000)
  local over = call('ZCARD', key) - #old - most
  if over > 0 then
    for _, one in ipairs(call('ZRANGE', key, #old, #old + math.min(over, 1000) - 1)) do
      old[#old + 1] = one
    end
  end
  for _, one in ipairs(old) do
    call('ZREM', key, one)
    call('DEL', TASK .. one)
  end
  if #old > 0 then count('trimmed', #old) end
end

-- Into the archive. Workers trim it, by their settings; what people put there by hand does not.
local function put_archived(id, most, keep_ms)
  call('HSET', TASK .. id, 'state', 'archived', 'mr:f', format('%.0f', floor(now_ms)))
  call('ZADD', P .. 'archived', now_s, id)
  if most then trim_archive(most, keep_ms) end
  tell_end(id)
end

-- ---- what a task has behind it (broker/past.h)

local PAST_MAX, PAST_TEXT_MAX = 16, 256

-- Where the last of them begin.
local function last_of(past)
  local starts, at = {}, 1
  while true do
    local node, text, from = string.match(past, '^%d+ %d+ %d+ [a-z_]+ (%d+) (%d+)\n()', at)
    if not node then break end
    starts[#starts + 1] = at
    at = from + node + text + 1
  end
  return starts[math.max(1, #starts - PAST_MAX + 1)] or at
end

-- When the run under this epoch began, ms.
local function began_ms(run, epoch)
  local of, ms = string.match(run or '', '^(%d+) (%d+)$')
  return of == epoch and tonumber(ms) or floor((epoch or 0) / 1000)
end

-- Nobody ended the run under this epoch. That it was is still to be known, and not by mr:e: whoever sends its end again
-- would be told that it counted.
local function keep_epoch(id, epoch, run)
  call('HSET', TASK .. id, 'mr:s', format('%s %.0f', epoch, began_ms(run, epoch)))
end

-- A run ended so: by its attempt, its epoch and its holder; without them somebody did it.
local function note_past(id, what, text, attempt, epoch, holder)
  local state, past, run = unpack(call('HMGET', TASK .. id, 'state', 'mr:a', 'mr:s'))
  local node = string.match(holder or '', '^[^\31]*')
  if not state then return end -- the archive had no room for it
  if #text > PAST_TEXT_MAX then text = string.gsub(sub(text, 1, PAST_TEXT_MAX), '[\192-\255][\128-\191]*$', '') end
  past = (past or '') .. format('%.0f %.0f %d %s %d %d\n', floor(now_ms), began_ms(run, epoch), attempt or 0, what, #node, #text)
    .. node .. text .. '\n'
  call('HSET', TASK .. id, 'mr:a', sub(past, last_of(past)))
end

-- ---- TaskMessage

local function varint(s, i)
  local b = byte(s, i)
  if b < 128 then return b, i + 1 end
  local value, unit = b - 128, 128
  repeat
    i = i + 1
    b = byte(s, i)
    value = value + b % 128 * unit
    unit = unit * 128
  until b < 128
  return value, i + 1
end

local function put_varint(value)
  local s = ''
  while value >= 128 do
    s = s .. char(value % 128 + 128)
    value = floor(value / 128)
  end
  return s .. char(value)
end

local CHANGING = { [6] = true, [7] = true, [11] = true, [13] = true }

local function message_fields(msg)
  local i, from, n, rest, fields = 1, 1, #msg, {}, {}
  while i <= n do
    local start, tag, value = i, nil, nil
    tag, i = varint(msg, i)
    local kind, number = tag % 8, floor(tag / 8)
    if kind == 0 then
      value, i = varint(msg, i)
    elseif kind == 2 then
      value, i = varint(msg, i)
      i = i + value
      if number == 1 or number == 7 or number == 10 or number == 14 then value = sub(msg, i - value, i - 1) end
    else
      i = i + (kind == 1 and 8 or 4)
    end
    fields[number] = value
    if CHANGING[number] then
      rest[#rest + 1] = sub(msg, from, start - 1)
      from = i
    end
  end
  rest[#rest + 1] = sub(msg, from)
  fields.rest = table.concat(rest)
  fields.whole = i == n + 1
  return fields
end

-- What a script wants to know of a message; `rest` is the message without what a run changes (retried,
-- error_msg, last_failed_at, completed_at). Of one that makes no sense nothing is known.
local function message_read(msg)
  local ok, fields = pcall(message_fields, msg or '')
  if not ok or not fields.whole then fields = { rest = msg or '', damaged = true } end
  return { retry = fields[5] or 0, retried = fields[6] or 0, retention = fields[12] or 0,
    unique_key = fields[10], group = fields[14], error = fields[7], failed_s = fields[11], type = fields[1],
    ended_s = fields[13], rest = fields.rest, damaged = fields.damaged }
end

-- The message again, with retried, error, failed_s and completed_s as they are now.
local function message_write(fields)
  local s, error = fields.rest, fields.error
  if fields.damaged then return s end
  if fields.retried > 0 then s = s .. char(48) .. put_varint(fields.retried) end
  if error and error ~= '' then s = s .. char(58) .. put_varint(#error) .. error end
  if fields.failed_s then s = s .. char(88) .. put_varint(fields.failed_s) end
  if fields.completed_s then s = s .. char(104) .. put_varint(fields.completed_s) end
  return s
end
