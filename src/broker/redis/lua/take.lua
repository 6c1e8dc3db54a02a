-- SPDX-License-Identifier: Apache-2.0
-- Hands out tasks of one queue: those that wait in the list and in mr:order, by order time.
-- KEYS[1]  prefix of the queue
-- ARGV     how many at most, lease in ms, name of the node, how many bytes of messages are enough (0: no matter)
-- Returns  how many are left, 1 if the queue is paused; then for each task: its id, its epoch, its order time in
--          ms where it was in mr:order ('' else), all fields of its hash
local most, lease_ms, node = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local bytes_max = tonumber(ARGV[4])
local list, order_key = P .. 'pending', P .. 'mr:order'
if call('EXISTS', P .. 'paused') == 1 then return { 0, 1 } end

-- The first of mr:order; what is stale there goes.
local function first_in_order()
  while true do
    local first = call('ZRANGE', order_key, 0, 0, 'WITHSCORES')
    if not first[1] then return nil end
    if call('ZSCORE', P .. 'scheduled', first[1]) == '1' then return first[1], tonumber(first[2]) end
    call('ZREM', order_key, first[1])
  end
end

local answer, ids, leases, own_leases, n, bytes = { 0, 0 }, {}, {}, {}, 0, 0
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
  local at = 2 + 4 * (n - 1)
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
