-- Deletes slots of a shared queue with all of their requests.
--
-- KEYS: the queue, its slots, the requests of each slot.
-- ARGV: the slots.
for n, slot in ipairs(ARGV) do
  redis.call('HINCRBY', KEYS[1], 'size', -redis.call('ZCARD', KEYS[n + 2]))
  redis.call('DEL', KEYS[n + 2])
  redis.call('ZREM', KEYS[2], slot)
end
if redis.call('ZCARD', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
end
