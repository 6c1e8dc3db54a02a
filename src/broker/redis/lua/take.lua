-- SPDX-License-Identifier: Apache-2.0
-- Hands out tasks of one queue by order time: those that wait in the list and in mr:order, and what is due. Of the
-- latter those that belong behind all in the list are handed out as they are; only the rest is made pending.
-- KEYS[1]  prefix of the queue
-- ARGV     how many at most, lease in ms, the holder, how many bytes of messages are enough (0: no matter), how many
--          at most of a queue with limits, only what has been ready for so many ms (0: all), and then one
-- Returns  how many are left, bits (1 the queue is paused, 2 it has limits, 4 they keep it all back, 8 they
--          kept back something and nothing is given), in how many ms the next one is due (-1: none is), the epoch of
--          the first task, to which each of the next adds one; then for each task: its id, and of its hash as it was
--          while pending: its pending_since and its message, where there is nothing else to say; else its order
--          time in ms if it was in mr:order ('' else), and all fields. Of what has been ready for long it says in how
--          many ms the first one is that instead of when it is due
local most, lease_ms, node = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local bytes_max, fall_ms = tonumber(ARGV[4]), tonumber(ARGV[6])
local list, order_key, due_key = P .. 'pending', P .. 'mr:order', P .. 'mr:due'
local late_key = P .. 'mr:late'
local DUE_MAX = 200 -- at a time: Redis does nothing else meanwhile
local PAGES_MAX, STALE_MAX = 5, 1000 -- of so many each; entries that are stale
local RETRY_CLASS, RETRY_WAIT_MS = '2', 60000 -- of enum mr_retry_mode; and its bound
local AHEAD_OF_ALL_MS = 4e11 -- more than any priority
if bytes_max == 0 then bytes_max = math.huge end

-- The task of an id with what matters here; nil if it has no hash. What has no message is no task.
local function task_of(id, hash)
  local message, since, created, priority, ran, group, name_key
  for f = 1, #hash, 2 do
    local name = hash[f]
    if name == 'msg' then message = hash[f + 1]
    elseif name == 'pending_since' then since = hash[f + 1]
    elseif name == 'mr:t' then created = true
    elseif name == 'mr:p' then priority = hash[f + 1]
    elseif name == 'mr:b' or name == 'mr:g' then ran = true
    elseif name == 'group' then group = hash[f + 1]
    elseif name == 'mr:y' then name_key = hash[f + 1] end
  end
  if message then
    if since and #hash == 6 then -- those and its state: nothing else is to be told
      return { id = id, message = message, order = since, since = since, hash = hash, plain = true }
    end
    return { id = id, hash = hash, message = message, order = since, since = since, created = created, ran = ran,
      priority = priority, group = group, key = name_key }
  end
  if #hash > 0 then call('DEL', TASK .. id) end
end

local function read(id)
  return task_of(id, ask('HGETALL', TASK .. id))
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
  local hash = ask('HMGET', TASK .. id, 'state', 'group', 'mr:p')
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

-- Retries that have a class of their own stay in retry when they are due, and stand in mr:late beside it until it is
-- their turn. late: there are some.
local late, class

local function is_class()
  if class == nil then class = call('HGET', P .. 'mr:set', 'retry') == RETRY_CLASS end
  return class
end

