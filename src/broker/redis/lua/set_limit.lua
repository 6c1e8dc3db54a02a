-- SPDX-License-Identifier: Apache-2.0
-- A limit of a queue (limit.lua) gets another rate, or concurrency.
-- KEYS: 1 the queue
-- ARGV: 1 the prefix of its first partition; 2 W, or 't:*', 'k:*'; 3 the rate, '': as it is; 4 the span of that in ms;
--       5 how long a permit is taken, us; 6 the concurrency, '': as it is; 7 the greatest number of limits
-- Returns: {1}, or {0}: there are so many already
begin_when_full()
local prefix, w, rate, rate_ms, span, most, limits_max = unpack(ARGV)
local key = P .. 'mr:limits'
local before = call('HGET', key, w)
local was = { string.match(before or '0 0 0 0', '^(%d+) (%d+) (%d+) (%d+) ?(%d*)$') }
-- A rate counts from when there was none before. Partitions are told one after the other, and mean the same moment.
if rate == '0' then
  call('HDEL', prefix .. 'mr:l:f', w)
elseif rate ~= '' then
  call('HSETNX', prefix .. 'mr:l:f', w, now_us_text)
  was[5] = call('HGET', prefix .. 'mr:l:f', w)
end
if rate ~= '' then was[1], was[2], was[3] = rate, rate == '0' and '0' or rate_ms, rate == '0' and '0' or span end
if most ~= '' then was[4] = most end
if was[1] == '0' and was[4] == '0' then
  if not before then return { 1 } end
  call('HDEL', key, w)
else
  local n = call('HLEN', key) - call('HEXISTS', key, '@')
  if not before and n >= tonumber(limits_max) then return { 0 } end
  call('HSET', key, '@', prefix, w, table.concat(was, ' '))
end
local limits = open_limits()
local L, gmatch = limits.prefix, string.gmatch
call('SADD', L .. 'mr:l:p', P)

-- What runs counts, for the limits that there are now.
for _, id in ipairs(call('LRANGE', P .. 'active', 0, -1)) do
  local hash = ask('HMGET', TASK .. id, 'msg', 'mr:y', 'mr:i', 'mr:w')
  local epoch = hold_of(hash[3])
  local held = {}
  for one in gmatch(hash[4] or '', '\n([^\n]+)') do call('ZREM', L .. 'mr:l:a:' .. one, TASK .. id) end
  for one in gmatch('q\n' .. limits.track_of(hash[1], hash[2]), '[^\n]+') do
    local rule = limits.rule_of(one)
    if epoch and rule and rule.most > 0 then
      call('ZADD', L .. 'mr:l:a:' .. one, epoch, TASK .. id)
      held[#held + 1] = one
    end
  end
  if #held > 0 then
    call('HSET', TASK .. id, 'mr:w', L .. '\n' .. table.concat(held, '\n'))
  elseif hash[4] then
    call('HDEL', TASK .. id, 'mr:w')
  end
end
-- What was kept back may not be any more: takes find out, some at a time.
if call('EXISTS', P .. 'mr:l:s') == 1 then call('SET', P .. 'mr:l:g', format('%.0f', now_ms)) end
wake()
return { 1 }
