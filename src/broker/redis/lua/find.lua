-- SPDX-License-Identifier: Apache-2.0
-- Which tasks are there.
-- KEYS[1]  prefix of the queue
-- ARGV     ids
-- Returns  for each the state that is shown, '' where there is none
local answer = {}
for i = 1, #ARGV do
  local state = ask('HGET', TASK .. ARGV[i], 'state')
  answer[i] = state and shown_state(ARGV[i], state) or ''
end
return answer
