-- SPDX-License-Identifier: Apache-2.0
-- What runs of tasks with a topic leave; it stands behind common.lua. A result is a hash like that of a task, in a
-- place with the keys of a queue: see internal.h.
local OK, ERROR, TIMEOUT, LOST, CANCELLED = 0, 1, 2, 3, 4 -- as enum mr_result_outcome
local OPEN, TOPICS = P .. 'mr:open', P .. 'mr:topics'
local UNKNOWN = 'not known: another program ended this run, and the next one was begun before anybody looked'

local function text_field(number, text)
  return (text and text ~= '') and char(number * 8 + 2) .. put_varint(#text) .. text or ''
end

local function number_field(number, value)
  return value > 0 and char(number * 8) .. put_varint(value) or ''
end

-- The queue of this one, and which of its partitions it is.
local function whose()
  local name = string.match(P, '{([^}]*)}:$')
  local whole = string.match(call('GET', P .. 'mr:part') or '', '^%S+ %S+ %S+ (.*)$')
  local number = whole and sub(name, 1, #whole + 1) == whole .. '~' and tonumber(sub(name, #whole + 2))
  if number then return whole, number end
  return name, 1
end

-- Before what leads to a result: see check_places.
local function check_topic(topic)
  local place = P .. 'mr:r:[' .. topic .. ']:'
  call('LLEN', place .. 'pending')
  call('GET', place .. 'mr:last')
  call('SCARD', TOPICS)
end

-- result: id (of the task), run (what tells its runs apart), topic, type, outcome, attempt, final, cancel, text,
-- ended_ms where that is not now. Each has an order time of its own, so that those that come back find their places.
local function leave_result(result)
  local place, topic = P .. 'mr:r:[' .. result.topic .. ']:', result.topic
  local id = redis.sha1hex(result.run .. ' ' .. result.id)
  local queue, partition = whose()
  local payload = text_field(1, result.id) .. text_field(2, queue) .. number_field(3, partition)
    .. text_field(4, result.type) .. text_field(5, topic) .. number_field(6, result.outcome)
    .. number_field(7, result.attempt) .. number_field(8, result.final and 1 or 0)
    .. number_field(9, result.cancel and 1 or 0) .. number_field(10, floor(result.ended_ms or now_ms))
    .. text_field(result.outcome == OK and 12 or 11, result.text)
  check_topic(topic)
  local last = tonumber(call('GET', place .. 'mr:last') or 0)
  local us = format('%d', math.max(last + 1, tonumber(now_us_text)))
  call('SET', place .. 'mr:last', us)
  call('HSET', place .. 't:' .. id, 'state', 'pending', 'pending_since', us .. '000',
    'msg', text_field(1, result.type) .. text_field(2, payload) .. text_field(3, id) .. text_field(4, '\1' .. topic))
  if call('LPUSH', place .. 'pending', id) == 1 then tell(place .. 'mr:wake', '1') end
  if call('SADD', TOPICS, topic) == 1 then
    tell(string.match(P, '^(.*){') .. 'mr:results', '\1' .. topic .. '\1' .. string.match(P, '{([^}]*)}:$'))
  end
end

-- ---- failures, of other programs as well: mr:v says which was the last that left a result

local function failure_mark(task)
  return format('%d %d', task.retried, task.failed_s or 0)
end

-- This failure has left one, or is not to.
local function note_failure(id, task)
  call('HSET', TASK .. id, 'mr:v', failure_mark(task))
end

local OUTCOMES = { ['context deadline exceeded'] = TIMEOUT, ['context canceled'] = CANCELLED,
  ['asynq: task lease expired'] = LOST }

local function leave_failure(id, task, attempt, final, text)
  leave_result({ id = id, run = format('%d:%d', attempt, task.failed_s or 0), topic = task.topic, type = task.type,
    outcome = OUTCOMES[text] or ERROR, attempt = attempt, final = final, cancel = task.cancel, text = text,
    ended_ms = task.failed_s and task.failed_s * 1000 })
end

-- Those of another program's runs that nobody has seen yet. Why the last of them failed is known, unless something
-- has been written over it.
local function leave_missed(id, task, text)
  local seen = tonumber(string.match(task.mark or '', '^%d+') or 0)
  if seen >= task.retried or not call('ZSCORE', OPEN, id) then return end
  for n = seen + 1, task.retried do
    leave_failure(id, task, n + task.crashes, false, n == task.retried and text or UNKNOWN)
  end
  task.mark = failure_mark(task)
  note_failure(id, task)
end

-- No other run follows.
local function close_topic(id)
  call('ZREM', OPEN, id)
end
