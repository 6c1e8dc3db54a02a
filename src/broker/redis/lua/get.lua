-- SPDX-License-Identifier: Apache-2.0
-- Tasks by their ids.
-- KEYS: 1 the queue
-- ARGV: ids
-- Returns: per id that is in this queue {id, state, score, ours, {fields}}.
local out = {}
for _, id in ipairs(ARGV) do
  local fields = ask('HGETALL', TASK .. id)
  local at = field_at(fields, 'state')
  if at then
    local number, score, ours = standing(id, fields[at])
    out[#out + 1] = { id, number, score, ours, with_lock(id, fields) }
  end
end
return out
