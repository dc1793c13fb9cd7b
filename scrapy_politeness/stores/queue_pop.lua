-- Takes the next request of a slot out of a shared queue, and tells what is new there.
--
-- Beside the queue there is a sorted set of the processes at work, by when (in
-- milliseconds) each is forgotten.
--
-- KEYS: the queue, its slots, who is at work; to pop, also the requests of a slot.
-- ARGV: process, whether it is at work, for how long that is believed; the place up to
--       which new slots are known, how many of them to tell, the slot to pop from; then
--       slots of which is asked whether they have requests still.
-- Returns: the request, how many are left in its slot, size and place of the queue,
--          new slots and where each stands, slots that have no requests any more, how
--          many others are at work.
local popped, left = false, 0
if KEYS[4] then
  popped = redis.call('ZPOPMIN', KEYS[4])[1] or false
  left = redis.call('ZCARD', KEYS[4])
  if left == 0 then
    redis.call('ZREM', KEYS[2], ARGV[6])
  end
  if popped then
    popped = string.sub(popped, 17)
    redis.call('HINCRBY', KEYS[1], 'size', -1)
  end
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
local others = redis.call('ZCARD', KEYS[3])
if popped or ARGV[2] == '1' then
  redis.call('ZADD', KEYS[3], now + ARGV[3], ARGV[1])
  redis.call('PEXPIRE', KEYS[3], ARGV[3])
end
local state = redis.call('HMGET', KEYS[1], 'size', 'place')
local size = tonumber(state[1]) or 0
if size <= 0 then
  redis.call('DEL', KEYS[1])
end
local news = redis.call(
  'ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[4], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[5]
)
local gone = {}
for n = 7, #ARGV do
  if not redis.call('ZSCORE', KEYS[2], ARGV[n]) then
    gone[#gone + 1] = ARGV[n]
  end
end
return {popped, left, size, tonumber(state[2]) or 0, news, gone, others}
