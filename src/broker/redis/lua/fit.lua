-- SPDX-License-Identifier: Apache-2.0
-- A queue gets another number of partitions: so that no version of an assignment leaves one out, those without an
-- owner go to who has the least. The leader evens it out.
-- KEYS     1 asynq:mr:cluster
-- ARGV     queue; so many partitions, 1: the assignment goes; '1': those beyond them are nobody's from now on
-- Returns  1 if something changed
local C, field, n, PARTS_MAX = KEYS[1], 'a:' .. ARGV[1], tonumber(ARGV[2]), 64
local term, lines = string.match(call('HGET', C, field) or '', '^%d+ (%d+)\n(.*)$')
local owners, owned, changed = {}, {}, false

local function has(bits, part) -- a number in hex
  local at = #bits - floor((part - 1) / 4)
  local digit = at >= 1 and tonumber(sub(bits, at, at), 16) or 0
  return floor(digit / 2 ^ ((part - 1) % 4)) % 2 == 1
end

local function text_of(owner)
  local bits = ''
  for first = PARTS_MAX - 3, 1, -4 do
    local digit = 0
    for i = 3, 0, -1 do digit = 2 * digit + (owner[first + i] and 1 or 0) end
    bits = bits .. format('%x', digit)
  end
  return owner.id .. ' ' .. bits .. ' ' .. owner.name .. '\n'
end

local function give(owner, part)
  owner[part], owned[part] = true, true
  owner.n = owner.n + 1
end

for id, bits, name in string.gmatch(lines or '', '(%x+) (%x+) ([^\n]*)\n') do
  local owner = { id = id, name = name, n = 0 }
  owners[#owners + 1] = owner
  for part = 1, PARTS_MAX do
    local stays = part <= n or ARGV[3] ~= '1'
    if has(bits, part) and stays then
      give(owner, part)
    elseif not stays then
      changed = changed or has(bits, part)
    end
  end
end
if #owners == 0 then return 0 end
for part = 1, n do
  local least = owners[1]
  for i = 2, owned[part] and 0 or #owners do
    if owners[i].n < least.n then least = owners[i] end
  end
  if not owned[part] then
    give(least, part)
    changed = true
  end
end
if n == 1 and ARGV[3] == '1' then changed = true end
if not changed then return 0 end
local version = format('%d', math.max(tonumber(call('HGET', C, 'version') or 0) + 1, tonumber(now_us_text)))
if n == 1 and ARGV[3] == '1' then
  call('HDEL', C, field)
else
  for i, owner in ipairs(owners) do owners[i] = text_of(owner) end
  call('HSET', C, field, version .. ' ' .. term .. '\n' .. table.concat(owners))
end
call('HSET', C, 'version', version)
return 1
