-- What the scripts of shared budgets begin with: this server's time in microseconds,
-- and how to read numbers.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- What is read here may be damaged: then it counts as nothing. All that we write is
-- whole, and a fraction would be cut off in what is returned.
local function known(text)
  local value = tonumber(text or '')
  return value and value >= 0 and value < 9e15 and math.floor(value) or 0
end
