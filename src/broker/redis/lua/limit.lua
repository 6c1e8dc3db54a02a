-- SPDX-License-Identifier: Apache-2.0
-- Limits of what a queue hands out; it stands behind common.lua. What belongs to a permit (of the queue, of one type, of
-- one key) stands in the slot of the first partition, whose prefix is L; what belongs to the tasks of a partition in
-- its own. W names a permit: 'q', 't:TYPE' or 'k:KEY'. A track is what waits behind the same permits of type and
-- key: tasks that a take has passed over, in their order. They are in mr:order as well, behind all others (PARKED), so
-- that they are pending for whoever looks.
--   mr:limits    hash: '@' L; W, or 't:*' and 'k:*' for each, "RATE RATE_MS SPAN_US CONCURRENCY SINCE"; SINCE is when
--                there was no rate before, us
--   L mr:l:a:W   zset: key of the task -> epoch, of what is in hand where concurrency is limited
--   L mr:l:r:W   list: when the last were handed out, us
--   L mr:l:f     hash: W, or 't:*', 'k:*' -> SINCE
--   L mr:l:w:W   zset: prefix and track -> time of its first task, of what this permit keeps back
--   L mr:l:t     zset: W -> when its rate lets the next one go, ms
--   L mr:l:p     set: prefixes of the partitions
--   mr:l:z:TRACK zset: order time in ns and id of its tasks, by name
--   mr:l:y       zset: track -> time of its first task, of those that may be taken from
--   mr:l:s       zset: track -> when it was last looked at
--   mr:l:g       string: limits were changed then, ms; what was last looked at before may stand in a wrong place
-- All of it is made by one function, since most queues have none and it would be made with every call.
local function open_limits()
  local gmatch, match = string.gmatch, string.match
  local rules, L, now_us = {}, nil, tonumber(now_us_text)
  local typed = false -- some of them are of types
  local NS = 20 -- digits

  local function read_limits()
    local flat, n = call('HGETALL', P .. 'mr:limits'), 0
    for i = 1, #flat, 2 do
      if flat[i] == '@' then
        L = flat[i + 1]
      else
        local rate, ms, span, most, from = match(flat[i + 1], '^(%d+) (%d+) (%d+) (%d+) ?(%d*)$')
        typed = typed or sub(flat[i], 1, 2) == 't:'
        rules[flat[i]] = { rate = tonumber(rate), rate_ms = ms, span = tonumber(span), most = tonumber(most),
          from = tonumber(from) or 0 }
        n = n + 1
      end
    end
    return n
  end

  local function rule_of(w)
    return rules[w] or rules[sub(w, 1, 2) .. '*']
  end

  -- What was in hand and is so no longer, though nobody has said so: another program has ended it. Looked for once a
  -- second at most.
  local function forget_gone(w)
    if not call('SET', L .. 'mr:l:v:' .. w, '1', 'PX', 1000, 'NX') then return end
    local entries = call('ZRANGE', L .. 'mr:l:a:' .. w, 0, -1, 'WITHSCORES')
    for i = 1, #entries, 2 do
      local hash = ask('HMGET', entries[i], 'state', 'mr:i')
      if hash[1] ~= 'active' or tonumber(hold_of(hash[2]) or 0) ~= tonumber(entries[i + 1]) then
        call('ZREM', L .. 'mr:l:a:' .. w, entries[i])
      end
    end
  end

  -- When its rate lets the next one go, ms; nil: now.
  local function rate_until(w, rule)
    if rule.rate == 0 then return nil end
    local last = call('LINDEX', L .. 'mr:l:r:' .. w, -rule.rate)
    local at = last and tonumber(last) >= rule.from and tonumber(last) + rule.span
    return at and at > now_us and math.ceil(at / 1000) or nil
  end

  local blocked = {} -- permits of which that is known, and until when (false: not known): one call frees none

  -- Whether nothing may be handed out under it now; and when its rate lets the next one go, if that is known.
  local function is_blocked(w, rule)
    local held = L .. 'mr:l:a:' .. w
    if blocked[w] ~= nil then return true, blocked[w] or nil end
    if rule.most > 0 and call('ZCARD', held) >= rule.most then
      forget_gone(w)
      if call('ZCARD', held) >= rule.most then
        blocked[w] = false
        return true
      end
    end
    blocked[w] = rate_until(w, rule)
    return blocked[w] ~= nil, blocked[w]
  end

  -- The permits of a task beside the queue's, as a track is named.
  local function track_of(message, key)
    local kind = typed and message_read(message).type
    local t, k = kind and 't:' .. kind or '', key and key ~= '' and 'k:' .. key or ''
    return (t ~= '' and rule_of(t) and t or '') .. '\n' .. (k ~= '' and rule_of(k) and k or '')
  end

  local function blocked_by(track)
    for w in gmatch(track, '[^\n]+') do
      local rule = rule_of(w)
      local is, at = false, nil
      if rule then is, at = is_blocked(w, rule) end
      if is then return w, at end
    end
  end

  local function first_of(track)
    local first = call('ZRANGE', P .. 'mr:l:z:' .. track, 0, 0)[1]
    return first, first and ms_of(sub(first, 1, NS))
  end

  -- Where the track stands: among those that may be taken from, or at the permit that keeps it back. True: it was
  -- the one that may be taken from, and is so no longer.
  local function track_stands(track, w, at)
    local _, ms = first_of(track)
    if ms then call('ZADD', P .. 'mr:l:s', 'NX', format('%.0f', now_ms), track) else call('ZREM', P .. 'mr:l:s', track) end
    if ms and not w then
      call('ZADD', P .. 'mr:l:y', format('%.17g', ms), track)
      return false
    end
    if ms then call('ZADD', L .. 'mr:l:w:' .. w, format('%.17g', ms), P .. '\n' .. track) end
    if ms and at then call('ZADD', L .. 'mr:l:t', at, w) end
    return call('ZREM', P .. 'mr:l:y', track) == 1
  end

  -- The first of those that wait at the permit may go, if it is free: that is looked at when its turn comes.
  local function settle(w)
    local top = call('ZPOPMIN', L .. 'mr:l:w:' .. w)
    if not top[1] then return end
    local prefix, track = match(top[1], '^([^\n]*)\n(.*)$')
    call('ZADD', prefix .. 'mr:l:y', top[2], track)
    if prefix ~= P then tell(prefix .. 'mr:wake', '1') end
  end

  -- The track stood for others that wait at its permits, and does not go on: so the next ones may, where that is free.
  local function hand_on(track)
    for w in gmatch(track, '[^\n]+') do
      local rule = rule_of(w)
      if rule and not is_blocked(w, rule) then settle(w) end
    end
  end

  -- Where it stands now that nothing of it was taken.
  local function stand(track)
    if track_stands(track, blocked_by(track)) then hand_on(track) end
  end

  -- Tasks, each with id, ns and track, that stand in no container, or at their time in mr:order.
  local function park(tasks)
    local order, ready, tracks = {}, {}, {}
    for i, task in ipairs(tasks) do
      local entries = tracks[task.track] or {}
      call('HSET', TASK .. task.id, 'state', 'scheduled')
      call('HDEL', TASK .. task.id, 'pending_since')
      order[2 * i - 1], order[2 * i] = format('%.17g', PARKED + floor(ms_of(task.ns))), task.id -- as it is shown
      ready[2 * i - 1], ready[2 * i] = READY_SCORE, task.id
      entries[#entries + 1], entries[#entries + 2] = 0, string.rep('0', NS - #task.ns) .. task.ns .. task.id
      tracks[task.track] = entries
    end
    call('ZADD', P .. 'scheduled', unpack(ready))
    call('ZADD', P .. 'mr:order', unpack(order))
    for track, entries in pairs(tracks) do
      call('ZADD', P .. 'mr:l:z:' .. track, unpack(entries))
      stand(track)
    end
  end

  -- Of a task under this epoch, with its track: what it takes of its permits. Answers what is to be given back.
  local function take_permits(id, track, epoch)
    local held = {}
    for w in gmatch('q\n' .. track, '[^\n]+') do
      local rule = rule_of(w)
      if rule and rule.most > 0 then
        call('ZADD', L .. 'mr:l:a:' .. w, format('%d', epoch), TASK .. id)
        held[#held + 1] = w
      end
      if rule and rule.rate > 0 then
        local key = L .. 'mr:l:r:' .. w
        call('RPUSH', key, now_us_text)
        call('LTRIM', key, -rule.rate, -1)
        call('PEXPIRE', key, math.ceil(rule.span / 1000) + 1000)
      end
    end
    if #held > 0 then call('HSET', TASK .. id, 'mr:w', L .. '\n' .. table.concat(held, '\n')) end
  end

  local n = read_limits()
  return { n = n, rules = rules, prefix = L, rule_of = rule_of, rate_until = rate_until, is_blocked = is_blocked,
    track_of = track_of, blocked_by = blocked_by, first_of = first_of, track_stands = track_stands, stand = stand,
    settle = settle, hand_on = hand_on, park = park, take_permits = take_permits, digits = NS }
end
