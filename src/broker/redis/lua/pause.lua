-- SPDX-License-Identifier: Apache-2.0
-- Pauses a queue or lets it go on.
-- KEYS: 1 the queue
-- ARGV: 1 '1': paused
-- Returns: 1
begin_when_full()
if ARGV[1] == '1' then
  call('SET', P .. 'paused', now_s, 'NX')
else
  call('DEL', P .. 'paused')
end
wake()
return 1
