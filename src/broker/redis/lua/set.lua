-- SPDX-License-Identifier: Apache-2.0
-- Settings of a queue.
-- KEYS: 1 the queue
-- ARGV: 1 '1': paused, '0': not, '': as it is; 2 the greatest length, 0: none, '': as it is
--       3 what marks it as a partition, may be missing: one that is marked already keeps settings of its own
-- Returns: {}
begin_when_full()
local paused, max, mark = unpack(ARGV)
if mark and call('EXISTS', P .. 'mr:part') == 1 then paused, max = '', '' end
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
if mark then call('SET', P .. 'mr:part', mark) end
call('PUBLISH', P .. 'mr:wake', 's') -- as wake(), and the number of partitions may be another
return {}
