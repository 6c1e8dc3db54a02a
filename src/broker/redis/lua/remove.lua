-- SPDX-License-Identifier: Apache-2.0
-- One step of the removal of a queue; Redis is not stopped longer for many tasks than for some. What its tasks left
-- for masters stays.
-- KEYS: 1 the queue
-- ARGV: 1 '1': with its tasks; 2 '1': also its name among those that have results, if none is left; not in a Cluster
-- Returns: 1 it is empty and all of it is gone, then what it counted: names and numbers alternate
--       2 there is more, go on; 3 it holds tasks; 4 some of them run
local STEP, DAYS = 500, 91
local force = ARGV[1] == '1'
local left, deleted, expired = STEP, 0, 0

local function filled()
  for _, name in ipairs({ 'pending', 'active', 'scheduled', 'retry', 'archived', 'completed', 'groups',
    'aggregation_sets', 'mr:held' }) do
    if call('EXISTS', P .. name) == 1 then return true end
  end
  return false
end

local function drop(id)
  local lock, msg = unpack(ask('HMGET', TASK .. id, 'unique_key', 'msg'))
  unlock(id, lock or message_read(msg).unique_key)
  call('DEL', TASK .. id)
  tell_end(id)
  deleted, left = deleted + 1, left - 1
end

local function drop_list()
  local ids = call('LRANGE', P .. 'pending', -left, -1)
  if #ids > 0 then call('LTRIM', P .. 'pending', 0, -(#ids + 1)) end
  for _, id in ipairs(ids) do drop(id) end
end

local function drop_set(set)
  if left == 0 then return end
  local ids = call('ZRANGE', set, 0, left - 1)
  if #ids > 0 then call('ZREMRANGEBYRANK', set, 0, #ids - 1) end
  for _, id in ipairs(ids) do drop(id) end
end

-- What retention would have removed by now has expired.
local function drop_expired()
  local n = deleted
  local ids = call('ZRANGEBYSCORE', P .. 'completed', '-inf', now_s, 'LIMIT', 0, left)
  for _, id in ipairs(ids) do
    call('ZREM', P .. 'completed', id)
    drop(id)
  end
  expired, deleted = expired + #ids, n
end

local function drop_groups()
  for _, group in ipairs(call('SMEMBERS', P .. 'groups')) do
    drop_set(P .. 'g:' .. group)
    if left == 0 then return end
    call('SREM', P .. 'groups', group)
  end
  for _, set in ipairs(call('ZRANGE', P .. 'aggregation_sets', 0, -1)) do
    drop_set(set)
    if left == 0 then return end
    call('ZREM', P .. 'aggregation_sets', set)
  end
end

-- What limits (limit.lua) kept back was dropped; where it stood goes.
local function drop_tracks()
  local tracks = left > 0 and call('ZRANGE', P .. 'mr:l:s', 0, left - 1) or {}
  for _, track in ipairs(tracks) do
    call('UNLINK', P .. 'mr:l:z:' .. track)
    for w in string.gmatch(track, '[^\n]+') do call('DEL', P .. 'mr:l:w:' .. w) end
  end
  if #tracks > 0 then call('ZREMRANGEBYRANK', P .. 'mr:l:s', 0, #tracks - 1) end
end

-- Where a task with a topic comes later, its name does, too: see open_topics.
local function drop_name()
  if ARGV[2] ~= '1' or call('EXISTS', P .. 'mr:topics') == 1 then return end
  redis.pcall('SREM', string.match(P, '^(.*){') .. 'mr:results', string.match(P, '{([^}]*)}:$'))
end

local function drop_rest()
  local limits = call('HKEYS', P .. 'mr:limits') -- of each type or key on its own what is left has an end
  for _, name in ipairs({ 'lease', 'paused', 'processed', 'failed', 'mr:order', 'mr:due', 'mr:keep',
    'mr:lease', 'mr:max', 'mr:counts', 'mr:await', 'mr:size', 'mr:oldest', 'mr:newest', 'mr:full',
    'mr:members', 'mr:part', 'mr:open', 'mr:limits', 'mr:l:p', 'mr:l:t', 'mr:l:y', 'mr:l:g', 'mr:l:f',
    'mr:set', 'mr:late', 'mr:ran', 'mr:looked' }) do
    call('DEL', P .. name)
  end
  -- One that came with a task may be ahead of the clock, by which a new queue of this name begins.
  local epoch = tonumber(redis.pcall('GET', P .. 'mr:epoch'))
  if epoch then call('PEXPIREAT', P .. 'mr:epoch', up_ms(epoch / 1000)) else call('DEL', P .. 'mr:epoch') end
  for _, w in ipairs(limits) do call('DEL', P .. 'mr:l:r:' .. w, P .. 'mr:l:a:' .. w) end
  for day = 0, DAYS do
    local name = day_of(now_s - day * 86400)
    call('DEL', P .. 'processed:' .. name, P .. 'failed:' .. name)
  end
end

if filled() and not force then return { 3 } end
if call('EXISTS', P .. 'active') == 1 then return { 4 } end
begin_when_full()
call('SET', P .. 'paused', now_s) -- nobody takes meanwhile
drop_expired()
drop_list()
for _, name in ipairs({ 'scheduled', 'retry', 'archived', 'completed', 'mr:held' }) do drop_set(P .. name) end
drop_groups()
if deleted > 0 then count('deleted', deleted) end
if expired > 0 then count('expired', expired) end
if filled() then return { 2 } end
drop_tracks()
if call('EXISTS', P .. 'mr:l:s') == 1 then return { 2 } end
local out = { 1 }
for _, one in ipairs(call('HGETALL', P .. 'mr:counts')) do out[#out + 1] = one end
drop_rest()
drop_name()
wake()
return out
