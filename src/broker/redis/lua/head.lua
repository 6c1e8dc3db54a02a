-- SPDX-License-Identifier: Apache-2.0
-- What all scripts share; it stands before each of them. KEYS[1] is always the prefix of one queue,
-- "asynq:{Q}:", and all names of keys are made from it; internal.h says what they hold. It is carried out
-- with every call, so what only some of them need stands in common.lua.
local call, P = redis.call, KEYS[1]
local floor, byte, char, sub, format = math.floor, string.byte, string.char, string.sub, string.format
local TASK = P .. 't:'
local READY_SCORE = 1
-- Tasks that limits keep back (limit.lua) stand in mr:order behind all others: so many ms behind their order time.
local PARKED = 1e15
local time = call('TIME')
local now_s = tonumber(time[1])
local now_ms = now_s * 1000 + tonumber(time[2]) / 1000 -- with its fraction
local now_us_text = format('%d%06d', now_s, time[2])
local now_ns = now_us_text .. '000'

-- A Redis whose memory is full refuses the first write of a script if that could need some, and lets a script go
-- on that has written already. So what gets work done, or frees memory, begins with a write that needs none: else
-- a full Redis would never become less full.
local function begin_when_full()
  call('DEL', P .. 'mr:none')
end

-- A message only wakes others, who would look a little later without it: so a user who may not send any must not end
-- a script that has written already.
local function tell(channel, text)
  redis.pcall('PUBLISH', channel, text)
end

-- Tasks were put into the list, which has so many now. Who listens to an address has no connection that waits for
-- pushes: he is told of the first ones.
local function tell_first(length, n)
  if length == n and string.find(P, '@', 1, true) then tell(P .. 'mr:wake', '1') end
end

-- Numbers are written with %d, which costs a third of %.0f, where they are whole.
local function ceil_s(ms)
  return format('%d', math.ceil(ms / 1000))
end

-- Whole ms, rounded up: what must not be early.
local function up_ms(ms)
  return format('%d', math.ceil(ms))
end

-- ms as text of ns, and back.
local function ns_of(ms)
  return format('%d000', floor(ms * 1000 + 0.5))
end

local function ms_of(ns) -- in two parts: as one number they would not be exact
  return (tonumber(string.sub(ns, 1, -7)) or 0) + (tonumber(string.sub(ns, -6)) or 0) / 1000000
end

-- What HGET, HMGET or HGETALL says of a task. A key of another type, set by hand, is no task: else it would end each script
-- that comes across its id, and what that had in hand would be in no place. Any other refusal ends it as with call.
local function ask(...)
  local found = redis.pcall(...)
  if type(found) ~= 'table' or not found.err then return found end
  if not string.find(found.err, 'WRONGTYPE', 1, true) then return call(...) end
  return select(1, ...) ~= 'HGET' and {}
end

-- Since when it is ready; nil where another program has not written that, or something that is no number.
local function since(id)
  local ns = id and ask('HGET', TASK .. id, 'pending_since')
  return ns and string.match(ns, '^%d+$')
end

-- The day of a time in seconds as Asynq writes it, UTC.
local function day_of(s)
  local z = floor(s / 86400) + 719468
  local era = floor(z / 146097)
  local doe = z - era * 146097
  local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))
  local mp = floor((5 * doy + 2) / 153)
  local month = mp < 10 and mp + 3 or mp - 9
  return format('%04d-%02d-%02d', yoe + era * 400 + (month <= 2 and 1 or 0), month,
    doy - floor((153 * mp + 2) / 5) + 1)
end

local function count_day(name, n)
  local day = P .. name .. ':' .. day_of(now_s)
  if call('INCRBY', day, n) == n then
    call('EXPIREAT', day, now_s + 90 * 86400)
  end
  call('INCRBY', P .. name, n)
end

-- Runs of ours ended: in processed, and in failed; with topics also apart from those of other programs (topics.lua).
local function count_runs(processed, failed, topics)
  if processed > 0 then count_day('processed', processed) end
  if processed > 0 and topics then call('INCRBY', P .. 'mr:ran', processed) end
  if failed > 0 then count_day('failed', failed) end
end

-- What mr:i says of a task in hand: its epoch, when its lease ends in ms, its holder. nil: it is in nobody's of us.
local function hold_of(text)
  if text then return string.match(text, '^(%d+) (%d+) (.*)$') end
end

-- What limits (limit.lua) have noted in mr:w of a task in hand is free, and the first that waits for it may go. At last,
-- without a task, those who wait are told.
local freed

local function release(id, held)
  if not id then
    for _, prefix in ipairs(freed and call('SMEMBERS', freed .. 'mr:l:p') or {}) do
      tell(prefix .. 'mr:wake', '1')
    end
    return
  end
  freed = string.match(held, '^[^\n]*')
  for w in string.gmatch(sub(held, #freed + 1), '[^\n]+') do
    call('ZREM', freed .. 'mr:l:a:' .. w, TASK .. id)
    local top = call('ZPOPMIN', freed .. 'mr:l:w:' .. w)
    local prefix, track = string.match(top[1] or '', '^([^\n]*)\n(.*)$')
    if track then call('ZADD', prefix .. 'mr:l:y', top[2], track) end
  end
end

-- Tasks in groups and in sets of them, by looking at each of those.
local function aggregating()
  local n = 0
  for _, group in ipairs(call('SMEMBERS', P .. 'groups')) do n = n + call('ZCARD', P .. 'g:' .. group) end
  for _, set in ipairs(call('ZRANGE', P .. 'aggregation_sets', 0, -1)) do n = n + call('ZCARD', set) end
  return n
end

-- The same without looking at them each time. What we change is kept count of (see count_members); what other
-- programs do is known when it is counted anew, the less often the more groups there are.
local function members()
  if call('EXISTS', P .. 'groups', P .. 'aggregation_sets') == 0 then return 0 end
  local n = call('GET', P .. 'mr:members')
  if not n then
    n = aggregating()
    call('SET', P .. 'mr:members', n, 'PX', 1000 + floor(call('SCARD', P .. 'groups') / 5))
  end
  return tonumber(n)
end

-- Tasks that count for the greatest length of a queue.
local function waiting()
  return call('LLEN', P .. 'pending') + call('ZCARD', P .. 'scheduled') + call('ZCARD', P .. 'retry') + members()
end
