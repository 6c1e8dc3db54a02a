-- SPDX-License-Identifier: Apache-2.0
-- Brings back what lost its worker, and removes what was kept long enough.
-- KEYS[1]  prefix of the queue
-- ARGV     how many tasks the archive keeps, for how many ms; n: look for leases that ended, and for runs without
--          one from the n-th oldest run on, 0: only at these; the time in ms at which this was sent; then for each
--          that its worker gives up, the newest first: id, epoch, 1 if its run had begun
-- Returns  how many came back (-1: it was late, nothing was done), in how many ms the next lease or retention ends
--          (-1: there is none), the time in ms, n for the next look, 1 if something runs
local most, keep_ms, from, sent_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local LATE_MS, AGAIN_MS = 1000, 1000
if #ARGV == 4 and call('EXISTS', P .. 'lease', P .. 'active', P .. 'mr:keep', P .. 'completed') == 0 then
  return { 0, -1, floor(now_ms), 1, 0 } -- nearly always, where nothing runs
end
-- Redis stood still meanwhile: those who live could not say so, and what they sent is just coming.
if from > 0 and now_ms - sent_ms > LATE_MS then return { -1, AGAIN_MS, floor(now_ms), from, 1 } end
local MANY, RUNS, CRASHES_MAX, OTHERS_GRACE_S = 500, 1000, 3, 30
local lost = {}
local is_result = string.find(P, '}:mr:r:[', 1, true) -- it is given back as it was, and may still be committed

local function archive(id, task, error)
  task.error, task.failed_s = error, now_s
  call('HSET', TASK .. id, 'msg', message_write(task), 'mr:l', format('%.0f', floor(now_ms)))
  if task.topic then note_failure(id, task) end
  put_archived(id, most, keep_ms)
  unlock(id, task.lock)
end

local limited -- whether limits are to be given back, once that was asked

local checked -- see check_places; nearly always nothing changes here

local function check_all()
  if checked then return end
  checked = true
  check_places()
  for _, topic in ipairs(call('SMEMBERS', TOPICS)) do check_topic(topic) end
end

-- near: the end of the list it is nearer to, -1 where the oldest are, 1 where the newest are.
local function leave_hand(id, near)
  check_all()
  if limited == nil then limited = call('EXISTS', P .. 'mr:limits') == 1 end
  local held = limited and ask('HGET', TASK .. id, 'mr:w')
  if held then
    release(id, held)
    call('HDEL', TASK .. id, 'mr:w')
  end
  call('LREM', P .. 'active', near or -1, id)
  call('ZREM', P .. 'lease', id)
  call('ZREM', P .. 'mr:lease', id) -- of an older Millrace
end

local function read(id)
  local hash = ask('HMGET', TASK .. id, 'state', 'mr:e', 'mr:b', 'mr:c', 'mr:x', 'mr:t', 'mr:o', 'mr:p', 'msg',
    'unique_key', 'mr:k', 'mr:v', 'mr:i', 'mr:s')
  local epoch, _, node = hold_of(hash[13])
  epoch = epoch or hash[2]
  local task = message_read(hash[9])
  task.id, task.state, task.epoch, task.lock = id, hash[1], epoch, hash[10] or task.unique_key
  task.begun, task.crashes, task.cancel = epoch and hash[3] == epoch, tonumber(hash[4] or 0), hash[5]
  task.order, task.priority = hash[7] or hash[6] or now_ns, hash[8]
  task.topic, task.mark, task.node = hash[11], hash[12], node
  task.run = hash[14]
  return task
end

