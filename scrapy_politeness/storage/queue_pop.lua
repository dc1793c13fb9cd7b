-- Takes the next request of a slot out of a shared queue, and returns what is new.
--
-- The processes at work are a sorted set, by the time (in milliseconds) at which each
-- is taken for dead; what it had popped then goes to the front again.
--
-- KEYS: the queue, its slots, the processes at work, the ends, what this process has
--       popped, the number of its last call, whether any process was heard of lately;
--       to pop, also the requests of a slot.
-- ARGV: process, whether it is at work, for how long that is believed, the number of
--       this call; the place up to which new slots are known, how many of them to
--       return, the slot to pop from; how many requests are done, and how many popped
--       ones never arrived; the numbers of these; then slots that may have become
--       empty.
-- Returns: the request, how many are left in its slot, size and place of the queue, new
--          slots with their places, those that have become empty, how many others are
--          at work, in how many milliseconds the next request goes to the front (-1 for
--          none), how many of those left in the slot fail.
local most_ended, most_dead = 100, 10
local heard_ms = 3000
local process, period = ARGV[1], ARGV[3]
local first_unsure = 10 + ARGV[8]
local first_doubtful = first_unsure + ARGV[9]
if is_repeated(KEYS[6], ARGV[4]) then
  -- The first answer was lost, and the client has called again by itself.
  local entry = read(redis.call('HGET', KEYS[5], ARGV[4]), 5)
  local state = redis.call('HMGET', KEYS[1], 'size', 'place')
  local others = redis.call('ZCARD', KEYS[3])
  if redis.call('ZSCORE', KEYS[3], process) then
    others = others - 1
  end
  return {
    entry and entry[4] or false, KEYS[8] and redis.call('ZCARD', KEYS[8]) or 0,
    tonumber(state[1]) or 0, tonumber(state[2]) or 0, {}, {}, others, -1,
    tonumber(redis.call('HGET', KEYS[1], 'failing:' .. ARGV[7])) or 0,
  }
end
-- A server that is full refuses a script whose first write may need memory.
redis.call('ZREM', KEYS[3], process)

local function give_back(packed)
  local entry = read(packed, 5)
  if entry then
    local requests, slot, rank, body, fails = unpack(entry)
    local place = next_place(KEYS[1])
    local member = in_front(place, fails == '1') .. body
    add(KEYS[1], KEYS[2], requests, slot, rank, member, place)
    redis.call('HINCRBY', KEYS[1], 'size', 1)
  end
end

for n = 10, first_unsure - 1 do
  redis.call('HDEL', KEYS[5], ARGV[n])
end
for n = first_unsure, first_doubtful - 1 do
  local packed = redis.call('HGET', KEYS[5], ARGV[n])
  if packed then
    redis.call('HDEL', KEYS[5], ARGV[n])
    give_back(packed)
  end
end

local dead = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, most_dead)
if #dead > 0 and redis.call('EXISTS', KEYS[7]) == 0 then
  -- Nobody was heard of: the server may have been away.
  for _, other in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now)) do
    redis.call('ZADD', KEYS[3], now + period, other)
  end
else
  local prefix = string.sub(KEYS[5], 1, #KEYS[5] - #process)
  for _, other in ipairs(dead) do
    local taken = prefix .. other
    for _, packed in ipairs(redis.call('HVALS', taken)) do
      give_back(packed)
    end
    redis.call('DEL', taken)
    redis.call('ZREM', KEYS[3], other)
  end
end

local ended = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now, 'LIMIT', 0, most_ended)
for _, packed in ipairs(ended) do
  redis.call('ZREM', KEYS[4], packed)
  local entry = read(packed, 6)
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
local slot = ARGV[7]
local body, left, failing = false, 0, 0
if KEYS[8] then
  local popped, rank = unpack(redis.call('ZPOPMIN', KEYS[8]))
  left = redis.call('ZCARD', KEYS[8])
  if left == 0 then
    redis.call('ZREM', KEYS[2], slot)
  end
  if popped then
    count_failing(KEYS[1], slot, popped, -1)
    body = string.sub(popped, 17)
    local fails = string.sub(popped, 1, 1) == '-' and '1' or ''
    local entry = cmsgpack.pack({KEYS[8], slot, tostring(rank), body, fails})
    redis.call('HSET', KEYS[5], ARGV[4], entry)
    redis.call('HINCRBY', KEYS[1], 'size', -1)
  end
  failing = tonumber(redis.call('HGET', KEYS[1], 'failing:' .. slot)) or 0
  if failing <= 0 or left == 0 then
    redis.call('HDEL', KEYS[1], 'failing:' .. slot)
  end
end
local others = redis.call('ZCARD', KEYS[3])
local is_at_work = ARGV[2] == '1' or redis.call('EXISTS', KEYS[5]) == 1
if is_at_work then
  redis.call('ZADD', KEYS[3], now + period, process)
  note_call(KEYS[6], ARGV[4])
else
  redis.call('DEL', KEYS[6])
end
if is_at_work or others > 0 then
  redis.call('SET', KEYS[7], 1, 'PX', heard_ms)
else
  redis.call('DEL', KEYS[7])
end
local state = redis.call('HMGET', KEYS[1], 'size', 'place')
local size = tonumber(state[1]) or 0
if size <= 0 then
  redis.call('DEL', KEYS[1], KEYS[4])
end
local next_end = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')[2]
local news = redis.call(
  'ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[5], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[6]
)
local gone = {}
for n = first_doubtful, #ARGV do
  if not redis.call('ZSCORE', KEYS[2], ARGV[n]) then
    gone[#gone + 1] = ARGV[n]
  end
end
local ends_in = tonumber(next_end or '')
ends_in = ends_in and math.ceil(math.max(0, math.min(ends_in - now, 1e9))) or -1
local place = tonumber(state[2]) or 0
return {body, left, size, place, news, gone, others, ends_in, failing}
