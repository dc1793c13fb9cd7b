-- Takes the next request of a slot out of a shared queue, and returns what is new.
--
-- The processes at work are a sorted set, by the time (in milliseconds) at which each
-- is forgotten.
--
-- KEYS: the queue, its slots, the processes at work, the ends; to pop, also the requests
--       of a slot.
-- ARGV: process, whether it is at work, for how long that is believed; the place up to
--       which new slots are known, how many of them to return, the slot to pop from;
--       then slots that may have become empty.
-- Returns: the request, how many are left in its slot, size and place of the queue, new
--          slots with their places, those that have become empty, how many others are
--          at work, in how many milliseconds the next request goes to the front (-1 for
--          none), how many of those left in the slot fail.
local most_ended = 100

-- Ignore what another program has put there.
local function read(packed)
  local sound, entry = pcall(cmsgpack.unpack, packed)
  if not sound or type(entry) ~= 'table' then
    return nil
  end
  for n = 1, 6 do
    if type(entry[n]) ~= 'string' then
      return nil
    end
  end
  return entry
end

local ended = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now, 'LIMIT', 0, most_ended)
for _, packed in ipairs(ended) do
  redis.call('ZREM', KEYS[4], packed)
  local entry = read(packed)
  if entry then
    local requests, slot, rank, written, body, where = unpack(entry)
    -- Unless it was popped meanwhile.
    local stays = where ~= 'held'
    if not stays or redis.call('ZREM', requests, written .. body) == 1 then
      if stays then
        count_failing(KEYS[1], slot, written, -1)
      end
      local place = next_place(KEYS[1])
      local fails = string.sub(written, 1, 1) == '-'
      local member = in_front(place, fails) .. body
      add(KEYS[1], KEYS[2], requests, slot, rank, member, place)
    end
  end
end
local popped, left, failing = false, 0, 0
if KEYS[5] then
  popped = redis.call('ZPOPMIN', KEYS[5])[1] or false
  left = redis.call('ZCARD', KEYS[5])
  if left == 0 then
    redis.call('ZREM', KEYS[2], ARGV[6])
  end
  if popped then
    count_failing(KEYS[1], ARGV[6], popped, -1)
    popped = string.sub(popped, 17)
    redis.call('HINCRBY', KEYS[1], 'size', -1)
  end
  failing = tonumber(redis.call('HGET', KEYS[1], 'failing:' .. ARGV[6])) or 0
  if failing <= 0 or left == 0 then
    redis.call('HDEL', KEYS[1], 'failing:' .. ARGV[6])
  end
end
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
  redis.call('DEL', KEYS[1], KEYS[4])
end
local next_end = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')[2]
local news = redis.call(
  'ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[4], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[5]
)
local gone = {}
for n = 7, #ARGV do
  if not redis.call('ZSCORE', KEYS[2], ARGV[n]) then
    gone[#gone + 1] = ARGV[n]
  end
end
local ends_in = tonumber(next_end or '')
ends_in = ends_in and math.ceil(math.max(0, math.min(ends_in - now, 1e9))) or -1
local place = tonumber(state[2]) or 0
return {popped, left, size, place, news, gone, others, ends_in, failing}
