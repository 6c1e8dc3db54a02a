-- SPDX-License-Identifier: Apache-2.0
-- Names in a sorted set what lives until some time.
-- KEYS[1]  the set
-- ARGV     the member, its score (0: it is gone); 1: whoever died without a word is forgotten
call('ZREM', KEYS[1], ARGV[1]) -- first: see begin_when_full
if ARGV[3] == '1' then call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_s - 1) end
if ARGV[2] ~= '0' then call('ZADD', KEYS[1], ARGV[2], ARGV[1]) end
return 0
