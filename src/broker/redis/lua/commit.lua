-- SPDX-License-Identifier: Apache-2.0
-- Takes results away for good, or gives them back. One whose lease is over counts as held until somebody else has
-- got it.
-- KEYS[1]  prefix of the queue whose tasks left them
-- ARGV     the topic ('': any), then for each: id, epoch, outcome (0 commit, 3 hand back)
-- Returns  for each: 0 carried out, 1 it is another's, 2 there is no such result
local home, DONE = P, '0'
local answer, touched, backs = {}, {}, {}

local function enter(topic)
  P = home .. 'mr:r:[' .. topic .. ']:'
  TASK = P .. 't:'
end

local topics = ARGV[1] ~= '' and { ARGV[1] } or call('SMEMBERS', home .. 'mr:topics')

-- Enters the place where it is.
local function find(id)
  for _, topic in ipairs(topics) do
    enter(topic)
    if call('EXISTS', TASK .. id) == 1 then return topic end
  end
  return nil
end

local function leave_hand(id)
  call('LREM', P .. 'active', -1, id)
  call('ZREM', P .. 'lease', id)
end

local function finish(id, epoch, outcome)
  local topic = find(id)
  if not topic then return 2 end
  local state, last, order, created, hold = unpack(ask('HMGET', TASK .. id, 'state', 'mr:e', 'mr:o', 'mr:t', 'mr:i'))
  local held = hold_of(hold) or last
  if held ~= epoch or state ~= 'active' and outcome ~= DONE then return 1 end
  touched[topic] = true
  if state == 'active' then leave_hand(id) else take_out(id, state) end
  if outcome == DONE then
    call('DEL', TASK .. id)
  else
    call('HDEL', TASK .. id, 'mr:i')
    call('HSET', TASK .. id, 'mr:e', epoch)
    backs[topic] = backs[topic] or {}
    table.insert(backs[topic], { id = id, order = order or created or now_ns, epoch = epoch })
  end
  return 0
end

-- Nothing is left of a topic that has no results.
local function tidy(topic)
  if call('EXISTS', P .. 'pending', P .. 'active', P .. 'scheduled') > 0 then return end
  call('DEL', P .. 'mr:epoch', P .. 'mr:last', P .. 'mr:order', P .. 'lease', P .. 'mr:lease')
  call('SREM', home .. 'mr:topics', topic)
end

begin_when_full()
for i = 2, #ARGV, 3 do
  answer[#answer + 1] = finish(ARGV[i], ARGV[i + 1], ARGV[i + 2])
end
for topic in pairs(touched) do
  enter(topic)
  if backs[topic] then
    put_ready_all(backs[topic])
    wake()
  end
  tidy(topic)
end
return answer