local function hold_back(ids, at, counts)
  local entries = {}
  for i, score in ipairs(call('ZMSCORE', P .. 'retry', unpack(ids))) do
    if not counts[i] and score and tonumber(score) == math.ceil(at[i] / 1000) then
      entries[#entries + 1], entries[#entries + 2] = format('%d', floor(at[i])), ids[i]
    end
  end
  if #entries == 0 then return end
  late = true
  call('ZADD', late_key, unpack(entries))
end

-- How many of those that were due up to this second are not held.
local function not_held(s)
  return call('ZCOUNT', P .. 'retry', '-inf', s) - call('ZCOUNT', late_key, '-inf', format('%d', s * 1000))
end

-- Holds those that are due from the n-th of all retries on; answers whether one of them was new.
local function hold_from(n)
  local found, entries = call('ZRANGE', P .. 'retry', n, n + DUE_MAX - 1, 'WITHSCORES'), {}
  for i = 1, #found, 2 do
    local at_s = tonumber(found[i + 1])
    if at_s > now_s then break end
    entries[i], entries[i + 1] = format('%d', at_s * 1000), found[i]
  end
  if #entries == 0 then return false end
  begin_when_full()
  return call('ZADD', late_key, 'NX', unpack(entries)) > 0
end

-- The same for those of other programs, which stand in no set of ours: the oldest first.
local function hold_others()
  if not_held(now_s) <= 0 then return end
  local first = call('ZRANGE', P .. 'retry', 0, 0, 'WITHSCORES')
  local before, s = floor(tonumber(first[2])) - 1, now_s
  while s - before > 1 do -- the first second in which there is one
    local middle = floor((before + s) / 2)
    if not_held(middle) > 0 then s = middle else before = middle end
  end
  local held = call('ZCOUNT', late_key, format('(%d', before * 1000), format('%d', s * 1000))
  local from, pages = call('ZCOUNT', P .. 'retry', '-inf', before), floor(held / DUE_MAX) + 1
  late = true
  if hold_from(from + held) then return end -- behind those of that second that are held: unless some of them are ours
  for page = 0, math.min(pages, PAGES_MAX) - 1 do -- of very many some, and others the next time
    if hold_from(from + (tonumber(time[2]) + page) % pages * DUE_MAX) then return end
  end
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
  if not leave('scheduled', ids, at, counts) then
    if is_class() then hold_back(ids, at, counts) else leave('retry', ids, at, counts) end
  end
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
  local retry = late and call('ZRANGEBYSCORE', P .. 'retry', '(' .. now_s, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    or call('ZRANGE', P .. 'retry', 0, 0, 'WITHSCORES')
  return sooner(wait_ms(call('ZRANGEBYSCORE', P .. 'scheduled', READY_SCORE + 1, '+inf', 'WITHSCORES', 'LIMIT', 0, 1), 1000),
    wait_ms(retry, 1000))
end

-- seconds: what next_by_seconds answered. If that was one of ours which goes now, it is looked at once too often.
local function promote(seconds)
  if promote_ours() then return 0 end
  if seconds ~= 0 then return sooner(next_of_ours(), seconds) end
  local more = promote_others('scheduled', READY_SCORE + 1)
  if is_class() then hold_others() else more = promote_others('retry', '-inf') or more end
  return more and 0 or sooner(next_of_ours(), next_by_seconds())
end

-- ---- handing out

local cleared = 0 -- entries of sets of ours that were stale, since other programs moved what they name

-- The first ones of a set of ours go that are stale: the score that they have in another says so.
local function drop_stale(key, place, is_stale)
  local entries, ids, n = call('ZRANGE', key, 0, DUE_MAX - 1, 'WITHSCORES'), {}, 0
  for i = 1, #entries, 2 do ids[#ids + 1] = entries[i] end
  for i, score in ipairs(#ids > 0 and call('ZMSCORE', P .. place, unpack(ids)) or {}) do
    if not is_stale(score, entries[2 * i]) then break end
    n = i
  end
  if n > 0 then call('ZREMRANGEBYRANK', key, 0, n - 1) end
  cleared = cleared + math.max(1, n)
end

local function is_not_ready(score)
  return score ~= '1'
end

local function is_not_late(score, at)
  return score ~= ceil_s(at)
end

-- The first of mr:order; what is stale there goes. Where very much does, it is not known: see is_enough.
local function first_in_order()
  while cleared < STALE_MAX do
    local first = call('ZRANGE', order_key, 0, 0, 'WITHSCORES')
    if not first[1] then return nil end
    if call('ZSCORE', P .. 'scheduled', first[1]) == '1' then return first[1], tonumber(first[2]) end
    drop_stale(order_key, 'scheduled', is_not_ready)
  end
end

local answer, ids, leases, n, bytes = { 0, 0, 0, 0 }, {}, {}, 0, 0
local epoch, end_s
local hold_text -- behind the epoch in mr:i
local DIGITS = { [0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9' }
local tens_text, ones -- of the epoch: a number that is written costs nearly as much as a field

local function begin_leases()
  local end_ms = up_ms(now_ms + lease_ms)
  end_s, hold_text = ceil_s(end_ms), ' ' .. end_ms .. ' ' .. node
  answer[4] = format('%d', epoch + 1)
end

-- For one more task, with the next epoch: its mr:i.
local function next_hold()
  epoch = epoch + 1
  ones = tens_text and ones + 1 or 10
  if ones == 10 then
    ones = epoch % 10
    tens_text = format('%d', (epoch - ones) / 10)
  end
  return tens_text .. DIGITS[ones] .. hold_text
end

local function note(id, about, told, size)
  n = n + 1
  local pair, at = 2 * n, 3 * n + 2
  ids[n] = id
  leases[pair - 1], leases[pair] = end_s, id
  answer[at], answer[at + 1], answer[at + 2] = id, about, told
  bytes = bytes + size
end

-- Nearly all tasks are like this, as they were enqueued: message, state and pending_since. Three short answers cost
-- less than one table of all of it.
local PLAIN = 3 -- fields

local function give_plain(id, key, message, since)
  call('HDEL', key, 'pending_since') -- first: so its table never has to grow
  call('HSET', key, 'state', 'active', 'mr:i', next_hold(), 'mr:t', since)
  note(id, since, message, #message)
end

-- order_ms: of one from mr:order. An id without a hash is nothing.
local function give(task, order_ms)
  if not task then return end
  local id, key = task.id, TASK .. task.id
  local order = task.exact or order_ms and ns_of(order_ms) or task.order or now_ns
  call('HSET', key, 'state', 'active', 'mr:i', next_hold(), task.created and 'mr:o' or 'mr:t', order)
  if task.ran then
    call('HDEL', key, 'pending_since', 'mr:b', 'mr:g')
  elseif task.since then
    call('HDEL', key, 'pending_since')
  end
  if task.plain then
    note(id, task.since, task.message, #task.message)
  else
    note(id, order_ms and format('%d', floor(order_ms)) or '', task.hash, #task.message)
  end
end

-- For one call.
local function is_enough()
  return n >= most or bytes >= bytes_max or cleared >= STALE_MAX
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
    local id = popped[i]
    local key = TASK .. id
    local plain = redis.pcall('HLEN', key) == PLAIN -- a refusal is told by read
    local since = plain and call('HGET', key, 'pending_since')
    local message = since and call('HGET', key, 'msg')
    if message then give_plain(id, key, message, since) else give(read(id)) end
  end
end

-- A score in mr:order says less than a time in ns: of what came back it is known what that was.
local function exact_time(id, order_ms)
  local hash = ask('HMGET', TASK .. id, 'mr:o', 'mr:t', 'mr:p')
  local ns = not hash[3] and (hash[1] or hash[2])
  return ns and ms_of(ns) == order_ms and ns or nil
end

-- Whether the first of mr:order goes before one of the list.
local function goes_before(first, order_ms, ns)
  local right_ms = ms_of(ns)
  if order_ms ~= right_ms then return order_ms < right_ms end
  local exact = exact_time(first, order_ms)
  return exact and exact < ns
end

local function give_by_order()
  while not is_enough() do
    local first, order_ms = first_in_order()
    local right = call('LINDEX', list, -1)
    if cleared >= STALE_MAX or not first and not right then break end
    if first and (not right or goes_before(first, order_ms, since(right) or '0')) then
      call('ZREM', order_key, first)
      call('ZREM', P .. 'scheduled', first)
      local task = read(first)
      if task and not task.priority then task.exact = exact_time(first, order_ms) end
      give(task, order_ms)
    else
      call('RPOP', list)
      give(read(right))
    end
  end
end

-- A task of another broker may have brought an epoch that is ahead of the clock: those behind it do not say when
-- their runs began.
local AHEAD_US = 1000000

local function hand_over()
  if n == 0 then return end
  for i = 1, epoch > tonumber(now_us_text) + AHEAD_US and n or 0 do
    call('HSET', TASK .. ids[i], 'mr:s', format('%d %d', epoch - n + i, floor(now_ms)))
  end
  call('SET', P .. 'mr:epoch', format('%d', epoch))
  call('LPUSH', P .. 'active', unpack(ids))
  call('ZADD', P .. 'lease', unpack(leases))
end

-- The first of the class that is due, if it is from before this time; what is stale there goes.
local function first_late(before_ms)
  while late and cleared < STALE_MAX do
    local first = call('ZRANGE', late_key, 0, 0, 'WITHSCORES')
    local at = first[2] and tonumber(first[2])
    late = at ~= nil
    if not late or at > before_ms then return nil end
    if call('ZSCORE', P .. 'retry', first[1]) == ceil_s(at) then
      call('ZREM', late_key, first[1])
      call('ZREM', P .. 'retry', first[1])
      return first[1], at
    end
    drop_stale(late_key, 'retry', is_not_late)
  end
end

-- As if they had been ready.
local function give_late(before_ms)
  while not is_enough() do
    local id, at = first_late(before_ms)
    if not id then return end
    local task = read(id)
    if task then
      task.order = ns_of(at - tonumber(task.priority or 0))
      task.hash[#task.hash + 1], task.hash[#task.hash + 2] = 'pending_since', task.order
      task.plain = nil
      give(task)
    end
  end
end

local function give_all()
  begin_leases()
  if late then give_late(now_ms - (tonumber(call('HGET', P .. 'mr:set', 'wait')) or RETRY_WAIT_MS)) end
  if ordered then
    push_fresh(1)
    give_by_order()
  else
    give_from_list()
    give_fresh()
  end
  if late then give_late(now_ms) end
  hand_over()
end

-- ---- handing out under limits

-- Answers what the queue is like, and in how many ms a rate lets something go (-1: none does). In one function, as in
-- limit.lua.
local function take_limited()
  begin_when_full()
  local limits = open_limits()
  local LOOKS = 200 -- tasks that one call gives, or passes over one by one: Redis does nothing else meanwhile
  local passes = 1000 -- it may still do so many at a time, or forget so many that have been parked and are no longer
  local held_back -- the queue's own limit keeps all of it back; and until when, ms, if that is known
  local until_ms

  -- The first that no take has passed over: in mr:order, where order_ms says when, or else in the list.
  local function first_fresh()
    local first, order_ms = first_in_order()
    if order_ms and order_ms >= PARKED then first = nil end
    local right = call('LINDEX', list, -1)
    local ns = right and (since(right) or now_ns)
    if first and (not right or goes_before(first, order_ms, ns)) then
      return first, exact_time(first, order_ms) or ns_of(order_ms), order_ms
    end
    return right, ns
  end

  local function leave_fresh(id, order_ms)
    if not order_ms then
      call('RPOP', list)
    else
      call('ZREM', order_key, id)
      call('ZREM', P .. 'scheduled', id)
    end
  end

  -- The first ones of a track that are no longer parked go; there is one.
  local function forget_stale(track)
    local key, ids, stale = P .. 'mr:l:z:' .. track, {}, 0
    local entries = call('ZRANGE', key, 0, LOOKS - 1)
    for i, entry in ipairs(entries) do ids[i] = sub(entry, limits.digits + 1) end
    for i, score in ipairs(#ids > 0 and call('ZMSCORE', order_key, unpack(ids)) or {}) do
      if i > 1 and score and tonumber(score) >= PARKED then break end
      stale = i
    end
    if stale > 0 then call('ZREM', key, unpack(entries, 1, stale)) end
    limits.stand(track)
    passes = passes - math.max(1, stale)
  end

  -- The first of the tracks that may be taken from, as far as this call has looked.
  local function first_parked()
    while passes > 0 do
      local track = call('ZRANGE', P .. 'mr:l:y', 0, 0)[1]
      if not track then return nil end
      local entry = limits.first_of(track)
      local id = entry and sub(entry, limits.digits + 1)
      local ns = id and sub(entry, 1, limits.digits)
      local score = id and call('ZSCORE', order_key, id)
      if score and tonumber(score) == PARKED + floor(ms_of(ns)) and call('ZSCORE', P .. 'scheduled', id) == '1' then
        return id, string.match(ns, '^0*(.*)$'), track, entry
      end
      forget_stale(track)
    end
  end

  local function leave_track(id, track, entry)
    call('ZREM', P .. 'mr:l:z:' .. track, entry)
    call('ZREM', order_key, id)
    call('ZREM', P .. 'scheduled', id)
    limits.track_stands(track)
  end

  -- The next ones that no take has passed over, of the list or of mr:order, n at most.
  local function next_fresh(by_order, n)
    local found = {}
    if by_order then
      local first = call('ZRANGEBYSCORE', order_key, '-inf', '(' .. PARKED, 'WITHSCORES', 'LIMIT', 0, n)
      for i = 1, #first, 2 do found[#found + 1] = { id = first[i], ns = ns_of(tonumber(first[i + 1])) } end
    else
      local last = call('LRANGE', list, -n, -1)
      for i = #last, 1, -1 do found[#found + 1] = { id = last[i] } end
    end
    return found
  end

  -- Whether it is kept back, as most are behind one that is. What is odd is looked at one by one.
  local function is_kept_back(task, by_order)
    local hash = ask('HMGET', TASK .. task.id, 'msg', 'mr:y', 'pending_since')
    task.ns = task.ns or hash[3]
    if not hash[1] or not task.ns then return false end
    if by_order and call('ZSCORE', P .. 'scheduled', task.id) ~= '1' then return false end
    task.track = limits.track_of(hash[1], hash[2])
    return limits.blocked_by(task.track) ~= nil
  end

  -- One was kept back: so are those behind it, up to the first that is not, the more at a time the more there were.
  local function pass_over(by_order)
    local n = 4
    repeat
      n = math.min(2 * n, LOOKS, passes)
      local found, kept = next_fresh(by_order, n), {}
      for i, task in ipairs(found) do
        if not is_kept_back(task, by_order) then break end
        kept[i] = task
      end
      passes = passes - #kept
      if #kept > 0 and not by_order then call('LTRIM', list, 0, -#kept - 1) end
      if #kept > 0 then limits.park(kept) end
    until #kept < n or passes <= 0
  end

  -- It goes to its taker, or is kept back.
  local function give_or_park(id, ns, order_ms, track, entry)
    local task = read(id)
    if task and not order_ms and not track and not task.since then ns = now_ns end
    local own = task and limits.track_of(task.message, task.key)
    local w = task and limits.blocked_by(own)
    if task and w and track == own then return limits.stand(track) end -- they all wait there
    if track then leave_track(id, track, entry) else leave_fresh(id, order_ms) end
    if track and (w or not task) then limits.hand_on(track) end
    if not task then return end
    if w then
      limits.park({ { id = id, ns = ns, track = own } })
      return pass_over(order_ms ~= nil)
    end
    task.exact = ns
    if track then order_ms = ms_of(ns) end
    give(task, order_ms)
    limits.take_permits(id, own, epoch)
    for one in string.gmatch(own, '[^\n]+') do limits.settle(one) end
  end

  -- Rates whose time has come, and now and then a track that nobody has looked at for long: what was lost on the
  -- way to it is found so.
  local function look_again()
    for _, w in ipairs(call('ZRANGEBYSCORE', limits.prefix .. 'mr:l:t', '-inf', floor(now_ms), 'LIMIT', 0, LOOKS)) do
      call('ZREM', limits.prefix .. 'mr:l:t', w)
      limits.settle(w)
    end
    for _, track in ipairs(call('ZRANGE', P .. 'mr:l:s', 0, 1)) do
      call('ZADD', P .. 'mr:l:s', format('%.0f', now_ms), track)
      limits.stand(track)
    end
  end

  -- Limits were changed: each track stands anew. Answers whether that is over; until then nothing is given, so that
  -- the first of them all is.
  local function stand_anew()
    local changed = tonumber(call('GET', P .. 'mr:l:g'))
    if not changed then return true end
    local tracks = call('ZRANGEBYSCORE', P .. 'mr:l:s', '-inf', format('%.0f', changed), 'LIMIT', 0, LOOKS)
    for _, track in ipairs(tracks) do
      for w in string.gmatch(track, '[^\n]+') do call('ZREM', limits.prefix .. 'mr:l:w:' .. w, P .. '\n' .. track) end
      call('ZADD', P .. 'mr:l:s', format('%.0f', math.max(now_ms, changed + 1)), track)
      limits.track_stands(track, limits.blocked_by(track))
    end
    if #tracks < LOOKS then call('DEL', P .. 'mr:l:g') end
    return #tracks < LOOKS
  end

  local function give_limited()
    begin_leases()
    most = math.min(most, tonumber(ARGV[5]))
    look_again()
    for _ = 1, stand_anew() and LOOKS or 0 do
      if is_enough() then break end
      held_back, until_ms = false, nil
      if limits.rules.q then held_back, until_ms = limits.is_blocked('q', limits.rules.q) end
      if held_back then break end
      local fresh_id, fresh_ns, order_ms = first_fresh()
      local id, ns, track, entry = first_parked()
      if passes <= 0 or cleared >= STALE_MAX or not fresh_id and not id then break end
      if id and (not fresh_id or ns < fresh_ns) then
        give_or_park(id, ns, nil, track, entry)
      else
        give_or_park(fresh_id, fresh_ns, order_ms)
      end
    end
    hand_over()
  end

  -- In how many ms a rate lets something go.
  local function next_of_rates()
    return until_ms and math.max(1, math.ceil(until_ms - now_ms))
      or wait_ms(call('ZRANGE', limits.prefix .. 'mr:l:t', 0, 0, 'WITHSCORES'), 1)
  end

  local function is_more()
    return call('EXISTS', list, P .. 'mr:l:y', P .. 'mr:l:g') > 0 or call('ZCOUNT', order_key, '-inf', '(' .. PARKED) > 0
  end

  -- Of the class, those that waited too long become ready as the first of all; one does in its place when nothing else
  -- is ready.
  local function ready_late()
    local wait = tonumber(call('HGET', P .. 'mr:set', 'wait')) or RETRY_WAIT_MS
    for _ = 1, DUE_MAX do
      local id, at = first_late(now_ms - wait)
      if not id then break end
      if read_due(id) then put_in_order(id, at - AHEAD_OF_ALL_MS) end
    end
    if is_more() then return end
    local id, at = first_late(now_ms)
    local task = id and read_due(id)
    if task then put_ready(id, ns_of(at - tonumber(task.priority or 0))) end
  end

  if late then ready_late() end
  give_limited()
  local more, bits = is_more() or late and call('EXISTS', late_key) == 1, 2
  if more and (held_back or most < 1) then
    bits = 6
  elseif more then
    answer[1] = 1
  end
  if n == 0 and call('EXISTS', list, order_key) > 0 then bits = bits + 8 end
  if limits.n == 0 and call('EXISTS', P .. 'mr:l:s') == 0 then call('DEL', P .. 'mr:limits') end
  return bits, next_of_rates()
end

-- ---- what falls to others than those whose it is

-- In how many ms the first of all has been ready for so long; 0: it has, or limits keep back what there is; -1: there is
-- nothing. A priority makes it no sooner.
local function falls_in()
  local first, order_ms = first_in_order()
  local right = call('LINDEX', list, -1)
  local at = right and ms_of(since(right) or '0')
  if first and order_ms < PARKED and (not at or order_ms < at) then
    at = order_ms + math.max(0, tonumber(ask('HGET', TASK .. first, 'mr:p') or 0))
  end
  if not at and late then at = tonumber(call('ZRANGE', late_key, 0, 0, 'WITHSCORES')[2] or now_ms) end
  if not at then return first and 0 or -1 end
  return math.max(0, math.ceil(at + fall_ms - now_ms))
end

-- A key of another type, set by hand, ends the script here, while nothing is half done.
epoch = math.max(tonumber(call('GET', P .. 'mr:epoch') or 0), tonumber(now_us_text) - 1)
call('ZCARD', P .. 'lease')
call('LLEN', P .. 'active')
local paused, limited = call('EXISTS', P .. 'paused', late_key), call('EXISTS', P .. 'mr:limits') == 1
if paused > 0 then
  late = call('EXISTS', late_key) == 1
  paused = paused - (late and 1 or 0)
  if late then hold_others() end
end
ordered = call('ZCARD', order_key) > 0
local seconds = next_by_seconds()
local next_ms = sooner(next_of_ours(), seconds)
if next_ms == 0 then
  length = call('LLEN', list)
  if length > 0 then left = since(call('LINDEX', list, 0)) end
  if paused == 0 and not ordered and not limited and fall_ms == 0 then room = most - length end
  next_ms = promote(seconds)
end
local bits, falls_ms = paused, 0
if fall_ms > 0 and paused == 0 then
  push_fresh(1)
  ordered = call('ZCARD', order_key) > 0
  falls_ms, most = falls_in(), 1
end
if falls_ms ~= 0 then
  bits = 0
elseif paused == 0 and limited then
  push_fresh(1)
  local rate_ms
  bits, rate_ms = take_limited()
  next_ms = sooner(next_ms, rate_ms)
elseif paused == 0 then
  give_all()
  answer[1] = call('LLEN', list) + (ordered and call('ZCARD', order_key) or 0) + (late and call('ZCARD', late_key) or 0)
else
  push_fresh(1)
end
answer[2], answer[3] = bits, fall_ms > 0 and falls_ms or next_ms
return answer
