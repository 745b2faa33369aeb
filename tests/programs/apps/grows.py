"""grows.py N: keeps N lines of hexadecimal digits and now and then looks at an old one. lz4 stores
them 1.4:1, an entropy coder, to which a digit is half a byte, 2:1."""

import os, random, sys, zlib
r = random.Random(1)
data, sums, wrong = [], [], 0
for n in range(int(sys.argv[1])):
    data.append((os.urandom(1536).hex() + 'x' * 960).encode())
    sums.append(zlib.crc32(data[-1]))
    k = r.randrange(len(data))
    wrong += zlib.crc32(data[k]) != sums[k]
wrong += sum(zlib.crc32(d) != s for d, s in zip(data, sums))
print('WRONG' if wrong else 'right')
