-- Hands out tasks of one queue: those that wait in the list and in mr:order, by order time.
-- KEYS[1]  prefix of the queue
-- ARGV     how many at most, lease in ms, name of the node, how many bytes of messages are enough (0: no matter),
--          1: look for what is due first
-- Returns  how many are left; in how many ms the next one is due (-1: none is, -2: that was not looked for);
--          1 if the queue is paused; then for each task: its id, its epoch, its order time in ms where it
--          was in mr:order ('' else), all fields of its hash
local most, lease_ms, node = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local bytes_max = tonumber(ARGV[4])
local list, order_key, due_key = P .. 'pending', P .. 'mr:order', P .. 'mr:due'
local MANY = 200

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

-- The first of mr:order; what is stale there goes.
local function first_in_order()
  while true do
    local first = call('ZRANGE', order_key, 0, 0, 'WITHSCORES')
    if not first[1] then return nil end
    if call('ZSCORE', P .. 'scheduled', first[1]) == '1' then return first[1], tonumber(first[2]) end
    call('ZREM', order_key, first[1])
  end
end

local more_due = false
if ARGV[5] == '1' then
  more_due = promote_ours()
  more_due = promote_others('scheduled', READY_SCORE + 1) or more_due
  more_due = promote_others('retry', '-inf') or more_due
end
local next_ms = -2
if ARGV[5] == '1' then next_ms = more_due and 0 or next_due() end
if call('EXISTS', P .. 'paused') == 1 then return { 0, next_ms, 1 } end

local answer, ids, leases, own_leases, n, bytes = { 0, next_ms, 0 }, {}, {}, {}, 0, 0
local now_us = tonumber(now_us_text)
local epoch = math.max(tonumber(call('GET', P .. 'mr:epoch') or 0), now_us - 1)
local end_ms = up_ms(now_ms + lease_ms)
local end_s = ceil_s(end_ms)

-- order_ms: of one from mr:order. An id without a hash is nothing.
local function give(id, order_ms)
  local key = TASK .. id
  local hash = call('HGETALL', key)
  local since, created, message
  for f = 1, #hash, 2 do
    local name = hash[f]
    if name == 'msg' then message = hash[f + 1]
    elseif name == 'pending_since' then since = hash[f + 1]
    elseif name == 'mr:t' then created = hash[f + 1] end
  end
  if not message then
    call('DEL', key)
    return
  end
  epoch = epoch + 1
  local text = format('%.0f', epoch)
  local order = order_ms and ns_of(order_ms) or since or now_ns
  call('HSET', key, 'state', 'active', 'mr:e', text, 'mr:n', node, created and 'mr:o' or 'mr:t', order)
  call('HDEL', key, 'pending_since', 'mr:b', 'mr:g')
  n = n + 1
  ids[n] = id
  leases[2 * n - 1], leases[2 * n] = end_s, id
  own_leases[2 * n - 1], own_leases[2 * n] = end_ms, id
  local at = 3 + 4 * (n - 1)
  answer[at + 1], answer[at + 2] = id, text
  answer[at + 3], answer[at + 4] = order_ms and format('%.17g', order_ms) or '', hash
  bytes = bytes + #message
end

local function is_enough()
  return n >= most or (bytes_max > 0 and bytes >= bytes_max)
end

if most > 0 and call('EXISTS', order_key) == 0 then
  local popped = call('RPOP', list, most) or {}
  for i = 1, #popped do
    if is_enough() then -- the rest goes back where it was
      for k = #popped, i, -1 do call('RPUSH', list, popped[k]) end
      break
    end
    give(popped[i])
  end
else
  while not is_enough() do
    local first, order_ms = first_in_order()
    local right = call('LINDEX', list, -1)
    if not first and not right then break end
    local right_ms = right and ms_of(since(right) or '0')
    if first and (not right or order_ms < right_ms) then
      call('ZREM', order_key, first)
      call('ZREM', P .. 'scheduled', first)
      give(first, order_ms)
    else
      call('RPOP', list)
      give(right)
    end
  end
end
if n > 0 then
  call('SET', P .. 'mr:epoch', format('%.0f', epoch))
  call('LPUSH', P .. 'active', unpack(ids))
  call('ZADD', P .. 'lease', unpack(leases))
  call('ZADD', P .. 'mr:lease', unpack(own_leases))
end
answer[1] = call('LLEN', list) + call('ZCARD', order_key)
return answer
