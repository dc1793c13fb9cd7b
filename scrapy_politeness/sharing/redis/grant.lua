-- Reserves send times in one or several budgets at once. All times are this server's
-- own, in microseconds, and what is returned are waits from now on.
--
-- KEYS: the summary of what was learned of the first budget; then record and set of
--       each budget.
-- ARGV: process; how many; how many it has a use for; how far ahead; how long the answer
--       takes to arrive and be used; when to expect the next call if nothing is wanted;
--       known revision; longest pause; pause left; resets known of; until when there
--       is anyone to hear the answer, or 0; the longest promise; what time it is now by
--       the clock of turns, or ''.
--       Then of each budget: spacing; least gap; burst; step of the turns, or 0;
--       Crawl-delay; seat or -1; seats; when the last request went that was not
--       reserved here, as a wait from now on, or ''; 1 if there has to be a record, 2 if
--       it cannot be right, because this server's clock was set.
local process, wanted, needs = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local lead = tonumber(ARGV[5])
local horizon = tonumber(ARGV[4]) + lead
local stay, longest = tonumber(ARGV[6]), tonumber(ARGV[8])
local heard_until, longest_promise = tonumber(ARGV[11]), tonumber(ARGV[12])
local turns_now = tonumber(ARGV[13])
local OWN, EACH = 13, 9

-- A queue of processes is no longer than this; and a process that has promised to ask
-- again may be so much late.
local LONGEST_LINE, LATE = 120 * SECOND, SECOND
-- For this long after it has lost its memory, this server waits for other processes that
-- know of a pause: until all have heard of it, they call more often than that.
local HOLD = 3 * SECOND
local FURTHEST = 1.2 * SECOND
-- Requests that follow each other faster than this have no turns.
local SHORTEST_TURN = 200000
-- What a process says about the time may be wrong by this, and by the way here and back;
-- and it may have been on its way for so long.
local INEXACT, DELAYED = 20000, SECOND

-- Who does not hear the answer believes that it has promised nothing.
if heard_until > 0 and now > heard_until then
  return now
end
need_room(KEYS[2], 'v', 0)

local function take_seat(key, members_key, claim, seats)
  local field = 'p' .. process
  local seat = redis.call('HGET', key, field)
  if seat then
    local member = known(seat) .. ':' .. process
    if redis.call('ZSCORE', members_key, member) then
      return known(seat), member
    end
  end
  local all, taken = redis.call('ZRANGE', members_key, 0, -1), {}
  for _, member in ipairs(all) do
    if string.match(member, ':(.*)$') == process then
      redis.call('HSET', key, field, seat_in(member))
      count_seats(key, members_key)
      return seat_in(member), member
    end
    taken[seat_in(member)] = member
  end
  seat = claim
  if claim < 0 or (taken[claim] and taken[claim] ~= claim .. ':') then
    seat = 0
    while taken[seat] do
      seat = seat + 1
    end
  end
  redis.call('ZREM', members_key, seat .. ':')
  if #all == 0 and claim >= 0 then
    -- The others have not asked since this server lost its memory. They may be cut off.
    for other = 0, math.min(seats, MOST_SEATS) - 1 do
      if other ~= seat then
        redis.call('ZADD', members_key, now, other .. ':')
      end
    end
  end
  local member = seat .. ':' .. process
  redis.call('HSET', key, field, seat)
  redis.call('ZADD', members_key, now, member)
  count_seats(key, members_key)
  return seat, member
end

