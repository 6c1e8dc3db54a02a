-- SPDX-License-Identifier: Apache-2.0
-- Leaves results for runs that other programs ended, as far as their tasks still tell, and says which topics have
-- results. Every task with a topic that has not ended, as far as we know, is in mr:open: so what other programs left is
-- found where ends of runs are put, `completed`, `archived` and `retry`, by its being there, too. What they have put
-- somewhere else since, or what stands behind too many, is found by a walk through mr:open, a part each time.
--
-- Nothing is looked at unless somebody else ended runs. How many did is known: Asynq counts all in `processed`, and we
-- count ours in mr:ran as well, where tasks have topics (if one of us does not know that yet, there is a look
-- too many). mr:looked is how far all masters together are: "ENDS LEFT FRESH MOVED AT SINCE SCORE ID",
--   ENDS   so many runs of others had ended at the last look
--   LEFT   so many of them may have left something that was not found yet: 0 if all is known
--   FRESH  1: the ends are to be looked at again, since there were some
--   MOVED  1: others ended something since the walk began
--   AT     when that look was, ms; 0: there was so much that the next one need not wait
--   SINCE  when all was known the last time, s: what is found later ended later
--   SCORE, ID  entry of mr:open up to which the walk has come
--
-- KEYS[1]  prefix of the queue
-- ARGV     1: a master opens, and does not wait for the next look
-- Returns  how many were found that had left something, then the topics
local PART, MUCH = 200, 50
local ENDS_MAX, PAGE = 10000, 1000 -- that are looked for in mr:open
local SLACK_S = 60 -- their times are those of other machines
local KEPT_S = 30 * 86400 -- by Asynq, at least: see the engine's message.c
local LOOK_MS = 900 -- by one of all masters; those wake every second
local ALL = 1e9
local LOOKED = P .. 'mr:looked'
local found = 0

local function read(id)
  local hash = ask('HMGET', TASK .. id, 'state', 'msg', 'mr:k', 'mr:v', 'mr:c', 'mr:x', 'mr:r', 'result', 'unique_key',
    'mr:f')
  if not hash[1] or not hash[2] or not hash[3] then return nil end
  local task = message_read(hash[2])
  task.state, task.topic, task.mark, task.cancel, task.result = hash[1], hash[3], hash[4], hash[6], hash[8] or ''
  task.seen, task.ours_ms, task.id = task.mark, hash[10], id
  task.crashes, task.lock = tonumber(hash[5] or 0), hash[9] or task.unique_key
  task.retention_ms = tonumber(hash[7] or task.retention * 1000)
  return task
end

-- Asynq kept it so that this could be seen: it goes on as its own retention says.
local function keep_no_longer(id, task)
  local until_ms = (task.ended_s or now_s) * 1000 + task.retention_ms
  call('ZREM', P .. 'mr:keep', id)
  if until_ms <= now_ms then
    call('ZREM', P .. 'completed', id)
    unlock(id, task.lock)
    drop_done(id, task.result)
    return
  end
  call('ZADD', P .. 'completed', ceil_s(until_ms), id)
  call('ZADD', P .. 'mr:keep', format('%d', until_ms), id)
end

local ENDS = {}

function ENDS.completed(id, task)
  leave_result({ id = id, run = format('done:%d', task.ended_s or 0), topic = task.topic, type = task.type,
    outcome = OK, attempt = 1 + task.retried + task.crashes, final = true, cancel = task.cancel, text = task.result,
    ended_ms = task.ended_s and task.ended_s * 1000 })
  close_topic(id)
  keep_no_longer(id, task)
  return true
end

-- By a run, which failed in that very second, or by a person.
function ENDS.archived(id, task)
  local at_s = tonumber(call('ZSCORE', P .. 'archived', id) or 0)
  local by_us = task.ours_ms and floor(task.ours_ms / 1000) == at_s
  local by_run = at_s == task.failed_s and task.seen ~= failure_mark(task) and not by_us
  if by_run then
    leave_failure(id, task, 1 + task.retried + task.crashes, true, task.error or '')
    note_failure(id, task)
  end
  close_topic(id)
  return by_run
end

local function wait_until_due(id, task)
  local due_s = tonumber(call('ZSCORE', P .. task.state, id) or 0)
  if due_s > now_s then call('ZADD', OPEN, 'XX', due_s * 1000, id) end
end
ENDS.retry, ENDS.scheduled = wait_until_due, wait_until_due

local function check(task)
  local id, act = task.id, ENDS[task.state]
  leave_missed(id, task, task.state ~= 'archived' and task.error or nil)
  local ended = act and act(id, task)
  if ended or task.seen ~= task.mark then found = found + 1 end
end

local tasks, chosen = {}, {}

