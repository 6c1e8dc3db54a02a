-- SPDX-License-Identifier: Apache-2.0
-- Looks at some of the entries of one place: whether each is a task, and one of that place.
-- KEYS: 1 the queue
-- ARGV: 1 '1': mend what is found, 2 the place: a list, a sorted set, 'g:GROUP', or the name of a set of
--       a group; 3 from which entry on, 4 how many
-- Returns: where to go on, -1: nowhere; how many were looked at; then per finding its number and the id.
local mend, place, from, most = ARGV[1] == '1', ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local NO_TASK, TWO_PLACES, OTHER_STATE, NO_LEASE, NO_RUN, STALE, NOT_IN_ORDER = 1, 2, 3, 4, 5, 6, 7
local LISTS = { pending = true, active = true }
local STATE_OF = { pending = 'pending', active = 'active', scheduled = 'scheduled', retry = 'retry',
  archived = 'archived', completed = 'completed' }
local TOMB = '\0mr'
local key = sub(place, 1, #P) == P and place or P .. place
local state_here = STATE_OF[place] or 'aggregating'
local out, gone, buried = { -1, 0 }, 0, false

local function say(finding, id)
  out[#out + 1], out[#out + 2] = finding, id
end

local function is_unleased(id)
  return place == 'active' and not call('ZSCORE', P .. 'lease', id)
end

-- Out of this place. A list keeps its places until the end.
local function drop(id, index)
  if not mend then return end
  gone = gone + 1
  if LISTS[place] then
    call('LSET', key, index, TOMB)
    buried = true
  else
    call('ZREM', key, id)
  end
  if place == 'active' then call('ZREM', P .. 'lease', id) end
end

local function check_task(id, index)
  if not is_type(TASK .. id, 'hash') then return end -- it is told where the tasks are looked at
  local state = call('HGET', TASK .. id, 'state')
  if not state then
    say(NO_TASK, id)
    drop(id, index)
  elseif state ~= state_here and is_placed(id, state) then
    say(TWO_PLACES, id)
    drop(id, index)
  elseif is_unleased(id) then -- whatever its state: made active it would only be the next finding
    say(NO_LEASE, id)
    drop(id, index)
    if mend then put_back(id) end
  elseif state ~= state_here then
    say(OTHER_STATE, id)
    if mend then call('HSET', TASK .. id, 'state', state_here) end
  end
end

local function is_ready(id)
  return tonumber(call('ZSCORE', P .. 'scheduled', id) or 0) == READY_SCORE
end

-- An entry of ours says the same time as Asynq's, in ms.
local function is_same(id, score, sets)
  for _, set in ipairs(sets) do
    if call('ZSCORE', P .. set, id) == ceil_s(score) then return true end
  end
  return false
end

local OURS = {
  ['mr:order'] = function(id) return is_ready(id) end,
  ['mr:due'] = function(id, score) return is_same(id, score, { 'scheduled', 'retry' }) end,
  ['mr:late'] = function(id, score) return is_same(id, score, { 'retry' }) end,
  ['mr:held'] = function(id) return ask('HGET', TASK .. id, 'state') == 'held' end,
  ['mr:keep'] = function(id, score) return is_same(id, score, { 'completed' }) end,
  ['mr:lease'] = function(id, score) return is_same(id, score, { 'lease' }) end,
}

local function check_entry(id, score)
  if place == 'lease' then
    if not call('LPOS', P .. 'active', id) then
      say(NO_RUN, id)
      drop(id)
    end
  elseif OURS[place] then
    if not OURS[place](id, score) then
      say(STALE, id)
      drop(id)
    end
  elseif place == 'scheduled' and tonumber(score) == READY_SCORE and ask('HGET', TASK .. id, 'state')
    and not call('ZSCORE', P .. 'mr:order', id) then
    say(NOT_IN_ORDER, id)
    if mend then
      call('ZREM', key, id)
      put_back(id)
      gone = gone + 1
    end
  else
    check_task(id)
  end
end

if not is_type(key, LISTS[place] and 'list' or 'zset') then
  say(WRONG_TYPE, place)
  return out
end
local n
if LISTS[place] then
  local ids = call('LRANGE', key, from, from + most - 1)
  n = #ids
  for i = 1, n do check_task(ids[i], from + i - 1) end
  if buried then call('LREM', key, 0, TOMB) end
else
  local entries = call('ZRANGE', key, from, from + most - 1, 'WITHSCORES')
  n = #entries / 2
  for i = 1, #entries, 2 do check_entry(entries[i], entries[i + 1]) end
end
out[2] = n
if n == most then out[1] = from + n - gone end
return out