local function drop_forgotten(key, members_key)
  local gone = redis.call('ZRANGEBYSCORE', members_key, 1, whole(now - VANISHED))
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', members_key, whole(-now), -1)) do
    gone[#gone + 1] = member
  end
  for _, member in ipairs(gone) do
    leave(key, members_key, member)
  end
  if #gone > 0 then
    count_seats(key, members_key)
  end
end

local budgets = {}
for n = 1, (#KEYS - 1) / 2 do
  local key, members_key = KEYS[2 * n], KEYS[2 * n + 1]
  local at = OWN + (n - 1) * EACH
  local function argument(m)
    return tonumber(ARGV[at + m])
  end
  since_clock_was_set(key, members_key, known(redis.call('HGET', key, 'n')))
  local state = redis.call('HMGET', key, 't', 'l', 'u', 'q', 'd', 'e', 'v', 'g', 'i', 'r',
    'h', 'f')
  local budget = {
    key = key, members_key = members_key,
    interval = argument(1), gap = argument(2), burst = argument(3), step = argument(4),
    t = known(state[1]), l = known(state[2]), u = known(state[3]), q = known(state[4]),
    crawl_delay = math.min(known(state[5]), longest), believed = known(state[6]),
    revision = known(state[7]), cuts = known(state[8]), resets = known(state[10]),
    furthest = known(state[11]), until_then = known(state[12]),
  }
  if n == 1 then
    budget.interval = math.max(budget.interval, math.min(known(state[9]), longest))
  end
  if horizon >= budget.furthest or budget.until_then < now then
    budget.furthest, budget.until_then = horizon, now + 60 * SECOND
  end
  -- A process that is new asks for robots.txt itself, but keeps to it already.
  if argument(5) >= budget.crawl_delay or budget.believed < now then
    budget.crawl_delay, budget.believed = argument(5), now + 600 * SECOND
  end
  budget.gap = math.max(budget.gap, budget.crawl_delay)
  if budget.crawl_delay >= SHORTEST_TURN then
    budget.step = math.max(budget.step, budget.crawl_delay)
  end
  drop_forgotten(key, members_key)
  budget.seat, budget.member = take_seat(key, members_key, argument(6), argument(7))
  redis.call('ZADD', members_key, whole(now + SECOND), budget.member)
  budget.seats = math.max(1, known(redis.call('HGET', key, 'c')))
  budget.waiting = redis.call('ZCOUNT', members_key, whole(now + 1), '+inf')

  local missing = redis.call('ZRANGEBYSCORE', members_key, 1, whole(now), 'LIMIT', 0, 1000)
  if #missing > 0 then
    -- Those who may be cut off have their share, and their turns, on their own.
    local more = budget.seats / math.max(1, budget.seats - #missing)
    if budget.step > 0 and budget.interval < 1.05 * budget.step then
      budget.interval = budget.step
    else
      budget.interval = budget.interval * more
    end
    if budget.step > 0 then
      budget.taken = {}
      for _, member in ipairs(missing) do
        budget.taken[seat_in(member)] = true
      end
    else
      budget.gap = budget.gap * more
    end
  end

  if argument(9) == 2 or (argument(9) == 1 and not state[1]) then
    -- This server has lost its memory. Another process may use a lease of before, or
    -- know of a pause that this one has not heard of.
    local hold = argument(7) > 1 and math.max(horizon, HOLD) or horizon
    budget.l = math.max(budget.l, now + hold)
    budget.t = math.max(budget.t, budget.l + budget.interval)
  end
  if ARGV[at + 8] ~= '' then
    budget.l = math.max(budget.l, now + argument(8))
    budget.t = math.max(budget.t, now + argument(8) + budget.interval)
  end
  -- Whatever stands there: nothing was granted beyond that, and a limit that has become
  -- faster holds at once.
  budget.l = math.min(budget.l, now + horizon + longest)
  budget.t = math.min(budget.t, math.max(budget.l, now) + budget.burst * budget.interval)
  budget.u = math.min(budget.u, now + longest)
  budget.q = math.min(budget.q, now + LONGEST_LINE)
  budget.spare = (budget.burst - 1) * budget.interval
  budgets[n] = budget
end

local slot = budgets[1]

-- Processes that are cut off go by the clock that they knew. So when this server's was
-- set, or has forgotten the difference, it is the clock of turns that goes on.
local ahead = tonumber(redis.call('HGET', slot.key, 'a') or '')
local is_doubted = not ahead or tonumber(ARGV[OWN + 9]) == 2
ahead = ahead and ahead > -9e15 and ahead < 9e15 and math.floor(ahead) or 0
if turns_now then
  local difference = now - ahead - turns_now
  local tolerance = INEXACT + 2 * lead
  -- Too low it may be because it was long on its way, but never too high.
  local most = is_doubted and tolerance or tolerance + DELAYED
  if difference < -tolerance or difference > most then
    ahead = now - turns_now
  end
end
redis.call('HSET', slot.key, 'a', whole(ahead))

if tonumber(ARGV[10]) >= slot.resets and tonumber(ARGV[9]) > 0 then
  slot.u = math.max(slot.u, now + math.min(tonumber(ARGV[9]), longest))
end

for _, budget in ipairs(budgets) do
  -- What could be saved up during a pause does not count: no burst comes next.
  if budget.u > budget.l then
    budget.t = math.max(budget.t, budget.u + budget.spare)
  end
end

local function ready(budget)
  return math.max(budget.t - budget.spare, budget.l + budget.gap, budget.u)
end

-- The first turn from then on that is nobody's who may be cut off.
local function turn(at)
  if not slot.taken then
    return at
  end
  local step = math.ceil(slot.step)
  local number = math.ceil((at - ahead) / step)
  for _ = 1, slot.seats do
    if not slot.taken[number % slot.seats] then
      break
    end
    number = number + 1
  end
  return number * step + ahead
end

local function slowest()
  local last = slot
  for _, budget in ipairs(budgets) do
    if ready(budget) > ready(last) then
      last = budget
    end
  end
  return last
end

-- A line is not much longer than it takes to serve all who wait, each up to the furthest
-- horizon: a place made at a slower pace, or behind processes that have left, moves up.
local function shortened(budget, place)
  local each = math.max(budget.interval, budget.gap, math.min(budget.furthest, FURTHEST))
  return math.min(place, math.max(now, ready(budget)) + 2 * budget.waiting * each)
end

local function in_line(budget)
  local place = known(redis.call('HGET', budget.key, 'w' .. process))
  return shortened(budget, place)
end

-- Processes that are further away reserve earlier: what they leave may be beyond the
-- horizon of one whose time in the line has come.
local furthest = now + horizon
if slot.waiting > 1 then
  local place = in_line(slowest())
  if place > now - SECOND and place <= furthest then
    furthest = math.max(furthest, now + math.min(slot.furthest, FURTHEST))
  end
end

local waits = {}
local late = 0
for n = 1, wanted do
  local earliest = ready(slowest())
  local at = turn(math.max(now + lead, earliest))
  if at > furthest then
    break
  end
  if n == 1 then
    late = math.min(now - math.min(now, earliest), 1000 * SECOND)
  end
  for _, budget in ipairs(budgets) do
    budget.t = math.max(budget.t, at) + budget.interval
    budget.l = at
  end
  waits[n] = at - now
end

-- Where several processes wait for the same budget, each has a time to ask again: they
-- do not all come when one request may go.
local last = slowest()
last.next = turn(ready(last))
if last.waiting > 1 and #waits < needs then
  -- Who comes takes all that there is up to the horizon. A little early is better than
  -- late: what nobody takes is lost.
  local reach = horizon - lead
  local place = in_line(last)
  if place <= now + horizon or place > now + LONGEST_LINE then
    place = turn(math.max(last.next, shortened(last, last.q)))
    local each = math.floor(reach / math.max(1, last.interval))
    if last == slot then
      each = math.min(wanted, each)
    end
    last.q = place + math.max(1, each, #waits) * last.interval
  end
  redis.call('HSET', last.key, 'w' .. process, whole(place))
  last.next = turn(math.max(last.next, place - reach / 2))
end

local nexts, seats, members, promises, again = {}, {}, {}, {}, stay
for n, budget in ipairs(budgets) do
  nexts[n] = math.floor(math.max(0, (budget.next or ready(budget)) - now))
  seats[n], members[n] = budget.seat, budget.seats
  again = math.max(again, nexts[n])
end
again = math.min(again, LONGEST_LINE, longest_promise)
for n, budget in ipairs(budgets) do
  local score = now + again + LATE
  promises[n] = math.floor(again + LATE)
  -- Nobody has to wait for one that has all it needs, or waits for another budget.
  if n == 1 and (#waits >= needs or last ~= slot) then
    score, promises[n] = -(now + IDLE), 0
  end
  redis.call('ZADD', budget.members_key, whole(score), budget.member)
  redis.call('HSET', budget.key, 't', whole(budget.t), 'l', whole(budget.l),
    'u', whole(budget.u), 'q', whole(budget.q), 'd', whole(budget.crawl_delay),
    'e', whole(budget.believed), 'n', whole(now), 'h', whole(budget.furthest),
    'f', whole(budget.until_then))
  keep(budget.key, math.max(budget.t, budget.u, budget.l + budget.gap, now + again))
  redis.call('PEXPIRE', budget.members_key,
    math.ceil((again + VANISHED) / 1000) + 1000 * KEPT)
end

local model = ''
if slot.revision ~= tonumber(ARGV[7]) then
  if slot.revision == 0 then
    model = redis.call('GET', KEYS[1]) or ''
  else
    model = redis.call('HGET', slot.key, 's') or ''
  end
end
return {
  now, slot.revision, slot.cuts, model, math.floor(math.max(0, slot.u - now)),
  math.floor(late), waits, nexts, seats, members, promises, slot.waiting, slot.resets,
  math.max(0, now - ahead),
}
