-- Adds a request to a slot of a shared queue, unless it was seen before.
--
-- KEYS: the queue, its slots, the requests of the slot, the ends, the number of the
--       process's last call; to filter, also the fingerprints that were seen.
-- ARGV: slot, rank, request, where it waits, for how many milliseconds, whether it
--       fails, the number of this call, the fingerprint.
local slot, rank, body, where = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if is_repeated(KEYS[5], ARGV[7])
  or (KEYS[6] and redis.call('SISMEMBER', KEYS[6], ARGV[8]) == 1) then
  local size = tonumber(redis.call('HGET', KEYS[1], 'size')) or 0
  return {redis.call('ZCARD', KEYS[3]), size}
end
local place = next_place(KEYS[1])
local written = string.format('%016.0f', place)
if where == 'front' or ARGV[6] == '1' then
  written = in_front(place, ARGV[6] == '1')
end
local waiting
if where == 'held' then
  waiting = redis.call('ZCARD', KEYS[3])
else
  local score = where == 'last' and '+inf' or rank
  waiting = add(KEYS[1], KEYS[2], KEYS[3], slot, score, written .. body, place)
end
if where == 'held' or where == 'behind' or where == 'last' then
  local entry = cmsgpack.pack({KEYS[3], slot, rank, written, body, where})
  redis.call('ZADD', KEYS[4], now + ARGV[5], entry)
end
local size = redis.call('HINCRBY', KEYS[1], 'size', 1)
-- Last, so that an error in between costs no request.
if KEYS[6] then
  redis.call('SADD', KEYS[6], ARGV[8])
end
note_call(KEYS[5], ARGV[7])
return {waiting, size}
