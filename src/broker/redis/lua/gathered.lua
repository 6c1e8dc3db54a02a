-- SPDX-License-Identifier: Apache-2.0
-- A set becomes one task, or goes back into its group.
-- KEYS: 1 the queue
-- ARGV: 1 name of the set; then nothing: back into the group, or one task as enqueue.lua reads it
-- Returns: {1} there is no such set; {0}: done; {0, code, state, id}: the code is that of enqueue.lua, and
--       what is not new was refused: the set is as it was
local NEW, CONFLICT, DUPLICATE, FULL = 0, 1, 2, 3

local function find_set()
  local tail = ':' .. ARGV[1]
  for _, set in ipairs(call('ZRANGEBYSCORE', P .. 'aggregation_sets', '(' .. now_s, '+inf')) do
    if sub(set, -#tail) == tail then return set end
  end
  return nil
end

local set = find_set()
if not set then return { 1 } end
check_places()
begin_when_full()
if #ARGV == 1 then
  return_set(set)
  return { 0 }
end

local id, message, when, ms = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local priority, lock, lock_ms, fields_n = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[11])
local members = call('ZRANGE', set, 0, -1)
local due_ms = when == 'a' and ms or when == 'd' and math.ceil(now_ms + ms)
if due_ms and due_ms <= now_ms then due_ms = false end

local function is_full()
  local max = tonumber(call('GET', P .. 'mr:max') or 0)
  return max > 0 and waiting() - #members >= max
end

-- The task that refuses it, and why.
local function refusal()
  local state = call('HGET', TASK .. id, 'state')
  if state then return CONFLICT, shown_state(id, state), id end
  local holder = lock ~= '' and call('GET', lock)
  state = holder and not call('ZSCORE', set, holder) and ask('HGET', TASK .. holder, 'state')
  if state then return DUPLICATE, shown_state(holder, state), holder end
  if is_full() then return FULL, '', id end
  return nil
end

local code, state, other = refusal()
if code then return { 0, code, state, other } end
for _, member in ipairs(members) do
  local held, msg = unpack(ask('HMGET', TASK .. member, 'unique_key', 'msg'))
  unlock(member, held or message_read(msg).unique_key)
  call('DEL', TASK .. member)
  tell_end(member)
end
call('DEL', set)
call('ZREM', P .. 'aggregation_sets', set)
count('gathered', #members)
count_members(-#members)

local hash = { 'msg', message }
for i = 12, 11 + fields_n do
  hash[#hash + 1] = ARGV[i]
  if ARGV[i] == 'mr:k' and i % 2 == 0 then open_topics({ up_ms(due_ms or now_ms), id }) end
end
if due_ms or priority ~= 0 then hash[#hash + 1], hash[#hash + 2] = 'mr:t', now_ns end
if lock ~= '' then
  local hold_ms = lock_ms + (due_ms and due_ms - now_ms or 0)
  call('SET', lock, id, 'PX', up_ms(hold_ms))
  hash[#hash + 1], hash[#hash + 2] = 'unique_key', lock
  hash[#hash + 1], hash[#hash + 2] = 'mr:q', up_ms(now_ms + hold_ms)
end
call('HSET', TASK .. id, unpack(hash))
if due_ms then
  put_due(id, 'scheduled', due_ms)
  return { 0, NEW, 'scheduled', id }
end
put_ready(id, priority ~= 0 and ns_of(now_ms - priority) or now_ns, priority ~= 0)
wake()
return { 0, NEW, 'pending', id }
