local words = {'order','left','harbour','customer','blue','seven','window','letter','north','paper','delayed','river'}
local seed = 7
local function below(n) seed = (seed * 16807) % 2147483647; return seed % n end
for i = 1, 120000 do
  redis.call('SET', 'session:' .. i, '{"user":' .. below(50000) .. ',"name":"' .. words[below(12) + 1] .. '-' .. i
    .. '","seen":' .. (1700000000 + i * 7) .. ',"cart":[' .. below(900) .. ',' .. below(900) .. ']}')
end
for i = 1, 40000 do
  redis.call('HSET', 'customer:' .. i, 'name', words[below(12) + 1] .. ' ' .. i, 'city', words[below(12) + 1], 'total', below(100000), 'note',
    words[below(12) + 1] .. ' ' .. words[below(12) + 1] .. ' ' .. words[below(12) + 1])
  redis.call('ZADD', 'ranking:' .. (i % 20), below(1000000), 'customer:' .. i)
end
for i = 1, 60000 do redis.call('RPUSH', 'queue:' .. (i % 100), 'job ' .. i .. ' ' .. words[below(12) + 1]) end
return 1
