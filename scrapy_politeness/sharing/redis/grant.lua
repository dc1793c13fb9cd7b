-- Reserves send times in one or several budgets at once.
--
-- Each budget has a hash: t, when the next request may go at the earliest if all are
-- evenly spread (the theoretical arrival time of GCRA); l, the last time granted; u,
-- until when there is a pause. And a sorted set of the processes that share it, by
-- when each is forgotten. All times are this server's own, in microseconds, and what
-- is returned are waits from now on.
--
-- KEYS: what was learned of the first budget, in detail and as a summary; then hash
--       and set of each budget.
-- ARGV: process, how many, horizon, known revision, longest pause, pause left,
--       finished ago (or -1); then of each budget: spacing, least gap, burst, processes
--       expected.
local process, wanted, horizon = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local longest = tonumber(ARGV[5])
local budgets = {}
local members = {}

local learned = redis.call('HMGET', KEYS[1], 'v', 'g', 'i')
local revision = known(learned[1])

for n = 1, #KEYS / 2 - 1 do
  local at = 7 + (n - 1) * 4
  local interval = tonumber(ARGV[at + 1])
  local gap, burst = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  if n == 1 then
    interval = math.max(interval, math.min(known(learned[3]), longest))
  end
  local key, members_key = KEYS[2 * n + 1], KEYS[2 * n + 2]
  -- A process that waits for a slow budget asks seldom.
  local memory = math.max(10000000, 3 * math.max(interval, gap))
  redis.call('ZADD', members_key, now + memory, process)
  redis.call('ZREMRANGEBYSCORE', members_key, '-inf', now)
  redis.call('PEXPIRE', members_key, math.ceil(memory / 1000))
  members[n] = redis.call('ZCARD', members_key)
  local expected = tonumber(ARGV[at + 4])
  if expected > 1 then
    -- After a failure of this server, the processes that have not asked lately are
    -- still on their own, with their share.
    local back = redis.call('ZCOUNT', members_key, now + memory - 1500000, '+inf')
    local missing = math.max(1, expected / back)
    interval, gap = interval * missing, gap * missing
  end
  local state = redis.call('HMGET', key, 't', 'l', 'u')
  local budget = {
    key = key,
    interval = interval,
    gap = gap,
    spare = (burst - 1) * interval,
    burst = burst,
    t = known(state[1]),
    l = known(state[2]),
    u = known(state[3]),
  }
  -- A clock that was set back must not stop all processes until it has caught up.
  local ahead = now + horizon
  budget.l = math.min(budget.l, ahead)
  budget.t = math.min(budget.t, ahead + burst * math.max(interval, gap))
  budget.u = math.min(budget.u, now + longest)
  budgets[n] = budget
end

local slot = budgets[1]
if tonumber(ARGV[6]) > 0 then
  slot.u = math.max(slot.u, now + tonumber(ARGV[6]))
end
if tonumber(ARGV[7]) >= 0 then
  slot.t = math.max(slot.t, now - tonumber(ARGV[7]) + slot.interval)
  slot.l = math.max(slot.l, now - tonumber(ARGV[7]))
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

local function next_time()
  local at = 0
  for _, budget in ipairs(budgets) do
    at = math.max(at, ready(budget))
  end
  return at
end

local waits = {}
local late = 0
for n = 1, wanted do
  local earliest = next_time()
  local at = math.max(now, earliest)
  if at > now + horizon then
    break
  end
  if n == 1 then
    late = math.min(now - math.min(now, earliest), 1000000000)
  end
  for _, budget in ipairs(budgets) do
    budget.t = math.max(budget.t, at) + budget.interval
    budget.l = at
  end
  waits[n] = at - now
end

local nexts = {}
for n, budget in ipairs(budgets) do
  nexts[n] = math.max(0, ready(budget) - now)
  if waits[1] or n == 1 then
    redis.call('HSET', budget.key, 't', string.format('%.0f', budget.t),
      'l', string.format('%.0f', budget.l), 'u', string.format('%.0f', budget.u))
    local used = math.max(budget.t, budget.u, budget.l + budget.gap) - now
    redis.call('PEXPIRE', budget.key, math.ceil(math.max(0, used) / 1000) + 60000)
  end
end

local model = ''
if revision ~= tonumber(ARGV[4]) then
  if revision == 0 then
    model = redis.call('GET', KEYS[2]) or ''
  else
    model = redis.call('HGET', KEYS[1], 's') or ''
  end
end
return {
  now, revision, known(learned[2]), model, math.max(0, slot.u - now), late,
  waits, nexts, members,
}
