-- SPDX-License-Identifier: Apache-2.0
-- A page of the tasks of a queue.
-- KEYS: 1 the queue
-- ARGV: 1 digits of the states to list, 0: held ones; the first one from a place on
--       2-4 that place: its kind, key and id; kind '': the start
--       5 tasks at most, 6 bytes at most, 7 how many are on the page already
--       8 '1': with payloads, 9 only of this type, 10 how many to look at
-- Returns: 0 there is no more, 1 the page is full, 2 there is more to look at; the place behind which to
--       go on: state, kind, key, id (kind '': the one given); how many tasks were looked at; then per
--       task {id, state, score, ours, {fields}}.
local CHUNK, READ_MAX, ID_MAX = 128, 16 * 1024 * 1024, 128

local states, kind, key, anchor = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local limit, room, earlier = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local whole, wanted, scans = ARGV[8] == '1', ARGV[9], tonumber(ARGV[10])
local views, read, looked, more, last = {}, 0, 0, 1, { '0', '', '0', '' }

-- Enough for one script.
local function tired()
  if looked < scans and read <= READ_MAX then return false end
  more = 2
  return true
end

-- Whether the page ends before this task. If not, it is on it now, if it is wanted.
local function ends_before(id, number, score, ours)
  if #views == limit or tired() then return true end
  local fields = ask('HGETALL', TASK .. id)
  local at, cost = field_at(fields, 'msg'), 0
  if at then read = read + #fields[at] end
  if not at or wanted ~= '' and type_of(fields[at]) ~= wanted then
    looked = looked + 1
    return false
  end
  if not whole then fields[at] = without_payload(fields[at]) end
  for i = 1, #fields do cost = cost + #fields[i] end
  if earlier + #views > 0 and cost > room then return true end
  looked = looked + 1
  room = room - cost
  views[#views + 1] = { id, number, score, ours, with_lock(id, fields) }
  return false
end

-- The one at this place was looked at. Ids of other programs may be longer than a place can say: then it
-- is behind all that begin like it.
local function seen(number, place_kind, place_key, id)
  if #id > ID_MAX then id = sub(id, 1, ID_MAX - 1) .. '\255' end
  kind, key, anchor = place_kind, place_key, id
  last = { number, kind, key, anchor }
end

-- Bytes decide, as in a sorted set, and not the locale of the server.
local function bytes_before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- How many members of a sorted set are not behind this one, be it there or not.
local function rank_after(set, score, id)
  local now = call('ZSCORE', set, id)
  if now and tonumber(now) == tonumber(score) then return call('ZRANK', set, id) + 1 end
  local low, high = call('ZCOUNT', set, '-inf', '(' .. score), call('ZCOUNT', set, '-inf', score)
  while low < high do
    local middle = floor((low + high) / 2)
    local member = call('ZRANGE', set, middle, middle)[1]
    if not member or bytes_before(id, member) then high = middle else low = middle + 1 end
  end
  return low
end

-- Goes on in a sorted set from rank `first` on, or from the place; true: the page ended in it.
local function list_set(set, number, mark, first)
  local rank = first
  if kind ~= '' then rank = rank_after(set, string.match(key, '[^_]*$'), anchor) end
  while true do
    local members, ids, due = call('ZRANGE', set, rank, rank + CHUNK - 1, 'WITHSCORES'), {}, {}
    if #members == 0 then return false end
    for i = 1, #members, 2 do ids[#ids + 1] = members[i] end
    if number == 1 or number == 4 then due = call('ZMSCORE', P .. 'mr:due', unpack(ids)) end
    for i, id in ipairs(ids) do
      local score = members[2 * i]
      if ends_before(id, number, score, due[i] or false) then return true end
      seen(number, 'z', mark .. score, id)
    end
    rank = rank + CHUNK
  end
end

-- Held ones, each with the state it came in.
local function list_held()
  local set = P .. 'mr:held'
  local rank = kind ~= '' and rank_after(set, key, anchor) or 0
  while true do
    local members = call('ZRANGE', set, rank, rank + CHUNK - 1, 'WITHSCORES')
    if #members == 0 then return false end
    for i = 1, #members, 2 do
      if ends_before(members[i], standing(members[i], 'held')) then return true end
      seen(0, 'z', members[i + 1], members[i])
    end
    rank = rank + CHUNK
  end
end

-- Those with the score of ready ones are listed as pending.
local function list_scheduled()
  return list_set(P .. 'scheduled', 1, '', call('ZCOUNT', P .. 'scheduled', '-inf', READY_SCORE))
end

-- Of many with one time, as those of one batch are that came from another broker, the place of the last one listed. Is
-- that gone, so are mostly those before it: the place before the first one.
local function place_among(top, beyond)
  local first = place_beyond(function(ns) return ns >= top end)
  for from = first, beyond - 1, CHUNK do
    local ids = call('LRANGE', P .. 'pending', -(from + CHUNK), -(from + 1))
    for i = #ids, 1, -1 do
      if ids[i] == anchor then return from + #ids - i end
    end
  end
  return first - 1
end

-- Plain ones from the list and the others from mr:order, merged by order time. On a tie the other one is
-- first: so one place says where both are.
local function pending_places()
  if kind == '' then return 0, 0 end
  if kind == 'z' then
    local score = tonumber(key)
    return place_beyond(function(ns) return ms_of(ns) >= score end),
      rank_after(P .. 'mr:order', key, anchor)
  end
  local top, was = string.match(key, '^(%d*)_(%d*)$')
  local place, sure = place_beyond(function(ns) return ns > top end)
  local at = place_near(anchor, place)
  if not at and sure then at = place_among(top, place) end
  if not at and not sure then
    at = call('LPOS', P .. 'pending', anchor)
    at = at and call('LLEN', P .. 'pending') - 1 - at or was - 1 -- gone: what was behind it is there
  end
  return at and at + 1 or place,
    call('ZCOUNT', P .. 'mr:order', '-inf', format('%.17g', ms_of(top)))
end

local function list_pending()
  local place, rank = pending_places()
  local top, plain, ordered, p, o, ns = kind == 'l' and string.match(key, '^%d*') or '0', {}, {}, 0, 1, nil
  while true do
    if p == 0 then
      plain = call('LRANGE', P .. 'pending', -(place + CHUNK), -(place + 1))
      p, place = #plain, place + #plain
    end
    if o > #ordered then
      ordered = call('ZRANGE', P .. 'mr:order', rank, rank + CHUNK - 1, 'WITHSCORES')
      o, rank = 1, rank + #ordered / 2
    end
    local id, other, score = plain[p], ordered[o], ordered[o + 1]
    if not id and not other then return false end
    if id and not ns then
      ns = since(id) or top
      if ns < top then ns = top end
    end
    if other and (not id or tonumber(score) <= ms_of(ns)) then
      local ready = tonumber(call('ZSCORE', P .. 'scheduled', other) or 0) == READY_SCORE
      if ready and ends_before(other, 2, order_of(score), order_of(score)) then return true end
      seen(2, 'z', score, other)
      o = o + 2
    else
      if ends_before(id, 2, false, false) then return true end
      seen(2, 'l', ns .. '_' .. place - p, id)
      top, ns, p = ns, nil, p - 1
    end
  end
end

-- They are as many as there are slots: all are read, and sorted by id.
local function list_active()
  local ids = call('LRANGE', P .. 'active', 0, -1)
  table.sort(ids)
  for _, id in ipairs(ids) do
    if kind == '' or id > anchor then
      if ends_before(id, 3, false, false) then return true end
      seen(3, 'a', '0', id)
    end
  end
  return false
end

-- Groups and sets one after the other, in the order of a hash of their names: those are too long for a
-- cursor.
local function list_groups()
  local sets = {}
  local function add(set) sets[#sets + 1] = { sub(redis.sha1hex(set), 1, 12) .. '_', set } end
  for _, group in ipairs(call('SMEMBERS', P .. 'groups')) do add(P .. 'g:' .. group) end
  for _, set in ipairs(call('ZRANGE', P .. 'aggregation_sets', 0, -1)) do add(set) end
  table.sort(sets, function(a, b) return a[1] < b[1] end)
  local from = kind ~= '' and string.match(key, '^[^_]*_') or ''
  for _, set in ipairs(sets) do
    if set[1] >= from then
      if set[1] ~= from then kind = '' end
      if list_set(set[2], 7, set[1], 0) then return true end
    end
  end
  return false
end

local lists = {
  ['0'] = list_held,
  ['1'] = list_scheduled,
  ['2'] = list_pending,
  ['3'] = list_active,
  ['4'] = function() return list_set(P .. 'retry', 4, '', 0) end,
  ['5'] = function() return list_set(P .. 'archived', 5, '', 0) end,
  ['6'] = function() return list_set(P .. 'completed', 6, '', 0) end,
  ['7'] = list_groups,
}

local function answer(how)
  local out = { how, last[1] .. '', last[2], last[3], last[4], looked }
  for _, view in ipairs(views) do out[#out + 1] = view end
  return out
end

for i = 1, #states do
  if lists[sub(states, i, i)]() then return answer(more) end
  kind, key, anchor = '', '0', ''
end
return answer(0)
