-- SPDX-License-Identifier: Apache-2.0
-- Hands out tasks of one queue by order time: those that wait in the list and in mr:order, and what is due. Of the
-- latter those that belong behind all in the list are handed out as they are; only the rest is made pending.
-- KEYS[1]  prefix of the queue
-- ARGV     how many at most, lease in ms, the holder, how many bytes of messages are enough (0: no matter)
-- Returns  how many are left, 1 if the queue is paused, in how many ms the next one is due (-1: none is); then for
--          each task: its id, its epoch, its order time in ms where it was in mr:order ('' else), all fields of its
--          hash as it was while pending
local most, lease_ms, node = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local bytes_max = tonumber(ARGV[4])
local list, order_key, due_key = P .. 'pending', P .. 'mr:order', P .. 'mr:due'
local DUE_MAX = 200 -- at a time: Redis does nothing else meanwhile
if bytes_max == 0 then bytes_max = math.huge end

-- The task of an id with what matters here; nil if it has no hash. What has no message is no task.
local function read(id)
  local hash = call('HGETALL', TASK .. id)
  local message, since, created, priority, ran, group
  for f = 1, #hash, 2 do
    local name = hash[f]
    if name == 'msg' then message = hash[f + 1]
    elseif name == 'pending_since' then since = hash[f + 1]
    elseif name == 'mr:t' then created = true
    elseif name == 'mr:p' then priority = hash[f + 1]
    elseif name == 'mr:b' or name == 'mr:g' then ran = true
    elseif name == 'group' then group = hash[f + 1] end
  end
  if message then
    return { id = id, hash = hash, message = message, order = since, since = since, created = created, ran = ran,
      priority = priority, group = group }
  end
  if #hash > 0 then call('DEL', TASK .. id) end
end

-- ---- what is due

local length -- of the list; known where something was due
local fresh, fresh_bytes, room = {}, 0, 0 -- due tasks that belong behind all in the list, the oldest first
local left -- order time of the last one in the list, or of the last of those
local ordered -- something may be in mr:order

