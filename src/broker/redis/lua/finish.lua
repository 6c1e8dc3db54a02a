-- SPDX-License-Identifier: Apache-2.0
-- Ends runs. One counts only under the epoch of the lease that is in force.
-- KEYS[1]  prefix of the queue
-- ARGV     how many tasks the archive keeps, for how many ms; bits (1: these may have been carried out before, 2: tasks
--          of this queue have topics); then for each: id, epoch, outcome (as enum mr_outcome), delay in ms, what it leaves when it is done (1: nothing, no
--          retention and no lock; 2: itself, it has a retention; 0: that is not known), error or result, why it failed
--          (as enum mr_finish_reason)
-- Returns  in how many ms the first retention ends (-1: none began here), then for each: 0 carried out, 1 it is
--          another's or does not run, 2 there is no such task, 3 there is none, as it would be after this end
local most, keep_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
local again, topics = ARGV[3] % 2 == 1, tonumber(ARGV[3]) >= 2
local answer, gone, ids = { -1 }, {}, {}
local backs = {} -- tasks that are ready again
local processed, failed = 0, 0
local RETRY_ORDER = '1' -- of enum mr_retry_mode
local retry_mode, ordered
local DONE, FAIL, FOR_GOOD, HAND_BACK, DROP, LATER = '0', '1', '2', '3', '4', '5'
local REASONS = { ['0'] = ERROR, ['1'] = TIMEOUT, ['2'] = CANCELLED }
local WORDS = { ['0'] = 'error', ['1'] = 'timeout', ['2'] = 'cancelled' }
local ITEM = 7

for i = 4, #ARGV, ITEM do ids[#ids + 1] = ARGV[i] end
if #ids == 0 then return answer end
local leases = call('ZMSCORE', P .. 'lease', unpack(ids))

local limited = call('EXISTS', P .. 'mr:limits') == 1

-- Before the first of them is ended: see check_places. Tasks with a topic are in mr:open.
local function check_all()
  check_places()
  for i = 1, call('ZCARD', OPEN) > 0 and #ids or 0 do
    local topic = ask('HGET', TASK .. ids[i], 'mr:k')
    if topic then check_topic(topic) end
  end
end

local function verdict(k, id, epoch, leaves_nothing)
  local hash = ask('HMGET', TASK .. id, 'state', 'mr:e', 'mr:i')
  if not hash[1] then return again and leaves_nothing and 3 or 2, false end
  if hash[1] ~= 'active' then return (again and hash[2] == epoch) and 0 or 1, false end
  local held, ends = hold_of(hash[3])
  if held ~= epoch or leases[k] ~= ceil_s(ends) then return 1, false end
  return 0, true
end

-- The task with what decides about it.
local function read(id)
  local hash = call('HMGET', TASK .. id, 'msg', 'unique_key', 'mr:t', 'mr:o', 'mr:p', 'mr:r', 'mr:x', 'mr:k', 'mr:v',
    'mr:c')
  local task = message_read(hash[1])
  task.lock = hash[2] or task.unique_key
  task.order = hash[4] or hash[3] or now_ns
  task.priority, task.cancel = hash[5], hash[7]
  task.retention_ms = tonumber(hash[6] or task.retention * 1000)
  task.topic, task.mark, task.crashes = hash[8], hash[9], tonumber(hash[10] or 0)
  return task
end

-- What the run leaves, before anything of the task is changed.
local function leave(id, task, outcome, final, text)
  if not task.topic then return end
  topics = true -- the worker may not know yet
  leave_missed(id, task, task.error)
  leave_result({ id = id, run = task.epoch, topic = task.topic, type = task.type, outcome = outcome,
    attempt = 1 + task.retried + task.crashes, final = final, cancel = task.cancel, text = text })
  if final then close_topic(id) end
end

local function remove(id, task, result)
  unlock(id, task.lock)
  drop_done(id, result)
end

local function complete(id, task, result)
  local until_ms = math.ceil(now_ms + task.retention_ms)
  task.completed_s = now_s
  call('HSET', TASK .. id, 'msg', message_write(task), 'state', 'completed', 'result', result,
    'mr:f', format('%.0f', floor(now_ms)))
  call('ZADD', P .. 'completed', ceil_s(until_ms), id)
  call('ZADD', P .. 'mr:keep', format('%.0f', until_ms), id)
  unlock(id, task.lock)
  tell_end(id)
  answer[1] = 0
end

local function write_failure(id, task, error)
  task.error, task.failed_s = error, now_s
  call('HSET', TASK .. id, 'msg', message_write(task), 'mr:l', format('%.0f', floor(now_ms)))
  if task.topic then note_failure(id, task) end
end

