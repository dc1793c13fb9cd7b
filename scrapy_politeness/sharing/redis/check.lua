-- Finds out whether this server lets scripts write: a replica does not, nor one that is
-- full, nor one on which this user may not.
--
-- KEYS: one that nothing else uses.
redis.call('SET', KEYS[1], now, 'PX', 1000)
redis.call('DEL', KEYS[1])
return now
