-- Adds a request to a slot of a shared queue.
--
-- The queue is a hash: size, the number of requests; place, the number that the last
-- one got. Its slots are a sorted set, by the place of the request that made each
-- non-empty: who has seen all up to one place need ask only for what is new. The
-- requests of a slot are a sorted set, too, and carry their place in front.
--
-- KEYS: the queue, its slots, the requests of the slot.
-- ARGV: slot, rank, request.
local clock = redis.call('TIME')
local last = tonumber(redis.call('HGET', KEYS[1], 'place')) or 0
-- By the clock, so that places go on rising when all else was deleted.
local place = math.max(last + 1, clock[1] * 1000000 + clock[2])
local written = string.format('%016.0f', place)
redis.call('HSET', KEYS[1], 'place', written)
redis.call('ZADD', KEYS[3], ARGV[2], written .. ARGV[3])
local waiting = redis.call('ZCARD', KEYS[3])
if waiting == 1 then
  redis.call('ZADD', KEYS[2], written, ARGV[1])
end
return {waiting, redis.call('HINCRBY', KEYS[1], 'size', 1)}
