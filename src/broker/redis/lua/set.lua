-- SPDX-License-Identifier: Apache-2.0
-- Settings of a queue.
-- KEYS: 1 the queue
-- ARGV: 1 '1': paused, '0': not, '': as it is; 2 the greatest length, 0: none, '': as it is
--       3 what marks it as a partition, may be missing
-- Returns: {}
begin_when_full()
if ARGV[1] == '1' then
  call('SET', P .. 'paused', now_s, 'NX')
elseif ARGV[1] == '0' then
  call('DEL', P .. 'paused')
end
if ARGV[2] == '0' then
  call('DEL', P .. 'mr:max')
elseif ARGV[2] ~= '' then
  call('SET', P .. 'mr:max', ARGV[2])
end
if ARGV[3] then call('SET', P .. 'mr:part', ARGV[3]) end
call('PUBLISH', P .. 'mr:wake', 's') -- as wake(), and the number of partitions may be another
return {}
