-- Saves what was learned of a host, unless another process has done so meanwhile.
--
-- KEYS: what was learned of the host, in detail and as a summary; its budget's hash.
-- ARGV: the revision that this follows (-2: whatever it is, and the pause ends),
--       spacing, cuts, what was learned, how many seconds to keep that; its summary,
--       or nothing, and for how long; pause to begin, longest pause.
local current = redis.call('HMGET', KEYS[1], 'v', 's')
local revision = known(current[1])
if tonumber(ARGV[1]) == -2 then
  redis.call('DEL', KEYS[2])
  redis.call('HDEL', KEYS[3], 'u')
elseif revision ~= tonumber(ARGV[1]) then
  return {now, revision, 0, current[2] or ''}
end
revision = revision + 1
redis.call('HSET', KEYS[1], 'v', revision, 'i', ARGV[2], 'g', ARGV[3], 's', ARGV[4])
redis.call('EXPIRE', KEYS[1], ARGV[5])
if ARGV[6] ~= '' then
  redis.call('SET', KEYS[2], ARGV[6], 'EX', ARGV[7])
end
local pause, longest = tonumber(ARGV[8]), tonumber(ARGV[9])
pause = math.min(pause, longest)
if pause > 0 then
  local current_end = known(redis.call('HGET', KEYS[3], 'u'))
  current_end = math.min(current_end, now + longest)
  local paused_until = math.max(current_end, now + pause)
  redis.call('HSET', KEYS[3], 'u', string.format('%.0f', paused_until))
  local left = math.ceil((paused_until - now) / 1000) + 60000
  if redis.call('PTTL', KEYS[3]) < left then
    redis.call('PEXPIRE', KEYS[3], left)
  end
end
return {now, revision, 1, ''}