local function push_fresh(from)
  local ids = {}
  for i = from, #fresh do
    local task = fresh[i]
    call('HSET', TASK .. task.id, 'state', 'pending', 'pending_since', task.order)
    ids[#ids + 1] = task.id
  end
  if #ids > 0 then call('LPUSH', list, unpack(ids)) end
  fresh = {}
end

-- With all of its fields only while it can be handed out.
local function read_due(id)
  if #fresh < room and fresh_bytes < bytes_max then return read(id) end
  local hash = call('HMGET', TASK .. id, 'state', 'group', 'mr:p')
  return hash[1] and { id = id, group = hash[2], priority = hash[3] }
end

-- Its time has come. They come in the order of their times, so most belong behind all that is in the list.
local function ready(id, at_ms)
  local task = read_due(id)
  if not task then return end
  task.order = ns_of(at_ms - tonumber(task.priority or 0))
  if task.group and task.group ~= '' then
    put_in_group(id, task.group)
  elseif not task.priority and (not left or task.order >= left) then
    fresh[#fresh + 1], left = task, task.order
    if task.message then fresh_bytes = fresh_bytes + #task.message end
  else
    push_fresh(1)
    room, ordered = 0, true
    put_ready(id, task.order, task.priority)
  end
end

local function first_due(key, from, to)
  local found, ids, at = call('ZRANGEBYSCORE', key, from, to, 'WITHSCORES', 'LIMIT', 0, DUE_MAX), {}, {}
  for i = 1, #found / 2 do
    ids[i], at[i] = found[2 * i - 1], tonumber(found[2 * i])
  end
  if #ids > 0 then call('ZREM', key, unpack(ids)) end
  return ids, at
end

-- Whether the entries in mr:due count: a task stands at that second in scheduled or retry, which it leaves.
local function leave(state, ids, at, counts)
  local gone = {}
  for i, score in ipairs(call('ZMSCORE', P .. state, unpack(ids))) do
    if score and tonumber(score) == math.ceil(at[i] / 1000) then
      counts[i], gone[#gone + 1] = true, ids[i]
    end
  end
  if #gone > 0 then call('ZREM', P .. state, unpack(gone)) end
  return #gone == #ids
end

local function promote_ours()
  local ids, at = first_due(due_key, '-inf', floor(now_ms))
  local counts = {}
  if #ids == 0 then return false end
  if not leave('scheduled', ids, at, counts) then leave('retry', ids, at, counts) end
  for i, id in ipairs(ids) do
    if counts[i] then ready(id, at[i]) end
  end
  return #ids == DUE_MAX
end

-- Those of other programs, by their seconds: once none of ours is among them.
local function promote_others(state, from)
  local ids, at = first_due(P .. state, from, now_s)
  for i, id in ipairs(ids) do ready(id, at[i] * 1000) end
  return #ids == DUE_MAX
end

-- In how many ms the first entry is due; -1: there is none.
local function wait_ms(entry, unit)
  local at = entry[2] and tonumber(entry[2]) * unit
  return at and math.max(0, math.ceil(at - now_ms)) or -1
end

local function sooner(a, b)
  return (a < 0 or b >= 0 and b < a) and b or a
end

local function next_of_ours()
  return wait_ms(call('ZRANGE', due_key, 0, 0, 'WITHSCORES'), 1)
end

-- Of all that go by their seconds, ours among them.
local function next_by_seconds()
  return sooner(wait_ms(call('ZRANGEBYSCORE', P .. 'scheduled', READY_SCORE + 1, '+inf', 'WITHSCORES', 'LIMIT', 0, 1), 1000),
    wait_ms(call('ZRANGE', P .. 'retry', 0, 0, 'WITHSCORES'), 1000))
end

-- seconds: what next_by_seconds answered. If that was one of ours which goes now, it is looked at once too often.
local function promote(seconds)
  if promote_ours() then return 0 end
  if seconds ~= 0 then return sooner(next_of_ours(), seconds) end
  local more = promote_others('scheduled', READY_SCORE + 1)
  more = promote_others('retry', '-inf') or more
  return more and 0 or sooner(next_of_ours(), next_by_seconds())
end

-- ---- handing out

-- The first of mr:order; what is stale there goes.
local function first_in_order()
  while true do
    local first = call('ZRANGE', order_key, 0, 0, 'WITHSCORES')
    if not first[1] then return nil end
    if call('ZSCORE', P .. 'scheduled', first[1]) == '1' then return first[1], tonumber(first[2]) end
    call('ZREM', order_key, first[1])
  end
end

local answer, ids, leases, own_leases, n, bytes = { 0, 0, 0 }, {}, {}, {}, 0, 0
local epoch, end_ms, end_s

-- order_ms: of one from mr:order. An id without a hash is nothing.
local function give(task, order_ms)
  if not task then return end
  local id, key, hash = task.id, TASK .. task.id, task.hash
  epoch = epoch + 1
  local text = format('%d', epoch)
  local order = order_ms and ns_of(order_ms) or task.order or now_ns
  call('HSET', key, 'state', 'active', 'mr:e', text, 'mr:n', node, task.created and 'mr:o' or 'mr:t', order)
  if task.ran then
    call('HDEL', key, 'pending_since', 'mr:b', 'mr:g')
  elseif task.since then
    call('HDEL', key, 'pending_since')
  end
  n = n + 1
  ids[n] = id
  leases[2 * n - 1], leases[2 * n] = end_s, id
  own_leases[2 * n - 1], own_leases[2 * n] = end_ms, id
  local at = 3 + 4 * (n - 1)
  answer[at + 1], answer[at + 2] = id, text
  answer[at + 3], answer[at + 4] = order_ms and format('%.17g', order_ms) or '', hash
  bytes = bytes + #task.message
end

local function is_enough()
  return n >= most or bytes >= bytes_max
end

-- What is due and was not put into the list, as if it had been.
local function give_fresh()
  local given = 0
  while given < #fresh and fresh[given + 1].hash and not is_enough() do
    given = given + 1
    local hash = fresh[given].hash
    hash[#hash + 1], hash[#hash + 2] = 'pending_since', fresh[given].order
    give(fresh[given])
  end
  push_fresh(given + 1)
end

local function give_from_list()
  local popped = length ~= 0 and call('RPOP', list, most) or {}
  for i = 1, #popped do
    if is_enough() then -- the rest goes back where it was
      for k = #popped, i, -1 do call('RPUSH', list, popped[k]) end
      break
    end
    give(read(popped[i]))
  end
end

local function give_by_order()
  while not is_enough() do
    local first, order_ms = first_in_order()
    local right = call('LINDEX', list, -1)
    if not first and not right then break end
    local right_ms = right and ms_of(since(right) or '0')
    if first and (not right or order_ms < right_ms) then
      call('ZREM', order_key, first)
      call('ZREM', P .. 'scheduled', first)
      give(read(first), order_ms)
    else
      call('RPOP', list)
      give(read(right))
    end
  end
end

local function give_all()
  end_ms = up_ms(now_ms + lease_ms)
  end_s = ceil_s(end_ms)
  if ordered then
    push_fresh(1)
    give_by_order()
  else
    give_from_list()
    give_fresh()
  end
  if n == 0 then return end
  call('SET', P .. 'mr:epoch', format('%d', epoch))
  call('LPUSH', P .. 'active', unpack(ids))
  call('ZADD', P .. 'lease', unpack(leases))
  call('ZADD', P .. 'mr:lease', unpack(own_leases))
end

-- A key of another type, set by hand, ends the script here, while nothing is half done.
epoch = math.max(tonumber(call('GET', P .. 'mr:epoch') or 0), tonumber(now_us_text) - 1)
for _, name in ipairs({ 'lease', 'mr:lease' }) do call('ZCARD', P .. name) end
call('LLEN', P .. 'active')
local paused = call('EXISTS', P .. 'paused')
ordered = call('ZCARD', order_key) > 0
local seconds = next_by_seconds()
local next_ms = sooner(next_of_ours(), seconds)
if next_ms == 0 then
  length = call('LLEN', list)
  if length > 0 then left = since(call('LINDEX', list, 0)) end
  if paused == 0 and not ordered then room = most - length end
  next_ms = promote(seconds)
end
if paused == 0 then
  give_all()
  answer[1] = call('LLEN', list) + (ordered and call('ZCARD', order_key) or 0)
else
  push_fresh(1)
end
answer[2], answer[3] = paused, next_ms
return answer
