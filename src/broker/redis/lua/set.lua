-- SPDX-License-Identifier: Apache-2.0
-- Settings of a queue.
-- KEYS: 1 the queue
-- ARGV: 1 '1': paused, '0': not, '': as it is; 2 the greatest length, 0: none, '': as it is
--       3 what marks it as a partition, '': it is none: one that is marked already keeps settings of its own;
--       then fields of mr:set and their values, '0': the default
-- Returns: {}
local RETRY_CLASS = '2' -- of enum mr_retry_mode
begin_when_full()
local paused, max, mark = unpack(ARGV)
local keeps = mark ~= '' and call('EXISTS', P .. 'mr:part') == 1
if keeps then paused, max = '', '' end
if paused == '1' then
  call('SET', P .. 'paused', now_s, 'NX')
elseif paused == '0' then
  call('DEL', P .. 'paused')
end
if max == '0' then
  call('DEL', P .. 'mr:max')
elseif max ~= '' then
  call('SET', P .. 'mr:max', max)
end
for i = 4, keeps and 0 or #ARGV, 2 do
  if ARGV[i + 1] == '0' then
    call('HDEL', P .. 'mr:set', ARGV[i])
  else
    call('HSET', P .. 'mr:set', ARGV[i], ARGV[i + 1])
  end
end
-- Retries that waited in a class of their own are due, if they have none any more.
if call('EXISTS', P .. 'mr:late') == 1 and call('HGET', P .. 'mr:set', 'retry') ~= RETRY_CLASS then
  call('ZUNIONSTORE', P .. 'mr:due', 2, P .. 'mr:due', P .. 'mr:late', 'AGGREGATE', 'MIN')
  call('DEL', P .. 'mr:late')
end
if mark ~= '' then
  call('SET', P .. 'mr:part', mark)
  -- A new one has the limits of its queue (limit.lua). Of a Cluster it is another slot's: there are none then.
  local L = string.match(P, '^(.*{)') .. string.match(mark, '^%S+ %S+ %S+ (.*)$') .. '}:'
  local limits = L ~= P and call('EXISTS', P .. 'mr:limits') == 0 and redis.pcall('HGETALL', L .. 'mr:limits') or {}
  if #limits > 0 then
    call('HSET', P .. 'mr:limits', unpack(limits))
    call('SADD', L .. 'mr:l:p', P)
  end
end
tell(P .. 'mr:wake', 's') -- as wake(), and the number of partitions may be another
return {}
