-- SPDX-License-Identifier: Apache-2.0
-- The entries of a scheduler, as Asynq's show theirs: those before are replaced.
-- KEYS[1]  the list of them
-- ARGV     seconds that it lives (0: it is gone), then the entries
call('DEL', KEYS[1]) -- first: see begin_when_full
if ARGV[1] == '0' or #ARGV == 1 then return 0 end
for i = 2, #ARGV do call('LPUSH', KEYS[1], ARGV[i]) end
call('EXPIRE', KEYS[1], ARGV[1])
return 0
