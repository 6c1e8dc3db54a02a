-- SPDX-License-Identifier: Apache-2.0
-- The limits of a queue (limit.lua), and how they stand.
-- KEYS: 1 the queue
-- ARGV: 1 a task: only those that hold for it, and as they stand for it; '': all
-- Returns: 1, or 0: there is no such task here; then for each: W, or 't:*', 'k:*' where it is for each; rate, its span
--       in ms, concurrency, how many are in hand, when its rate lets the next one go (ms, 0: now)
local out, id = { 1 }, ARGV[1]
local limits = open_limits()
local rules, L, gmatch = limits.rules, limits.prefix, string.gmatch

local function say(name, w, rule)
  local each = sub(w, 3) == '*'
  for _, value in ipairs({ name, rule.rate, tonumber(rule.rate_ms), rule.most,
    each and 0 or call('ZCARD', L .. 'mr:l:a:' .. w), each and 0 or limits.rate_until(w, rule) or 0 }) do
    out[#out + 1] = value
  end
end

if id == '' then
  local names = {}
  for name in pairs(rules) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do say(name, name, rules[name]) end
  return out
end
local hash = ask('HMGET', TASK .. id, 'msg', 'mr:y')
if not hash[1] then return { 0 } end
for w in gmatch('q\n' .. limits.track_of(hash[1], hash[2]), '[^\n]+') do
  local rule = limits.rule_of(w)
  if rule then say(rules[w] and w or sub(w, 1, 2) .. '*', w, rule) end
end
return out
