-- SPDX-License-Identifier: Apache-2.0
-- What is in queues of which nobody tells us: one look for many of them.
-- KEYS     their prefixes
-- ARGV     of each of them: '1' if nobody waits for what is pushed into its list
-- Returns  the time in ms; then for each queue that has something: its number from 0, in how many ms something of
--          scheduled or retry is due, by its seconds, or 0 if that list has any or something else is ready (-1: nothing is there), 1 if
--          something runs, 2 if something is only kept
local RUNS, KEPT = { 'lease', 'active' }, { 'mr:keep', 'completed' }
local ALL = { 'scheduled', 'retry', 'mr:keep', 'completed', unpack(RUNS) }
local answer = { floor(now_ms) }

local function there(from, to, names)
  local keys = {}
  for i = from, to do
    for _, name in ipairs(names) do keys[#keys + 1] = KEYS[i] .. name end
    if names == ALL and ARGV[i] == '1' then keys[#keys + 1] = KEYS[i] .. 'pending' end
  end
  return call('EXISTS', unpack(keys)) > 0
end

-- ms from now of the first entry. A key of a wrong type is due: the take says what is wrong with it.
local function wait_ms(entry)
  if entry.err then return 0 end
  return entry[2] and math.max(0, math.ceil(tonumber(entry[2]) * 1000 - now_ms))
end

-- Whether something is ready beside the list. Whoever put it there has told us; but not every user may send messages, and
-- a Cluster may lose one.
local function is_ready(i)
  local first = redis.pcall('ZRANGE', KEYS[i] .. 'mr:order', 0, 0, 'WITHSCORES')
  if first.err or not first[2] then return first.err end
  return tonumber(first[2]) < PARKED or there(i, i, { 'mr:l:y' })
end

local function look_at(i)
  local scheduled = wait_ms(redis.pcall('ZRANGEBYSCORE', KEYS[i] .. 'scheduled', READY_SCORE + 1, '+inf', 'WITHSCORES',
    'LIMIT', 0, 1))
  local retry = wait_ms(redis.pcall('ZRANGE', KEYS[i] .. 'retry', 0, 0, 'WITHSCORES'))
  local n = #answer
  answer[n + 1] = i - 1
  answer[n + 2] = (ARGV[i] == '1' and there(i, i, { 'pending' }) or is_ready(i)) and 0
    or math.min(scheduled or retry or -1, retry or scheduled or -1)
  answer[n + 3] = there(i, i, RUNS) and 1 or there(i, i, KEPT) and 2 or 0
end

-- Most of them have nothing, so these are passed over half by half.
local function look(from, to)
  if not there(from, to, ALL) then return end
  if from == to then return look_at(from) end
  local middle = floor((from + to) / 2)
  look(from, middle)
  look(middle + 1, to)
end

look(1, #KEYS)
return answer
