-- SPDX-License-Identifier: Apache-2.0
-- Ends runs that went well and leave nothing: nearly all of them.
-- KEYS[1]  prefix of the queue
-- ARGV     ids, then as many epochs; 1 if tasks of this queue have topics, else nothing
-- Returns  for each: 0 carried out, 1 it is another's or does not run, 2 there is no such task, 3 nothing was done:
--          somebody waits for its end, so finish.lua is to be used
local active, many = P .. 'active', floor(#ARGV / 2)
local FEW, MORE, DEEP = 8, 32, 4 -- so few are looked for one by one; read beyond as many as end; pages of so many
local MS_DIGITS = 13 -- until the year 2286
local answer, gone, keys, seen, n = {}, {}, {}, {}, 0
local leases = call('ZMSCORE', P .. 'lease', unpack(ARGV, 1, many))
local awaited = call('EXISTS', P .. 'mr:await') == 1 and call('ZMSCORE', P .. 'mr:await', unpack(ARGV, 1, many)) or {}
local limited = call('EXISTS', P .. 'mr:limits') == 1
local text, second -- of one batch most leases end at the same time

-- The lease in force is ours: only what runs has one.
local function is_ours(k, key)
  local lease, epoch = leases[k], ARGV[many + k]
  local hold = lease and ask('HGET', key, 'mr:i')
  if not hold or sub(hold, 1, #epoch) ~= epoch then return false end
  local ends = sub(hold, #epoch + 1, #epoch + MS_DIGITS + 2)
  if ends ~= text then
    text = ends
    second = string.match(ends, '^ %d+ $') and ceil_s(ends)
  end
  return lease == second
end

-- They are the oldest runs, or nearly: so those are read, page by page while they are found there, and the ones that go
-- on are put back.
local function leave_active()
  local left, depth, stay, back = n, 0, {}, {}
  while left > FEW and depth < DEEP * n do
    local page = call('LRANGE', active, -(depth + left + MORE), -depth - 1)
    if #page == 0 then break end
    for i = #page, 1, -1 do
      local id = page[i]
      if seen[id] then
        seen[id], left = nil, left - 1
      else
        stay[#stay + 1] = id
      end
    end
    depth = depth + #page
  end
  if depth > 0 then call('LTRIM', active, 0, -depth - 1) end
  for i = #stay, 1, -1 do back[#back + 1] = stay[i] end
  if #back > 0 then call('RPUSH', active, unpack(back)) end
  for id in pairs(seen) do call('LREM', active, -1, id) end
end

for k = 1, many do
  local id = ARGV[k]
  local key = TASK .. id
  if not seen[id] and is_ours(k, key) then
    answer[k] = awaited[k] and 3 or 0
    if not awaited[k] then
      n = n + 1
      gone[n], keys[n], seen[id] = id, key, true
      local held = limited and call('HGET', key, 'mr:w')
      if held then release(id, held) end
    end
  else
    answer[k] = (seen[id] or call('EXISTS', key) == 0) and 2 or 1
  end
end
if n > 0 then
  call('DEL', unpack(keys))
  call('ZREM', P .. 'lease', unpack(gone))
  leave_active()
  count_runs(n, 0, #ARGV > 2 * many)
  if limited then release() end
end
return answer
