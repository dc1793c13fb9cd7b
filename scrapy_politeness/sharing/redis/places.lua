-- Shares out how many requests of a slot may be in flight at once.
--
-- One hash per slot: of each process, how many places it has, how many it wants, since
-- when it has any, and until when that holds. Who does not ask again in time has none.
--
-- KEYS: the hash.
-- ARGV: process; how many it wants; how many it uses; how many there are; for how long
--       an answer holds; after how long to let others have a turn.
local process, total = ARGV[1], tonumber(ARGV[4])
local wanted, used = tonumber(ARGV[2]), tonumber(ARGV[3])
local lifetime, turn = tonumber(ARGV[5]), tonumber(ARGV[6])

need_room(KEYS[1], process, '')
local others, members, hungry, starving, since = 0, 1, 1, false, now
local all = redis.call('HGETALL', KEYS[1])
for n = 1, #all, 2 do
  local has, wants, at, ends = string.match(all[n + 1], '^(%d+):(%d+):(%d+):(%d+)$')
  has, wants, at, ends = known(has), known(wants), known(at), known(ends)
  if ends < now or ends > now + lifetime or has > total then
    redis.call('HDEL', KEYS[1], all[n])
  elseif all[n] == process then
    since = has > 0 and at or now
  else
    others = others + has
    members = members + 1
    hungry = hungry + (wants > 0 and 1 or 0)
    starving = starving or (has == 0 and wants > 0)
  end
end

local granted = math.max(0, math.min(wanted, total - others))
if hungry > 1 then
  granted = math.min(granted, math.ceil(total / hungry))
end
if starving and now - since > turn then
  granted = math.min(granted, math.floor(total / hungry))
end
-- What is in flight cannot be called back, but need not be replaced when it ends.
local has = math.max(granted, used)
if has == 0 and wanted == 0 then
  redis.call('HDEL', KEYS[1], process)
else
  redis.call('HSET', KEYS[1], process, string.format(
    '%.0f:%.0f:%.0f:%.0f', has, wanted, since, now + lifetime))
end
redis.call('PEXPIRE', KEYS[1], math.ceil(lifetime / 500))
return {granted, members}
