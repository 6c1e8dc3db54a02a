-- SPDX-License-Identifier: Apache-2.0
-- Names what lives for some seconds in a set of such.
-- KEYS[1]  key of the set
-- ARGV     member, seconds (0: it is gone)
if ARGV[2] == '0' then return call('ZREM', KEYS[1], ARGV[1]) end
return call('ZADD', KEYS[1], now_s + tonumber(ARGV[2]), ARGV[1])
