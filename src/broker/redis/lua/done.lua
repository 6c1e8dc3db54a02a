-- SPDX-License-Identifier: Apache-2.0
-- Ends runs that went well and leave nothing: nearly all of them.
-- KEYS[1]  prefix of the queue
-- ARGV     1: no lease of these can have ended; then for each: id, epoch
-- Returns  for each: 0 carried out, 1 it is another's or does not run, 2 there is no such task. Nothing at all when
--          somebody waits for the end of a task: then nothing was done, and finish.lua is to be used
if call('EXISTS', P .. 'mr:await') == 1 then return {} end
local held, answer, gone, keys, seen, n = ARGV[1] == '1', {}, {}, {}, {}, 0
local active = P .. 'active'
for i = 2, #ARGV, 2 do
  local id = ARGV[i]
  local key = TASK .. id
  local hash = call('HMGET', key, 'state', 'mr:e')
  local code = (not hash[1] or seen[id]) and 2 or (hash[1] ~= 'active' or hash[2] ~= ARGV[i + 1]) and 1 or 0
  if code == 0 and not held then
    local ours = call('ZSCORE', P .. 'mr:lease', id)
    if not ours or call('ZSCORE', P .. 'lease', id) ~= ceil_s(ours) then code = 1 end
  end
  answer[i / 2] = code
  if code == 0 then
    call('LREM', active, -1, id)
    n = n + 1
    gone[n], keys[n], seen[id] = id, key, true
  end
end
if n > 0 then
  call('DEL', unpack(keys))
  call('ZREM', P .. 'lease', unpack(gone))
  call('ZREM', P .. 'mr:lease', unpack(gone))
  count_runs(n, 0)
end
return answer