-- Takes it from its worker; where it goes is decided when all are there, for the sake of their order. begun: what
-- the worker itself says counts, since it lives.
local function lose(task, begun, near)
  leave_hand(task.id, near)
  if not task.state then return end
  if begun then
    task.crashes = task.crashes + 1
    call('HSET', TASK .. task.id, 'mr:c', task.crashes)
    task.poison = task.crashes >= CRASHES_MAX
  end
  task.begun = begun
  task.holder = begun and task.node or nil
  call('HDEL', TASK .. task.id, 'mr:b', 'mr:i', 'mr:g', 'mr:e', 'mr:n')
  if is_result and task.epoch then
    call('HSET', TASK .. task.id, 'mr:e', task.epoch)
  elseif task.epoch then
    keep_epoch(task.id, task.epoch, task.run)
  end
  call('HSET', TASK .. task.id, 'state', 'pending')
  lost[#lost + 1] = task
end

-- What is left of a run that was lost, or of one that is cancelled before it began. The crash is counted already.
local function leave(task, final)
  if not task.topic or not (task.begun or final) then return end
  leave_missed(task.id, task, task.error)
  leave_result({ id = task.id, run = task.epoch or now_us_text, topic = task.topic, type = task.type,
    outcome = task.begun and LOST or CANCELLED, attempt = task.retried + task.crashes + (task.begun and 0 or 1),
    final = final, cancel = task.cancel, text = final or 'its worker was lost' })
  if final then close_topic(task.id) end
end

local function bring_back()
  local ready = {}
  for _, task in ipairs(lost) do
    local final = task.poison and 'quarantined: its worker was lost 3 times while running it'
      or task.cancel and 'cancelled'
    leave(task, final)
    if task.poison then count('quarantined', 1) end
    if final then archive(task.id, task, final) else ready[#ready + 1] = task end
    if task.begun and not is_result then
      note_past(task.id, 'crash', final or 'its worker was lost', task.retried + task.crashes, task.epoch, task.holder)
    end
  end
  put_ready_all(ready)
  if #lost > 0 then wake() end
end

-- When a lease of ours ends, ms; nil: it is another program's. second: what `lease` says. What an older Millrace has in
-- hand says its holder, and ends with its second. One of nothing is over.
local function end_of_ours(id, second)
  local hash = ask('HMGET', TASK .. id, 'mr:i', 'mr:n', 'state')
  local _, ends = hold_of(hash[1])
  if ends and ceil_s(ends) == second then return tonumber(ends) end
  if not hash[3] or not ends and hash[2] then return tonumber(second) * 1000 end
end

-- Calls each(id, when it ends) for leases of ours that are over, or will be within this second, until that answers true.
-- Those of other programs stand before them while they have their grace: so many are looked at.
local function each_ending(each)
  local PAGE, LOOKS = 500, 10000
  local passed, looked = 0, 0
  repeat
    local page = call('ZRANGEBYSCORE', P .. 'lease', '-inf', now_s + 1, 'WITHSCORES', 'LIMIT', passed, PAGE)
    for i = 1, #page, 2 do
      local ends = end_of_ours(page[i], page[i + 1])
      if ends and each(page[i], ends) then return end
      if call('ZSCORE', P .. 'lease', page[i]) then passed = passed + 1 end
    end
    looked = looked + #page / 2
  until #page < 2 * PAGE or looked >= LOOKS
end

local function find_ended()
  local n = 0
  each_ending(function(id, ends)
    if ends > now_ms then return end
    local task = read(id)
    if task.state == 'active' then lose(task, task.begun) else leave_hand(id) end
    n = n + 1
    return n == MANY
  end)
end

-- The end of the first lease that is not over; of those of other programs nothing better is known than their second.
local function next_of_ours()
  local best
  each_ending(function(_, ends)
    if not best or ends < best then best = ends end
  end)
  local first = call('ZRANGEBYSCORE', P .. 'lease', '(' .. now_s + 1, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return best or first[1] and (end_of_ours(first[1], first[2]) or tonumber(first[2]) * 1000)
end

local EXPIRED = 'asynq: task lease expired'

local function leave_other(id, task, final)
  leave_missed(id, task, task.error)
  leave_result({ id = id, run = format('expired:%d', now_s), topic = task.topic, type = task.type, outcome = LOST,
    attempt = 1 + task.retried + task.crashes, final = final, cancel = task.cancel, text = EXPIRED })
  if final then close_topic(id) end
end

-- The workers of other programs: as Asynq's recoverer does. A lease of what does not run says nothing.
local function find_ended_of_others()
  local entries = call('ZRANGEBYSCORE', P .. 'lease', '-inf', now_s - OTHERS_GRACE_S, 'WITHSCORES', 'LIMIT', 0, 100)
  for i = 1, #entries, 2 do
    local id, task = entries[i], read(entries[i])
    if not end_of_ours(id, entries[i + 1]) then
      leave_hand(id)
      local final = task.retried >= task.retry
      if task.state == 'active' and task.topic then leave_other(id, task, final) end
      if task.state == 'active' and final then
        archive(id, task, EXPIRED)
        count_runs(1, 1)
      elseif task.state == 'active' then
        local n = task.retried
        task.retried, task.error, task.failed_s = n + 1, EXPIRED, now_s
        call('HSET', TASK .. id, 'msg', message_write(task))
        if task.topic then note_failure(id, task) end
        put_due(id, 'retry', math.ceil(now_ms) + (n ^ 4 + 15 + now_s % 30 * (n + 1)) * 1000)
        count_runs(1, 1)
      end
    end
  end
end

-- Ids in active without a lease: nobody would ever look at them. A part of the list at a time, beginning with the
-- oldest; answers where the next part begins.
local function find_orphans()
  local ids, gone = call('LRANGE', P .. 'active', -(from + RUNS - 1), -from), 0
  local leases = #ids > 0 and call('ZMSCORE', P .. 'lease', unpack(ids))
  for i, id in ipairs(ids) do
    if not leases[i] then
      local task = read(id)
      gone = gone + 1
      if task.state == 'active' or not task.state then
        lose(task, task.begun)
      else
        leave_hand(id)
      end
    end
  end
  return #ids == RUNS and from + RUNS - gone or 1
end

local function expire()
  local n = 0
  local function remove(id)
    local hash = ask('HMGET', TASK .. id, 'state', 'unique_key')
    call('ZREM', P .. 'completed', id)
    if hash[1] == 'completed' then
      unlock(id, hash[2])
      n = n + call('DEL', TASK .. id)
    end
  end
  local ended = call('ZRANGEBYSCORE', P .. 'mr:keep', '-inf', format('%.0f', floor(now_ms)), 'WITHSCORES', 'LIMIT', 0, MANY)
  for i = 1, #ended, 2 do
    call('ZREM', P .. 'mr:keep', ended[i])
    if call('ZSCORE', P .. 'completed', ended[i]) == ceil_s(ended[i + 1]) then remove(ended[i]) end
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'completed', '-inf', now_s, 'LIMIT', 0, MANY)) do
    call('ZREM', P .. 'mr:keep', id)
    remove(id)
  end
  if n > 0 then count('expired', n) end
end

local function next_end()
  local best
  local function consider(key, unit, later)
    local at = call('ZRANGE', P .. key, 0, 0, 'WITHSCORES')[2]
    at = at and tonumber(at) * unit + later
    if at and (not best or at < best) then best = at end
  end
  best = next_of_ours()
  consider('mr:keep', 1, 0)
  consider('completed', 1000, 0)
  consider('lease', 1000, OTHERS_GRACE_S * 1000)
  return best and math.max(0, math.ceil(best - now_ms)) or -1
end

for i = 5, #ARGV, 3 do
  local task = read(ARGV[i])
  if task.state == 'active' and task.epoch == ARGV[i + 1] then lose(task, ARGV[i + 2] == '1', 1) end
end
if from > 0 then
  find_ended()
  find_ended_of_others()
  from = find_orphans()
  expire()
end
bring_back()
if limited then release() end
local runs = call('EXISTS', P .. 'lease', P .. 'active') > 0
return { #lost, next_end(), floor(now_ms), from, runs and 1 or 0 }
