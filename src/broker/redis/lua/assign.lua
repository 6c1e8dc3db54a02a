-- SPDX-License-Identifier: Apache-2.0
-- The leader writes whose the partitions of a queue are.
-- KEYS     1 asynq:mr:cluster
-- ARGV     term; queue; the version that is replaced, 0: none; owners, as leader.c writes them
-- Returns  the new version; 0: another one leads, or another version is in force
local C = KEYS[1]

-- Hex digits, the lowest first, of all that these lines give to somebody.
local function given(lines)
  local digits = {}
  for bits in string.gmatch(lines, '%x+ (%x+) [^\n]*\n') do
    for i = 1, #bits do digits[i] = bit.bor(digits[i] or 0, tonumber(sub(bits, -i, -i), 16)) end
  end
  return digits
end

-- Partitions that are about to come have owners already (fit.lua), and a leader may not have heard of them: what it
-- leaves out goes to its first owner, and only fit.lua takes a partition away.
local function all_that_were(old, new)
  local was, is = given(old), given(new)
  return (string.gsub(new, '^(%x+) (%x+) ', function(id, bits)
    local text = ''
    for i = 1, math.max(#was, #bits) do
      local own, left_out = tonumber(sub(bits, -i, -i), 16) or 0, bit.band(was[i] or 0, bit.bnot(is[i] or 0))
      text = format('%x', bit.bor(own, left_out)) .. text
    end
    return id .. ' ' .. text .. ' '
  end))
end

local said = call('HMGET', C, 'leader', 'until', 'term', 'version')
if (said[1] or '') == '' or tonumber(said[2] or 0) <= now_ms or said[3] ~= ARGV[1] then return '0' end
local old, lines = string.match(call('HGET', C, 'a:' .. ARGV[2]) or '', '^(%d+) %d+\n(.*)$')
if (old or '0') ~= ARGV[3] then return '0' end
local version = format('%d', math.max(tonumber(said[4] or 0) + 1, tonumber(now_us_text)))
call('HSET', C, 'a:' .. ARGV[2], version .. ' ' .. ARGV[1] .. '\n' .. all_that_were(lines or '', ARGV[4]), 'version', version)
return version
