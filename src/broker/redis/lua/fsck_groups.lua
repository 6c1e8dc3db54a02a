-- SPDX-License-Identifier: Apache-2.0
-- Looks at groups: whether those that gather know each.
-- KEYS: 1 the queue
-- ARGV: 1 '1': mend what is found, then keys of groups, or of sets of them
-- Returns: per finding its number and the group.
local NO_GROUP = 12
local out = {}
for i = 2, #ARGV do
  local group = sub(ARGV[i], #P + 3)
  if call('SISMEMBER', P .. 'groups', group) == 0 and not call('ZSCORE', P .. 'aggregation_sets', ARGV[i])
    and call('EXISTS', ARGV[i]) == 1 then
    out[#out + 1], out[#out + 2] = NO_GROUP, group
    if ARGV[1] == '1' then call('SADD', P .. 'groups', group) end
  end
end
return out
