# Starts a server, has it asked so many times, and ends it.
redis-server --port 0 --unixsocket redis.socket --save '' --appendonly no > redis.log 2>&1 &
server=$!
until redis-cli -s redis.socket ping > /dev/null 2>&1; do
    kill -0 $server 2> /dev/null || { cat redis.log >&2; exit 1; }
    sleep 0.02
done
redis-benchmark -s redis.socket -n "$1" -r "$1" -d 300 -c 20 -P 16 -t set,get -q > asked.log 2>&1
redis-cli -s redis.socket shutdown nosave > /dev/null 2>&1
wait $server
