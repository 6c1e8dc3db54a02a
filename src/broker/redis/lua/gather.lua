-- SPDX-License-Identifier: Apache-2.0
-- The members of a ripe group leave it as a set.
-- KEYS: 1 the queue
-- ARGV: 1 members at most, and so many make it ripe; 2 ms after which its oldest does, 0: never; 3 ms
--       without a new one that do; 4 name of the set, 5 how long it is its gatherer's, ms, 6 bytes of
--       messages in it at most
-- Returns: {0, in how many ms something can be ripe (-1: never)}, or
--       {1, group, {id, state, score, ours, {fields}}, ...}
local most, delay_ms, grace_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local SAME_SECOND, NAME_MAX = 100, 128 -- a group of another program with a longer name is left to that
local next_ms

local function consider(ms)
  if not next_ms or ms < next_ms then next_ms = ms end
end

-- Sets whose gatherer is too late are poured back, and the names of their groups are known again.
local function return_late()
  for _, set in ipairs(call('ZRANGEBYSCORE', P .. 'aggregation_sets', '-inf', now_s)) do
    return_set(set)
  end
  local first = call('ZRANGE', P .. 'aggregation_sets', 0, 0, 'WITHSCORES')[2]
  if first then consider(tonumber(first) * 1000) end
end

-- When a member joined: scores are whole seconds, but ours have their time in the hash.
local function joined_ms(id, score)
  local ns = call('HGET', TASK .. id, 'mr:t')
  if ns and floor(ms_of(ns) / 1000) == tonumber(score) then return ms_of(ns) end
  return tonumber(score) * 1000
end

local function oldest_ms(group)
  local first = call('ZRANGE', group, 0, 0, 'WITHSCORES')
  return joined_ms(first[1], first[2])
end

local function newest_ms(group)
  local score = call('ZRANGE', group, -1, -1, 'WITHSCORES')[2]
  local best = 0
  for _, id in ipairs(call('ZRANGEBYSCORE', group, score, score, 'LIMIT', 0, SAME_SECOND)) do
    best = math.max(best, joined_ms(id, score))
  end
  return best
end

local function is_ripe(group, size)
  if size >= most then return true end
  local ripe_ms = newest_ms(group) + grace_ms
  if delay_ms > 0 then ripe_ms = math.min(ripe_ms, oldest_ms(group) + delay_ms) end
  if ripe_ms <= now_ms then return true end
  consider(ripe_ms)
  return false
end

-- Its oldest members, as many as fit. One without a hash is nobody.
local function make_set(name, group)
  local set, room, out = group .. ':' .. ARGV[4], tonumber(ARGV[6]), { 1, name }
  local members = call('ZRANGE', group, 0, most - 1, 'WITHSCORES')
  for i = 1, #members, 2 do
    local id, score = members[i], members[i + 1]
    local fields = call('HGETALL', TASK .. id)
    local at = field_at(fields, 'msg')
    if at then
      if #out > 2 and #fields[at] > room then break end
      room = room - #fields[at]
      call('ZADD', set, score, id)
      out[#out + 1] = { id, 7, score, false, fields }
    end
    call('ZREM', group, id)
  end
  if #out > 2 then call('ZADD', P .. 'aggregation_sets', ceil_s(now_ms + tonumber(ARGV[5])), set) end
  if call('EXISTS', group) == 0 then call('SREM', P .. 'groups', name) end
  return #out > 2 and out
end

begin_when_full()
return_late()
for _, name in ipairs(call('SMEMBERS', P .. 'groups')) do
  local group = P .. 'g:' .. name
  local size = call('ZCARD', group)
  if size == 0 then
    call('SREM', P .. 'groups', name)
  elseif #name <= NAME_MAX and is_ripe(group, size) then
    local out = make_set(name, group)
    if out then return out end
  end
end
return { 0, next_ms and math.max(0, math.ceil(next_ms - now_ms)) or -1 }