local function collect(ids)
  for _, id in ipairs(ids) do
    local task = not chosen[id] and read(id)
    if task then
      task.number, tasks[#tasks + 1], chosen[id] = #tasks, task, true
    elseif not chosen[id] then
      close_topic(id)
    end
  end
end

local function by_end(a, b)
  local x, y = a.ended_s or a.failed_s or 0, b.ended_s or b.failed_s or 0
  if x ~= y then return x < y end
  return a.number < b.number
end

-- ---- how far it is

local walk = { ends = 0, left = 0, fresh = 0, moved = 0, at = 1, since = 0, score = '-', id = '' }

local function walk_read()
  local text = call('GET', LOOKED)
  local ends, left, fresh, moved, at, since, score, id =
    string.match(text or '', '^(%-?%d+) (%d+) (%d) (%d) (%d+) (%d+) (%S+) (.*)$')
  if not ends then return end
  walk = { ends = tonumber(ends), left = tonumber(left), fresh = tonumber(fresh), moved = tonumber(moved),
    at = tonumber(at), since = tonumber(since), score = score, id = id }
end

local function walk_write()
  call('SET', LOOKED, format('%d %d %d %d %d %d %s %s', walk.ends, walk.left, walk.fresh, walk.moved, walk.at,
    walk.since, walk.score, walk.id))
end

-- Others have ended runs since. Behind those that may have been ended before the walk came to them it goes on; then once
-- more.
local function walk_moves(ends)
  if walk.left > 0 then walk.moved = 1 else walk.score, walk.id, walk.moved = '-', '', 0 end
  walk.left = math.min(ALL, ends > walk.ends and walk.left + ends - walk.ends or ALL)
  walk.ends, walk.fresh = ends, 1
end

-- The number of the entry where it goes on. Others come and go meanwhile: if the last one is gone, too, it goes on with
-- those of its time.
local function walk_from()
  if walk.score == '-' then return 0 end
  if call('ZSCORE', OPEN, walk.id) == walk.score then return call('ZRANK', OPEN, walk.id) + 1 end
  return call('ZCOUNT', OPEN, '-inf', '(' .. walk.score)
end

-- The next ones; true: there are no more.
local function walk_part()
  local from, ids = walk_from(), {}
  local part = call('ZRANGE', OPEN, from, from + PART - 1, 'WITHSCORES')
  for i = 1, #part, 2 do ids[#ids + 1] = part[i] end
  if #ids > 0 then walk.id, walk.score = part[#part - 1], part[#part] end
  collect(ids)
  return #ids < PART
end

-- Of the ends since then those that nobody has seen, the oldest first. One that waits in retry was seen if mr:open has it
-- at the time when it is due.
local function collect_fresh(name, later_s)
  local from, fresh = format('%d', walk.since - SLACK_S + later_s), {}
  for offset = 0, ENDS_MAX - 1, PAGE do
    local ends, ids = call('ZRANGEBYSCORE', P .. name, from, '+inf', 'WITHSCORES', 'LIMIT', offset, PAGE), {}
    for i = 1, #ends, 2 do ids[#ids + 1] = ends[i] end
    for i, open in ipairs(#ids > 0 and call('ZMSCORE', OPEN, unpack(ids)) or {}) do
      local is_seen = name == 'retry' and tonumber(open or 0) == ends[2 * i] * 1000
      if open and not is_seen and #fresh < PART then fresh[#fresh + 1] = ids[i] end
    end
    if #fresh == PART or #ids < PAGE then break end
  end
  collect(fresh)
end

local function look()
  if walk.fresh == 1 then
    collect_fresh('completed', KEPT_S)
    collect_fresh('archived', 0)
    collect_fresh('retry', 0)
  end
  local over = walk.at > 0 and walk_part() -- else there is enough to do
  table.sort(tasks, by_end)
  for _, task in ipairs(tasks) do check(task) end
  walk.left = math.max(0, walk.left - found)
  walk.at, walk.fresh = found >= MUCH and 0 or floor(now_ms), found > 0 and 1 or 0
  if over and (walk.moved == 1 or walk.fresh == 1) then
    walk.score, walk.id, walk.moved = '-', '', 0
  elseif over then
    walk.left = 0
  end
  if walk.left == 0 then walk.since = now_s end
end

walk_read()
local ends = tonumber(call('GET', P .. 'processed') or 0) - tonumber(call('GET', P .. 'mr:ran') or 0)
local early = ARGV[1] ~= '1' and now_ms >= walk.at and now_ms - walk.at < LOOK_MS
if not early and (ends ~= walk.ends or walk.left > 0) then
  begin_when_full()
  if ends ~= walk.ends then walk_moves(ends) end
  look()
  walk_write()
end
local answer = { found }
for _, topic in ipairs(call('SMEMBERS', TOPICS)) do answer[#answer + 1] = topic end
return answer
