-- SPDX-License-Identifier: Apache-2.0
-- What there is in a queue, and what it did.
-- KEYS: 1 the queue
-- ARGV: 1 a topic: of the results there that its tasks left; none: of the queue itself
-- Returns: tasks scheduled, pending, active, retry, archived, completed, aggregating; 1 if it is paused;
--       the longest wait in ms among the first in order; processed, failed, both of today; the greatest
--       length; tasks deleted, expired, gathered, carried, moved, trimmed off the archive, quarantined;
--       results that its tasks left; its limits, names and values (limit.lua); what becomes of its retries (as
--       enum mr_retry_mode), and in how many ms at the latest (0: as usual)
local OLDEST_LOOK = 64
if ARGV[1] then
  P = P .. 'mr:r:[' .. ARGV[1] .. ']:'
  TASK = P .. 't:'
end

local function number(key) return tonumber(call('GET', P .. key) or 0) end

local function oldest()
  local first = now_ms
  for _, id in ipairs(call('LRANGE', P .. 'pending', -OLDEST_LOOK, -1)) do
    local ns = since(id)
    if ns then first = math.min(first, ms_of(ns)) end
  end
  local ordered = call('ZRANGE', P .. 'mr:order', 0, OLDEST_LOOK - 1, 'WITHSCORES')
  for i = 1, #ordered, 2 do
    local ready = tonumber(call('ZSCORE', P .. 'scheduled', ordered[i]) or 0) == READY_SCORE
    local priority = ready and ask('HGET', TASK .. ordered[i], 'mr:p')
    if ready then first = math.min(first, tonumber(order_of(ordered[i + 1])) + tonumber(priority or 0)) end
  end
  return floor(now_ms - first)
end

local function results()
  local n = 0
  for _, topic in ipairs(call('SMEMBERS', P .. 'mr:topics')) do
    local place = P .. 'mr:r:[' .. topic .. ']:'
    n = n + call('LLEN', place .. 'pending') + call('LLEN', place .. 'active') + call('ZCARD', place .. 'scheduled')
  end
  return n
end

local ready = call('ZCOUNT', P .. 'scheduled', '-inf', READY_SCORE)
-- Of results those whose master is gone wait, also while nobody is there who would see to that.
local function over_now()
  local n = call('ZCOUNT', P .. 'lease', '-inf', now_s)
  for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'lease', now_s + 1, now_s + 1)) do
    local _, ends = hold_of(ask('HGET', TASK .. id, 'mr:i'))
    if ends and tonumber(ends) <= now_ms then n = n + 1 end
  end
  return n
end

local over = ARGV[1] and over_now() or 0
local counts = call('HMGET', P .. 'mr:counts', 'deleted', 'expired', 'gathered', 'carried', 'moved',
  'trimmed', 'quarantined')
return {
  call('ZCARD', P .. 'scheduled') - ready,
  call('LLEN', P .. 'pending') + ready + over,
  call('LLEN', P .. 'active') - over,
  call('ZCARD', P .. 'retry'),
  call('ZCARD', P .. 'archived'),
  call('ZCARD', P .. 'completed'),
  aggregating(),
  call('EXISTS', P .. 'paused'),
  oldest(),
  number('processed'), number('failed'),
  number('processed:' .. day_of(now_s)), number('failed:' .. day_of(now_s)),
  number('mr:max'),
  tonumber(counts[1] or 0), tonumber(counts[2] or 0), tonumber(counts[3] or 0), tonumber(counts[4] or 0),
  tonumber(counts[5] or 0), tonumber(counts[6] or 0), tonumber(counts[7] or 0),
  results(),
  call('HGETALL', P .. 'mr:limits'),
  tonumber(call('HGET', P .. 'mr:set', 'retry') or 0), tonumber(call('HGET', P .. 'mr:set', 'wait') or 0),
}
