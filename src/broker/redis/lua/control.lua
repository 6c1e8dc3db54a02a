-- SPDX-License-Identifier: Apache-2.0
-- What people do to tasks, one after the other.
-- KEYS: 1 the queue
-- ARGV: 1 the channel of cancellations,
--       then per item: verb (0 cancel, 1 delete, 2 run, 3 archive, 4 prioritise, 5 moved, 6 release), id,
--       priority in ms or where to
-- Returns: per item 0 not here, 1 done, 2 running, 3 not in this state, 4 its unique key is taken.
local NONE, DONE, RUNNING, REFUSED, DUPLICATE = 0, 1, 2, 3, 4
local NAMES = { 'scheduled', nil, nil, 'retry', 'archived', 'completed' }
local TOMB = '\0mr'
local hint, tombs, deleted, woken = 0, 0, 0, false

-- It leaves the list when the script ends: until then places hold, and the list is walked once for all.
local function unlist(id)
  local place = place_near(id, hint)
  local ns = not place and since(id)
  if ns then
    place = place_near(id, place_beyond(function(other) return other >= ns end))
  end
  if place then
    call('LSET', P .. 'pending', -(place + 1), TOMB)
    hint, tombs = place, tombs + 1
  else
    call('LREM', P .. 'pending', -1, id)
  end
end

local function ungroup(id)
  local group = call('HGET', TASK .. id, 'group')
  if call('ZREM', P .. 'g:' .. (group or ''), id) == 0 then return false end
  note_group(group)
  count_members(-1)
  call('HDEL', TASK .. id, 'group')
  return true
end

-- Takes it from where it is; false: it is being made part of another task just now.
local function leave(id, number, score)
  if number == 7 then return ungroup(id) end
  if number == 2 and not score then
    unlist(id)
  else
    call('ZREM', P .. (NAMES[number] or 'scheduled'), id)
    call('ZREM', P .. 'mr:order', id)
    call('ZREM', P .. 'mr:due', id)
    call('ZREM', P .. 'mr:keep', id)
  end
  return true
end

-- The order time stays known, as everywhere where a task is not ready.
local function keep_times(id, number, score, ours)
  local created, ns = call('HGET', TASK .. id, 'mr:t'), since(id)
  if not created and ns then call('HSET', TASK .. id, 'mr:t', ns) end
  if number == 2 and score then ns = ns_of(tonumber(score)) end
  if number == 1 or number == 4 then
    local due_ms = ours and ceil_s(ours) == score and ours or (score or now_s) * 1000
    ns = ns_of(due_ms - (call('HGET', TASK .. id, 'mr:p') or 0))
  end
  if ns and ns ~= (created or ns) then call('HSET', TASK .. id, 'mr:o', ns) end
  call('HDEL', TASK .. id, 'pending_since')
end

local function archive(item, number, score, ours)
  local id = item.id
  if not leave(id, number, score) then return RUNNING end
  local lock, msg = unpack(call('HMGET', TASK .. id, 'unique_key', 'msg'))
  local message = message_read(msg)
  message.error = item.verb == '0' and 'cancelled' or 'archived by request'
  keep_times(id, number, score, ours)
  call('HSET', TASK .. id, 'msg', message_write(message))
  unlock(id, lock or message.unique_key)
  put_archived(id)
  return DONE
end

local function cancel_running(item)
  call('HSET', TASK .. item.id, 'mr:x', '2')
  tell(ARGV[1], item.id)
  return DONE
end

local function delete_running(item)
  call('HSET', TASK .. item.id, 'mr:x', '1')
  return RUNNING
end

local function delete(item, number, score)
  local id = item.id
  if not leave(id, number, score) then return RUNNING end
  local lock, msg = unpack(call('HMGET', TASK .. id, 'unique_key', 'msg'))
  unlock(id, lock or message_read(msg).unique_key)
  call('DEL', TASK .. id)
  tell_end(id)
  deleted = deleted + 1
  return DONE
end

-- In the archive it let go of its unique key. While its time is not over it takes it again, unless
-- somebody else has it.
local function lock_again(id, lock)
  local until_ms = tonumber(call('HGET', TASK .. id, 'mr:q') or 0)
  if not lock or until_ms <= now_ms then return true end
  return call('SET', lock, id, 'NX', 'PX', up_ms(until_ms - now_ms)) or call('GET', lock) == id
end

-- Its runs leave results (again), whoever ends them.
local function open_topic(id, due_ms)
  if call('HEXISTS', TASK .. id, 'mr:k') == 1 then open_topics({ up_ms(due_ms or now_ms), id }) end
end

local function run(item, number, score)
  local id, ns = item.id, now_us_text .. format('%03d', item.number)
  local lock, msg, priority = unpack(call('HMGET', TASK .. id, 'unique_key', 'msg', 'mr:p'))
  if number == 5 then
    local message = message_read(msg)
    if not lock_again(id, lock or message.unique_key) then return DUPLICATE end
    message.retried = 0
    call('HSET', TASK .. id, 'msg', message_write(message))
    call('HDEL', TASK .. id, 'mr:c', 'mr:x', 'mr:f', 'mr:v')
  end
  if not leave(id, number, score) then return RUNNING end
  if not call('HGET', TASK .. id, 'mr:t') then call('HSET', TASK .. id, 'mr:t', ns) end
  call('HDEL', TASK .. id, 'mr:o')
  put_ready(id, priority and ns_of(now_ms - tonumber(priority)) or ns, priority)
  open_topic(id)
  woken = true
  return DONE
