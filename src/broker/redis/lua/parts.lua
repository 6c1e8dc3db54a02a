-- SPDX-License-Identifier: Apache-2.0
-- Sets how many partitions a queue has, and which workers prefer which.
-- KEYS: 1 the table of all queues with more than one: "PARTITIONS WIDEST ASSIGN"
-- ARGV: 1 the queue; 2 how many, '' as it is; 3 how they are assigned, '' as it is
-- Returns: the row; or 1 it is a partition itself, 2 one that would be a partition has such itself
-- Once used, a partition stays one of the queue, though no more tasks go there: WIDEST is the most there were.
local function row(queue)
  local n, widest, assign = string.match(call('HGET', KEYS[1], queue) or '', '^(%d+) (%d+) (%d+)$')
  return tonumber(n or 1), tonumber(widest or 1), assign or '0'
end

local whole, number = string.match(ARGV[1], '^(.+)~([1-9]%d?)$')
if whole and tonumber(number) > 1 and tonumber(number) <= select(2, row(whole)) then return 1 end
local n, widest, assign = row(ARGV[1])
if ARGV[2] ~= '' then n = tonumber(ARGV[2]) end
if ARGV[3] ~= '' then assign = ARGV[3] end
for i = widest + 1, n do
  if select(2, row(ARGV[1] .. '~' .. i)) > 1 then return 2 end
end
local text = format('%d %d %s', n, math.max(n, widest), assign)
call('HSET', KEYS[1], ARGV[1], text)
return text
