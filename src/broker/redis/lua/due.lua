-- SPDX-License-Identifier: Apache-2.0
-- Makes ready what is due.
-- KEYS[1]  prefix of the queue
-- Returns  in how many ms the next one is due, -1: none is
local due_key, MANY = P .. 'mr:due', 200
local pushed = {} -- ids that go to the left end of the list, the oldest first
local left = since(call('LINDEX', P .. 'pending', 0))

local function push()
  if #pushed > 0 then call('LPUSH', P .. 'pending', unpack(pushed)) end
  pushed = {}
end

-- Its time has come. They come in the order of their times, so most belong behind all that is in the list.
local function ready(id, at_ms)
  local hash = call('HMGET', TASK .. id, 'msg', 'group', 'mr:p')
  local ns = ns_of(at_ms - tonumber(hash[3] or 0))
  if not hash[1] then return end
  if hash[2] and hash[2] ~= '' then
    put_in_group(id, hash[2])
  elseif not hash[3] and (not left or ns >= left) then
    call('HSET', TASK .. id, 'state', 'pending', 'pending_since', ns)
    pushed[#pushed + 1], left = id, ns
  else
    push()
    put_ready(id, ns, hash[3])
  end
end

local function first_due(key, from, to)
  local found, ids, at = call('ZRANGEBYSCORE', key, from, to, 'WITHSCORES', 'LIMIT', 0, MANY), {}, {}
  for i = 1, #found, 2 do
    ids[#ids + 1], at[#at + 1] = found[i], tonumber(found[i + 1])
  end
  if #ids > 0 then call('ZREM', key, unpack(ids)) end
  return ids, at
end

-- An entry counts if the task stands at that second in scheduled or retry.
local function promote_ours()
  local ids, at = first_due(due_key, '-inf', format('%.0f', floor(now_ms)))
  if #ids == 0 then return false end
  local scheduled = call('ZMSCORE', P .. 'scheduled', unpack(ids))
  local retry = call('ZMSCORE', P .. 'retry', unpack(ids))
  for i, id in ipairs(ids) do
    local second = ceil_s(at[i])
    local state = scheduled[i] == second and 'scheduled' or retry[i] == second and 'retry'
    if state then
      call('ZREM', P .. state, id)
      ready(id, at[i])
    end
  end
  return #ids == MANY
end

-- Those of other programs, by their seconds.
local function promote_others(state, from)
  local ids, at = first_due(P .. state, from, now_s)
  for i, id in ipairs(ids) do ready(id, at[i] * 1000) end
  return #ids == MANY
end

local function next_due()
  local best
  local function consider(entry, unit)
    local at = entry[2] and tonumber(entry[2]) * unit
    if at and (not best or at < best) then best = at end
  end
  consider(call('ZRANGE', due_key, 0, 0, 'WITHSCORES'), 1)
  consider(call('ZRANGEBYSCORE', P .. 'scheduled', READY_SCORE + 1, '+inf', 'WITHSCORES', 'LIMIT', 0, 1), 1000)
  consider(call('ZRANGE', P .. 'retry', 0, 0, 'WITHSCORES'), 1000)
  return best and math.max(0, math.ceil(best - now_ms)) or -1
end

local more = promote_ours()
more = promote_others('scheduled', READY_SCORE + 1) or more
more = promote_others('retry', '-inf') or more
push()
return more and 0 or next_due()
