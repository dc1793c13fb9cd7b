-- Loaded before the other scripts of a shared queue.
--
-- The queue is a hash: size, the number of requests; place, the number that the last
-- one got. Its slots are a sorted set, by the place of the request that made each
-- non-empty: a process that has seen all up to one place asks only for what is new.
-- The requests of a slot are a sorted set, too, and begin with their place. What does
-- not stay where it is has an end, in a sorted set by the time (in milliseconds) at
-- which it goes to the front.
--
-- What a process has popped stays in a hash of that process until it is done, by the
-- number of the call.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function next_place(queue)
  local last = tonumber(redis.call('HGET', queue, 'place')) or 0
  -- By the clock, so that places keep rising when everything was deleted.
  local place = math.max(last + 1, clock[1] * 1000000 + clock[2])
  redis.call('HSET', queue, 'place', string.format('%016.0f', place))
  return place
end

-- Lower than all that are not in front; failing ones are the lowest.
local function in_front(place, fails)
  local written = string.format('%016.0f', place - 1e15)
  return fails and '-' .. string.sub(written, 2) or written
end

-- Counts the failing requests in a slot.
local function count_failing(queue, slot, member, change)
  if string.sub(member, 1, 1) == '-' then
    redis.call('HINCRBY', queue, 'failing:' .. slot, change)
  end
end

local function add(queue, slots, requests, slot, rank, member, place)
  redis.call('ZADD', requests, rank, member)
  count_failing(queue, slot, member, 1)
  local waiting = redis.call('ZCARD', requests)
  if waiting == 1 then
    redis.call('ZADD', slots, string.format('%016.0f', place), slot)
  end
  return waiting
end

-- Calls of a process are numbered. One that got no answer is made again with the same
-- number, or given up; a server that was stalled may meet it after later ones.
local function is_repeated(last_call, number)
  return tonumber(number) <= (tonumber(redis.call('GET', last_call)) or 0)
end

local function note_call(last_call, number)
  redis.call('SET', last_call, number, 'PX', 60000)
end

-- Ignores what another program has put there.
local function read(packed, fields)
  local sound, entry = pcall(cmsgpack.unpack, packed)
  if not sound or type(entry) ~= 'table' then
    return nil
  end
  for n = 1, fields do
    if type(entry[n]) ~= 'string' then
      return nil
    end
  end
  return tonumber(entry[3]) and entry
end
