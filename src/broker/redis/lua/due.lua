-- SPDX-License-Identifier: Apache-2.0
-- Makes ready what is due.
-- KEYS[1]  prefix of the queue
-- Returns  in how many ms the next one is due, -1: none is
local due_key, MANY = P .. 'mr:due', 200

-- Its time has come.
local function ready(id, at_ms)
  local hash = call('HMGET', TASK .. id, 'msg', 'group', 'mr:p')
  if not hash[1] then return end
  if hash[2] and hash[2] ~= '' then
    put_in_group(id, hash[2])
  else
    put_ready(id, ns_of(at_ms - tonumber(hash[3] or 0)), hash[3])
  end
end

local function promote_ours()
  local due = call('ZRANGEBYSCORE', due_key, '-inf', format('%.0f', floor(now_ms)), 'WITHSCORES', 'LIMIT', 0, MANY)
  for i = 1, #due, 2 do
    local id, at_ms = due[i], tonumber(due[i + 1])
    call('ZREM', due_key, id)
    for _, state in ipairs({ 'scheduled', 'retry' }) do
      if call('ZSCORE', P .. state, id) == ceil_s(at_ms) then
        call('ZREM', P .. state, id)
        ready(id, at_ms)
        break
      end
    end
  end
  return #due / 2 == MANY
end

-- Those of other programs, by their seconds.
local function promote_others(state, from)
  local due = call('ZRANGEBYSCORE', P .. state, from, now_s, 'WITHSCORES', 'LIMIT', 0, MANY)
  for i = 1, #due, 2 do
    call('ZREM', P .. state, due[i])
    ready(due[i], tonumber(due[i + 1]) * 1000)
  end
  return #due / 2 == MANY
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
return more and 0 or next_due()
