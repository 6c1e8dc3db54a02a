-- SPDX-License-Identifier: Apache-2.0
-- Whether a task has ended; if not, that somebody waits for it is known for a while.
-- KEYS: 1 the queue
-- ARGV: 1 id, 2 '1': the first look, 3 ms that the wish is known
-- Returns: {0} there is none, {1} it waits or runs, {2, {id, state, score, ours, {fields}}} it ended.
local id, first = ARGV[1], ARGV[2] == '1'
local kept = P .. 'mr:end:' .. id
local fields = first and {} or call('HGETALL', kept)
if #fields > 0 then return { 2, { id, 6, false, false, fields } } end
fields = ask('HGETALL', TASK .. id)
local at = field_at(fields, 'state')
if not at then return { 0 } end
local number, score, ours = standing(id, fields[at])
if number == 5 or number == 6 then return { 2, { id, number, score, ours, fields } } end
if first then call('DEL', kept) end -- of an earlier task of this id
call('ZREMRANGEBYSCORE', P .. 'mr:await', '-inf', up_ms(now_ms))
call('ZADD', P .. 'mr:await', up_ms(now_ms + tonumber(ARGV[3])), id)
if call('PTTL', P .. 'mr:await') < tonumber(ARGV[3]) then call('PEXPIRE', P .. 'mr:await', ARGV[3]) end
return { 1 }
