-- What all scripts begin with: this server's time in microseconds, how to read numbers,
-- and the record of a budget.
--
-- One hash per budget, with one lifetime:
--   t        when the next request may go if all are evenly spread (the theoretical
--            arrival time of GCRA)
--   l        the last time granted
--   u        until when there is a pause
--   q        when the next process in line should ask again; w<process> is when a
--            certain one should
--   d, e     the Crawl-delay that a process has read, and until when it is believed
--   h, f     how far ahead the process that is furthest away reserves, and until when
--            that is believed
--   c        how many seats there are; p<process> is the seat of a process
--   a        by how much this server's time is ahead of the one by which turns go: that
--            one goes on when the clock here is set, as long as a process knows of it
--   r        how often it was reset
--   n, k     when it was written, and for how many seconds to keep it when all is over
--   v g i s  what was learned: its revision, how often the rate was cut, the interval,
--            and the model
-- And a sorted set of "<seat>:<process>". A positive score is until when that process
-- has promised to ask again: if it does not, it may have been cut off, and sends on its
-- own in the turns of its seat. A negative one is until when to remember a process that
-- wants nothing now. "<seat>:" is a seat that was lost with the memory of this server.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local SECOND = 1000000
-- For how long the seat of a process that has vanished is left free, and that of one
-- that wants nothing is remembered.
local VANISHED, IDLE = 120 * SECOND, 60 * SECOND
local KEPT = 60
local MOST_SEATS = 10000

-- What is read here may be damaged: then it counts as nothing. All that we write is
-- whole, and a fraction would be cut off in what is returned.
local function known(text)
  local value = tonumber(text or '')
  return value and value >= 0 and value < 9e15 and math.floor(value) or 0
end

local function whole(number)
  return string.format('%.0f', number)
end

-- A server that is full lets a script write as soon as it has freed something. Some
-- processes would be served then, and others not: so the first write is one that needs
-- room.
local function need_room(key, field, value)
  redis.call('HSETNX', key, field, value)
end

-- When this server's clock was set back, what lay ahead lies as far ahead as before.
local function since_clock_was_set(key, members_key, written)
  if written <= now + SECOND then
    return 0
  end
  local shift = now - written
  for _, field in ipairs({'t', 'l', 'u', 'q', 'e', 'f'}) do
    local at = known(redis.call('HGET', key, field))
    redis.call('HSET', key, field, whole(math.max(0, at + shift)))
  end
  local members = redis.call('ZRANGE', members_key, 0, -1, 'WITHSCORES')
  for n = 1, #members, 2 do
    local score = tonumber(members[n + 1])
    score = score > 0 and math.max(1, score + shift) or math.min(-1, score - shift)
    redis.call('ZADD', members_key, whole(score), members[n])
  end
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.sub(field, 1, 1) == 'w' then
      redis.call('HDEL', key, field)
    end
  end
  redis.call('HSET', key, 'n', whole(now))
end

local function keep(key, until_then)
  local left = math.max(0, until_then - now) / 1000
  local kept = known(redis.call('HGET', key, 'k'))
  left = math.ceil(left) + 1000 * math.max(KEPT, math.min(kept, 3600))
  if redis.call('PTTL', key) < left then
    redis.call('PEXPIRE', key, left)
  end
end

local function seat_in(member)
  return math.min(known(string.match(member, '^(%d+):')), MOST_SEATS)
end

-- Recounts the seats after processes came or left.
local function count_seats(key, members_key)
  local count = 0
  for _, member in ipairs(redis.call('ZRANGE', members_key, 0, -1)) do
    count = math.max(count, seat_in(member) + 1)
  end
  redis.call('HSET', key, 'c', count)
  return count
end

local function leave(key, members_key, member)
  redis.call('ZREM', members_key, member)
  local process = string.match(member, ':(.*)$') or ''
  redis.call('HDEL', key, 'p' .. process, 'w' .. process)
end
