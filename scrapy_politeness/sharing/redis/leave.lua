-- A process ends, or has nothing more to do with this budget: its seat is free.
--
-- KEYS: record and set of the budget.
-- ARGV: process.
local seat = redis.call('HGET', KEYS[1], 'p' .. ARGV[1])
if seat then
  leave(KEYS[1], KEYS[2], known(seat) .. ':' .. ARGV[1])
  count_seats(KEYS[1], KEYS[2])
end
return now
