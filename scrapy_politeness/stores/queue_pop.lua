-- Takes the next request of a slot out of a shared queue, and tells what is new there.
--
-- KEYS: the queue, its slots; to pop, also the requests of a slot.
-- ARGV: the place up to which new slots are known, how many of them to tell, the slot
--       to pop from; then slots of which is asked whether they have requests still.
-- Returns: the request, how many are left in its slot, size and place of the queue,
--          new slots and where each stands, slots that have no requests any more.
local popped, left = false, 0
if KEYS[3] then
  popped = redis.call('ZPOPMIN', KEYS[3])[1] or false
  left = redis.call('ZCARD', KEYS[3])
  if left == 0 then
    redis.call('ZREM', KEYS[2], ARGV[3])
  end
  if popped then
    popped = string.sub(popped, 17)
    redis.call('HINCRBY', KEYS[1], 'size', -1)
  end
end
local state = redis.call('HMGET', KEYS[1], 'size', 'place')
local size = tonumber(state[1]) or 0
if size <= 0 then
  redis.call('DEL', KEYS[1])
end
local news = redis.call(
  'ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2]
)
local gone = {}
for n = 4, #ARGV do
  if not redis.call('ZSCORE', KEYS[2], ARGV[n]) then
    gone[#gone + 1] = ARGV[n]
  end
end
return {popped, left, size, tonumber(state[2]) or 0, news, gone}
