-- SPDX-License-Identifier: Apache-2.0
-- The days of a queue on which a run ended, newest first.
-- KEYS: 1 the queue
-- ARGV: 1 how many at most
-- Returns: per day: its number since 1970, processed, failed.
local DAYS = 90
local out, keys = {}, {}
for day = 0, DAYS - 1 do
  local name = day_of(now_s - day * 86400)
  keys[#keys + 1] = P .. 'processed:' .. name
  keys[#keys + 1] = P .. 'failed:' .. name
end
local values = call('MGET', unpack(keys))
for day = 0, DAYS - 1 do
  local processed, failed = values[2 * day + 1], values[2 * day + 2]
  if (processed or failed) and #out < 3 * tonumber(ARGV[1]) then
    out[#out + 1] = floor(now_s / 86400) - day
    out[#out + 1] = tonumber(processed or 0)
    out[#out + 1] = tonumber(failed or 0)
  end
end
return out
