-- SPDX-License-Identifier: Apache-2.0
-- Sets how many partitions a queue has, and which workers prefer which.
-- KEYS: 1 the table of all queues with more than one: "PARTITIONS WIDEST ASSIGN"
-- ARGV: 1 the queue; 2 how many, '' as it is, 0 the queue is gone; 3 how they are assigned, '' as it is
-- Returns: 1
-- Once used, a partition stays one of the queue, though no more tasks go there: WIDEST is the most there were.
local was = call('HGET', KEYS[1], ARGV[1])
local n, widest, assign = string.match(was or '', '^(%d+) (%d+) (%d+)$')
n, widest, assign = tonumber(n or 1), tonumber(widest or 1), assign or '0'
if ARGV[2] == '0' then
  call('HDEL', KEYS[1], ARGV[1])
  return 1
end
if ARGV[2] ~= '' then n = tonumber(ARGV[2]) end
if ARGV[3] ~= '' then assign = ARGV[3] end
call('HSET', KEYS[1], ARGV[1], format('%d %d %s', n, math.max(n, widest), assign))
return 1