end

-- As if it had been enqueued so: the time it has waited still counts.
local function prioritise(item, number)
  local id = item.id
  if number == 2 then
    local created = call('HGET', TASK .. id, 'mr:t') or since(id) or now_ns
    if not call('ZSCORE', P .. 'mr:order', id) then unlist(id) end
    call('HSET', TASK .. id, 'mr:t', created)
    put_in_order(id, ms_of(created) - item.value)
    woken = true
  end
  if item.value == 0 then
    call('HDEL', TASK .. id, 'mr:p')
  else
    call('HSET', TASK .. id, 'mr:p', format('%.0f', item.value))
  end
  return DONE
end

-- It goes on elsewhere. A trace of it stays for a day: who asks is told, and its id stays taken.
local MOVED_KEPT_MS = 24 * 3600 * 1000

local function moved(item, number, score, ours)
  local id, until_ms = item.id, math.ceil(now_ms + MOVED_KEPT_MS)
  if not leave(id, number, score) then return RUNNING end
  local lock, msg = unpack(call('HMGET', TASK .. id, 'unique_key', 'msg'))
  local message = message_read(msg)
  message.error, message.completed_s = 'moved to ' .. item.text, now_s
  if number ~= 5 and number ~= 6 then keep_times(id, number, score, ours) end
  call('HSET', TASK .. id, 'msg', message_write(message), 'state', 'completed', 'mr:f', format('%.0f', floor(now_ms)))
  call('HDEL', TASK .. id, 'result', 'mr:x', 'mr:q')
  call('ZADD', P .. 'completed', ceil_s(until_ms), id)
  call('ZADD', P .. 'mr:keep', format('%.0f', until_ms), id)
  unlock(id, lock or message.unique_key)
  tell_end(id)
  call('ZREM', P .. 'mr:open', id)
  count('moved', 1)
  return DONE
end

-- A held task takes its place.
local function release(id)
  local state, at, order, created, priority, ended, group =
    unpack(call('HMGET', TASK .. id, 'mr:h', 'mr:w', 'mr:o', 'mr:t', 'mr:p', 'mr:f', 'group'))
  call('ZREM', P .. 'mr:held', id)
  call('HDEL', TASK .. id, 'mr:h', 'mr:w', 'mr:e')
  if state == 'scheduled' or state == 'retry' then
    put_due(id, state, tonumber(at or now_ms))
    open_topic(id, tonumber(at or now_ms))
  elseif state == 'aggregating' and group then
    put_in_group(id, group)
    open_topic(id)
  elseif state == 'archived' or state == 'completed' then
    call('HSET', TASK .. id, 'state', state)
    call('ZADD', P .. state, ceil_s(at or floor((ended or now_ms) / 1000) * 1000), id)
    if state == 'completed' then call('ZADD', P .. 'mr:keep', at or up_ms(now_ms), id) end
  else
    call('HDEL', TASK .. id, 'mr:o')
    put_ready(id, order or created or now_ns, priority)
    open_topic(id)
  end
  woken = true
  return DONE
end

-- Somebody may still take it back to where it came from.
local function act_on_held(item)
  if item.verb == '6' then return release(item.id) end
  if item.verb ~= '1' then return REFUSED end
  local lock = call('HGET', TASK .. item.id, 'unique_key')
  unlock(item.id, lock)
  call('ZREM', P .. 'mr:held', item.id)
  call('DEL', TASK .. item.id)
  tell_end(item.id)
  deleted = deleted + 1
  return DONE
end

local function running() return RUNNING end

local WORDS = { ['0'] = 'cancel', ['1'] = 'cancel', ['2'] = 'run', ['3'] = 'archive', ['4'] = 'prioritise' }

-- Who wants to delete one that runs has cancelled it.
local function carried_out(verb, number, code)
  return verb ~= '1' and code == DONE or verb == '1' and number == 3
end

-- By verb, then by the number of the state; where there is none: not in this state.
local ACTS = {
  ['0'] = { archive, archive, cancel_running, archive, nil, nil, archive },
  ['1'] = { delete, delete, delete_running, delete, delete, delete, delete },
  ['2'] = { run, nil, running, run, run, nil, run },
  ['3'] = { archive, archive, running, archive, nil, nil, archive },
  ['4'] = { prioritise, prioritise, running, prioritise },
  ['5'] = { moved, moved, running, moved, moved, moved, moved },
  ['6'] = {},
}

begin_when_full()
local out, checked = {}, false
for i = 2, #ARGV, 3 do
  local item = { verb = ARGV[i], id = ARGV[i + 1], value = tonumber(ARGV[i + 2]), text = ARGV[i + 2],
    number = (i - 2) / 3 }
  local state = ask('HGET', TASK .. item.id, 'state')
  if state and not checked then
    check_places()
    checked = true
  end
  if state == 'held' then
    out[#out + 1] = act_on_held(item)
  elseif state then
    local number, score, ours = standing(item.id, state)
    local act = ACTS[item.verb][number]
    local code = act and act(item, number, score, ours) or REFUSED
    if WORDS[item.verb] and carried_out(item.verb, number, code) then note_past(item.id, WORDS[item.verb], '') end
    out[#out + 1] = code
  else
    out[#out + 1] = NONE
  end
end
if tombs > 0 then call('LREM', P .. 'pending', 0, TOMB) end
if deleted > 0 then count('deleted', deleted) end
if woken then wake() end
return out