local function archive(id, task, error)
  write_failure(id, task, error)
  put_archived(id, most, keep_ms)
  unlock(id, task.lock)
end

local function cancel(id, task)
  leave(id, task, CANCELLED, true, 'cancelled')
  archive(id, task, 'cancelled')
end

local function wait_for(id, state, delay)
  put_due(id, state, math.ceil(now_ms + delay))
end

-- By the queue's setting it waits, or the delay only puts it behind others.
local function retry_later(id, delay)
  if retry_mode == nil then retry_mode = call('HGET', P .. 'mr:set', 'retry') end
  if retry_mode ~= RETRY_ORDER then return wait_for(id, 'retry', delay) end
  put_in_order(id, math.ceil(now_ms + delay))
  ordered = true
end

local outcomes = {
  [DONE] = function(id, task, _, text)
    processed = processed + 1
    leave(id, task, OK, true, text)
    if task.retention_ms > 0 then complete(id, task, text) else remove(id, task, text) end
  end,
  [FAIL] = function(id, task, delay, text)
    local final = task.retried >= task.retry or task.cancel
    processed, failed = processed + 1, failed + 1
    leave(id, task, task.reason, final, text)
    if final then return archive(id, task, text) end
    task.retried = task.retried + 1
    write_failure(id, task, text)
    retry_later(id, delay)
  end,
  [FOR_GOOD] = function(id, task, _, text)
    processed, failed = processed + 1, failed + 1
    leave(id, task, task.reason, true, text)
    archive(id, task, text)
  end,
  [HAND_BACK] = function(id, task, delay)
    if task.cancel then return cancel(id, task) end
    if delay > 0 then return wait_for(id, 'scheduled', delay) end
    task.id = id
    call('HSET', TASK .. id, 'state', 'pending')
    backs[#backs + 1] = task
  end,
  [DROP] = function(id, task)
    processed = processed + 1
    leave(id, task, OK, true, '')
    remove(id, task, '')
  end,
  [LATER] = function(id, task, delay)
    if task.cancel then return cancel(id, task) end
    wait_for(id, 'retry', delay)
  end,
}

-- What is handed back counts as no run, unless that was its end.
local function word_of(outcome, reason, cancel)
  if outcome == FAIL or outcome == FOR_GOOD then return WORDS[reason] end
  if outcome ~= LATER and outcome ~= HAND_BACK then return nil end
  return cancel and 'cancelled' or outcome == LATER and 'later' or nil
end

check_all()
for k = 1, #ids do
  local at = 4 + ITEM * (k - 1)
  local id, epoch, outcome = ids[k], ARGV[at + 1], ARGV[at + 2]
  local leaves_nothing = outcome == DROP or outcome == DONE and ARGV[at + 4] ~= '2'
  local code, holds = verdict(k, id, epoch, leaves_nothing)
  answer[k + 1] = code
  if holds then
    call('LREM', P .. 'active', -1, id)
    gone[#gone + 1] = id
    local held = limited and call('HGET', TASK .. id, 'mr:w')
    if held then
      release(id, held)
      call('HDEL', TASK .. id, 'mr:w')
    end
    if ARGV[at + 4] == '1' and (outcome == DONE or outcome == DROP) then
      processed = processed + 1
      drop_done(id, outcome == DONE and ARGV[at + 5] or '')
    else
      local hold = outcome ~= DONE and outcome ~= DROP and call('HGET', TASK .. id, 'mr:i')
      local _, _, holder = hold_of(hold)
      call('HDEL', TASK .. id, 'mr:b', 'mr:i', 'mr:g', 'mr:n')
      call('HSET', TASK .. id, 'mr:e', epoch)
      local task = read(id)
      local word, attempt = word_of(outcome, ARGV[at + 6], task.cancel), 1 + task.retried + task.crashes
      task.epoch, task.reason = epoch, REASONS[ARGV[at + 6]]
      outcomes[outcome](id, task, tonumber(ARGV[at + 3]), ARGV[at + 5])
      if word then
        local ended = outcome == FAIL or outcome == FOR_GOOD
        note_past(id, word, ended and ARGV[at + 5] or task.cancel and 'cancelled' or '', attempt, epoch, holder)
      end
    end
  end
end
if #backs > 0 then put_ready_all(backs) end
if #backs > 0 or ordered then wake() end
if #gone > 0 then
  call('ZREM', P .. 'lease', unpack(gone))
  count_runs(processed, failed, topics)
  if limited then release() end
end
if answer[1] == 0 then
  local first = call('ZRANGE', P .. 'mr:keep', 0, 0, 'WITHSCORES')[2]
  answer[1] = math.max(0, math.ceil(tonumber(first) - now_ms))
end
return answer
