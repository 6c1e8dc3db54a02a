-- SPDX-License-Identifier: Apache-2.0
-- Ends runs that went well and leave nothing: nearly all of them.
-- KEYS[1]  prefix of the queue
-- ARGV     for each: id, epoch
-- Returns  for each: 0 carried out, 1 it is another's or does not run, 2 there is no such task, 3 nothing was done:
--          somebody waits for its end, so finish.lua is to be used
local answer, ids, gone, keys, seen = {}, {}, {}, {}, {}
local active, FEW = P .. 'active', 8
for i = 1, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local leases = call('ZMSCORE', P .. 'lease', unpack(ids))
local own = call('ZMSCORE', P .. 'mr:lease', unpack(ids))
local awaited = call('EXISTS', P .. 'mr:await') == 1 and call('ZMSCORE', P .. 'mr:await', unpack(ids)) or {}
local text, second -- of one batch most leases end at the same time

-- The lease in force is ours.
local function is_ours(k)
  if own[k] ~= text then
    text = own[k]
    second = text and ceil_s(text)
  end
  return text and leases[k] == second
end

local function verdict(k, id, epoch)
  local hash = call('HMGET', TASK .. id, 'state', 'mr:e')
  if not hash[1] or seen[id] then return 2 end
  if hash[1] ~= 'active' or hash[2] ~= epoch or not is_ours(k) then return 1 end
  return awaited[k] and 3 or 0
end

-- They are the oldest runs, or nearly: so those are read, and the ones that go on are put back.
local function leave_active()
  if #gone > FEW then
    local oldest, stay = call('LRANGE', active, -2 * #gone, -1), {}
    for _, id in ipairs(oldest) do
      if not seen[id] then stay[#stay + 1] = id end
      seen[id] = nil
    end
    call('LTRIM', active, 0, -#oldest - 1)
    if #stay > 0 then call('RPUSH', active, unpack(stay)) end
  end
  for id in pairs(seen) do call('LREM', active, -1, id) end
end

for k = 1, #ids do
  local id = ids[k]
  local code = verdict(k, id, ARGV[2 * k])
  answer[k] = code
  if code == 0 then
    gone[#gone + 1], keys[#keys + 1], seen[id] = id, TASK .. id, true
  end
end
if #gone > 0 then
  call('DEL', unpack(keys))
  call('ZREM', P .. 'lease', unpack(gone))
  call('ZREM', P .. 'mr:lease', unpack(gone))
  leave_active()
  count_runs(#gone, 0)
end
return answer
