-- SPDX-License-Identifier: Apache-2.0
-- The members of a ripe group leave it as a set. What it costs does not depend on how many groups there are, but for
-- a walk of WALK of them.
-- KEYS: 1 the queue
-- ARGV: 1 members at most, and so many make it ripe; 2 ms after which its oldest does, 0: never; 3 ms
--       without a new one that do; 4 name of the set, 5 how long it is its gatherer's, ms, 6 bytes of
--       messages in it at most; 7 where the walk goes on, '' no walk now; 8 '1': who asks waits if there is none
-- Returns: {0, where the walk goes on, in how many ms something can be ripe (-1: never)}, or
--       {1, where the walk goes on, group, {id, state, score, ours, {fields}}, ...}
local most, delay_ms, grace_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local WALK, TRIES, SETS, FULL_MS = 250, 100, 100, 60000
local FIRST_VIEW = 4
local cursor, next_ms = ARGV[7], nil

local function consider(ms)
  if not next_ms or ms < next_ms then next_ms = ms end
end

-- Sets whose gatherer is too late are poured back, and the names of their groups are known again.
local function return_late()
  for _, set in ipairs(call('ZRANGEBYSCORE', P .. 'aggregation_sets', '-inf', now_s, 'LIMIT', 0, SETS)) do
    return_set(set)
  end
  local first = call('ZRANGE', P .. 'aggregation_sets', 0, 0, 'WITHSCORES')[2]
  if first then consider(tonumber(first) * 1000) end
end

-- What other programs put into groups, or took from them, is noted now.
local function walk()
  local found = call('SSCAN', P .. 'groups', cursor, 'COUNT', WALK)
  local names = found[2]
  cursor = found[1]
  if #names == 0 then return end
  local sizes = call('ZMSCORE', SIZE, unpack(names, 1, math.min(#names, 7000)))
  for i, name in ipairs(names) do
    if call('ZCARD', P .. 'g:' .. name) ~= tonumber(sizes[i] or 0) then note_group(name) end
  end
end

-- A group that is ripe as far as we noted, else nil. Of those at the heads that with the oldest member, so that no
-- busy group keeps another from its turn.
local function find_ripe()
  local best, best_ms
  local function take(name)
    local ms = tonumber(call('ZSCORE', OLDEST, name) or 0)
    if not best or ms < best_ms then best, best_ms = name, ms end
  end
  local first = call('ZREVRANGE', SIZE, 0, 0, 'WITHSCORES')
  if first[1] and tonumber(first[2]) >= most then take(first[1]) end
  for _, rule in ipairs({ { NEWEST, grace_ms }, delay_ms > 0 and { OLDEST, delay_ms } or nil }) do
    first = call('ZRANGE', rule[1], 0, 0, 'WITHSCORES')
    local ripe_ms = first[1] and tonumber(first[2]) + rule[2]
    if ripe_ms and ripe_ms <= now_ms then take(first[1]) elseif ripe_ms then consider(ripe_ms) end
  end
  return best
end

-- Whether it is, as it stands now.
local function is_ripe(name)
  local size, oldest, newest = note_group(name)
  if size == 0 then return false end
  return size >= most or newest + grace_ms <= now_ms or delay_ms > 0 and oldest + delay_ms <= now_ms
end

-- Its oldest members, as many as fit. One without a hash is nobody.
local function make_set(name)
  local group = P .. 'g:' .. name
  local set, room, out = group .. ':' .. ARGV[4], tonumber(ARGV[6]), { 1, cursor, name }
  local members = call('ZRANGE', group, 0, most - 1, 'WITHSCORES')
  for i = 1, #members, 2 do
    local id, score = members[i], members[i + 1]
    local fields = ask('HGETALL', TASK .. id)
    local at = field_at(fields, 'msg')
    if at then
      if #out >= FIRST_VIEW and #fields[at] > room then break end
      room = room - #fields[at]
      call('ZADD', set, score, id)
      out[#out + 1] = { id, 7, score, false, fields }
    end
    call('ZREM', group, id)
  end
  if #out >= FIRST_VIEW then call('ZADD', P .. 'aggregation_sets', ceil_s(now_ms + tonumber(ARGV[5])), set) end
  note_group(name)
  return #out >= FIRST_VIEW and out
end

-- Producers wake who waits when a group has so many members.
local function say_full()
  local key = P .. 'mr:full'
  local said = tonumber(call('GET', key))
  if not said or most < said or most == said and call('PTTL', key) < FULL_MS / 2 then
    begin_when_full()
    call('SET', key, most, 'PX', FULL_MS)
  end
end

if call('EXISTS', P .. 'groups', P .. 'aggregation_sets', SIZE) == 0 then -- nearly always, where there are none
  if ARGV[8] == '1' then say_full() end
  return { 0, '0', -1 }
end
begin_when_full()
return_late()
if cursor ~= '' then walk() end
for _ = 1, TRIES do
  local name = find_ripe()
  local out = name and is_ripe(name) and make_set(name)
  if out then return out end
  if not name then
    if ARGV[8] == '1' then say_full() end
    return { 0, cursor, next_ms and math.max(0, math.ceil(next_ms - now_ms)) or -1 }
  end
end
return { 0, cursor, 0 } -- much has changed: what was noted is right again bit by bit
