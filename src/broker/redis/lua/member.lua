-- SPDX-License-Identifier: Apache-2.0
-- Names in a sorted set what lives until some time.
-- KEYS[1]  the set
-- ARGV     the member, its score (0: it is gone)
call('ZREM', KEYS[1], ARGV[1]) -- first: see begin_when_full
if ARGV[2] ~= '0' then call('ZADD', KEYS[1], ARGV[2], ARGV[1]) end
return 0
