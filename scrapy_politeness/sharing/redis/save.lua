-- Saves what was learned of a host, unless another process has done so meanwhile.
--
-- KEYS: the record of the host's budget, the set of its processes, the summary of what
--       was learned.
-- ARGV: the revision that this follows (-2: whatever it is, and the pause ends for all),
--       spacing, cuts, what was learned, how many seconds to keep that; its summary,
--       or nothing, and for how long; pause to begin, longest pause; resets known of.
local key = KEYS[1]
since_clock_was_set(key, KEYS[2], known(redis.call('HGET', key, 'n')))
local current = redis.call('HMGET', key, 'v', 's', 'r', 'u')
local revision, resets = known(current[1]), known(current[3])
local longest = tonumber(ARGV[9])
local paused_until = math.min(known(current[4]), now + longest)
local is_reset = tonumber(ARGV[1]) == -2
if is_reset then
  redis.call('DEL', KEYS[3])
  paused_until, resets = 0, resets + 1
  redis.call('HSET', key, 'u', 0, 'r', resets)
elseif tonumber(ARGV[10]) >= resets then
  -- A pause is for all, whoever was the first to save.
  local pause = math.min(tonumber(ARGV[8]), longest)
  if pause > 0 then
    paused_until = math.max(paused_until, now + pause)
    redis.call('HSET', key, 'u', whole(paused_until))
  end
end
local is_saved = is_reset or revision == tonumber(ARGV[1])
if is_saved then
  revision = revision + 1
  redis.call('HSET', key, 'v', revision, 'i', ARGV[2], 'g', ARGV[3], 's', ARGV[4],
    'k', ARGV[5])
  if ARGV[6] ~= '' then
    redis.call('SET', KEYS[3], ARGV[6], 'EX', ARGV[7])
  end
end
redis.call('HSET', key, 'n', whole(now))
keep(key, paused_until)
return {now, revision, is_saved and 1 or 0, is_saved and '' or current[2] or '', resets}
