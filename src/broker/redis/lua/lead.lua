-- SPDX-License-Identifier: Apache-2.0
-- A node beats, or goes: it is known to live, and may lead. leader.c says what the hash holds.
-- KEYS     1 asynq:mr:cluster
-- ARGV     incarnation; its lease in ms, 0: it goes; so long it leads beyond a beat in ms, 0: it is no candidate; name
-- Returns  its term, 0: it does not lead; so many ms somebody leads; the last version of an assignment
local C, id, lease, leads = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local now, KEPT_MS, SWEEP_MS = floor(now_ms), 60000, 30000
call('HDEL', C, '') -- first: see begin_when_full
local said = call('HMGET', C, 'leader', 'until', 'term', 'free', 'version', 'swept')
local leader, ends, version = said[1] or '', tonumber(said[2] or 0), said[5] or '0'

-- Until when a node lives.
local function lives(node)
  local beat, long = string.match(call('HGET', C, 'n:' .. node) or '', '^(%d+) (%d+)$')
  return beat and tonumber(beat) + tonumber(long) or 0
end

local function nobody(since)
  leader = ''
  call('HSET', C, 'leader', '', 'free', format('%d', since))
end

if lease == 0 then
  call('HDEL', C, 'n:' .. id)
  if leader == id then nobody(math.min(now, ends)) end
  return { '0', 0, version }
end
if leader ~= '' and leader ~= id then ends = math.min(ends, lives(leader)) end
if leader ~= '' and ends <= now then nobody(ends) end
if leader == '' and leads > 0 then
  leader = id
  said[3] = format('%d', math.max(tonumber(said[3] or 0) + 1, tonumber(now_us_text)))
  call('HSET', C, 'leader', id, 'name', ARGV[4], 'term', said[3], 'since', format('%d', now))
elseif leader == '' and not said[4] then
  nobody(now)
end
local beat = format('%d %d', now, lease)
if leader ~= id then
  call('HSET', C, 'n:' .. id, beat)
  return { '0', leader ~= '' and ends - now or 0, version }
end
call('HSET', C, 'n:' .. id, beat, 'until', format('%d', now + leads))
if now - tonumber(said[6] or 0) >= SWEEP_MS then -- of the dead nothing is left in the end
  local all = call('HGETALL', C)
  for i = 1, #all, 2 do
    local last, long = string.match(all[i + 1], '^(%d+) (%d+)$')
    if sub(all[i], 1, 2) == 'n:' and (not last or last + long + KEPT_MS < now) then call('HDEL', C, all[i]) end
  end
  call('HSET', C, 'swept', format('%d', now))
end
return { said[3], leads, version }
