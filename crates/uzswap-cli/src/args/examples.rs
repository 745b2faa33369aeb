//! *What*: the usage lines and examples that end each subcommand's help.

pub const UZSWAP: &str = "\
Examples:
  uzswap run --ram 512M -- python3 job.py        a job of 2 GiB in 512 MiB
  uzswap run -- make                             as much RAM as the container still allows
  uzswap run --ram 1G --compressor zstd -- node server.js
  uzswap stat 4711                               what it saves, while it runs

Every option of 'run' can be set by an environment variable: --ram by UZSWAP_RAM, --swap-max by
UZSWAP_SWAP_MAX, and so on.
";

pub const RUN_USAGE: &str = "uzswap run [OPTIONS] -- COMMAND [ARG]...";

pub const RUN: &str = "\
Sizes are bytes or take a unit of base 1024: 512M, 2G, 1.5GiB.
Exit status: the command's own; 128+N if signal N ended it; 125 if uzswap failed or the limit could
not be kept; 126 and 127 if the command cannot be executed or was not found, as env(1) has it.

Examples:
  uzswap run --ram 256M -- python3 job.py
  uzswap run --ram 1G --stats /tmp/job.json --quiet -- ./job --big
  UZSWAP_RAM=256M uzswap run -- sort --parallel=2 big.txt
  uzswap run --swap /dev/nvme0n1p3,pri=10 --swap /var/tmp -- ./job     the disk first, then a file
  UZSWAP_SWAP='/mnt/a,pri=1;/mnt/b,pri=1' uzswap run -- ./job          two directories by turns
";

pub const STAT: &str = "\
Rates are those of a quarter of a second.
Exit status: 0; 125 if there is no such run, or for wrong arguments.

Examples:
  uzswap stat 4711
  uzswap stat 4711 --json | jq .refaults
  uzswap stat 4711 --prometheus > /var/lib/node_exporter/uzswap.prom
";

pub const TOP: &str = "\
Keys: q quits; up and down choose a process, Enter shows it over time, Esc goes back; s, left and right
choose the column to sort by. What is no terminal gets one snapshot. Watched processes notice nothing.
Exit status: 0; 1 if there is no such run; 2 for wrong arguments.

Examples:
  uzswap top                                     every process under uzswap
  uzswap top 4711 -d 0.5                         one of them, over time
  uzswap top | head                              one snapshot
";

pub const SET_USAGE: &str = "uzswap set [OPTIONS] PID [KNOB=VALUE]...";

pub const SET: &str = "\
Without KNOB=VALUE the knobs are shown: value, what they take and what they are for. A change holds
for all processes of the run, from their next decision on.
Exit status: 0; 1 if there is no such run or it cannot be changed; 2 for wrong arguments, or a limit
lower than the least that works, with nothing changed.

'ram' may be raised and lowered: a higher limit holds at once; for a lower one the processes evict what
is too much, and 'set' waits until they have. If one cannot, nothing is changed.

Examples:
  uzswap set 4711
  uzswap set 4711 ram=128M
  uzswap set 4711 max_pool_percent=50 accept_threshold_percent=80
";

pub const ANALYZE_USAGE: &str = "\
uzswap analyze [--json] --pid PID [--for TIME]
       uzswap analyze [--json] [--verify] -- COMMAND [ARG]...";

pub const ANALYZE: &str = "\
The process is only read, and never stopped. What it says holds for what the program did while it was watched.
Exit status: 0; 2 for a process that cannot be watched; 126 and 127 if the command cannot be executed or was
not found; 130 after ^C, which ends the watch with what is known by then.

Examples:
  uzswap analyze --pid 4711 --for 2m
  uzswap analyze -- python3 job.py
  uzswap analyze --verify -- sort -S 1G big.txt -o /dev/null
";

pub const RECLAIM: &str = "\
The coldest goes first. Of a 'uzswap run' its processes are asked one after the other, the largest
first, until it is enough.
Exit status: 0; 1 if less than SIZE could be had, or nothing; 2 for wrong arguments.

Examples:
  uzswap reclaim 4711 256M                       compress 256 MiB of resident memory
  uzswap reclaim 4711 64M --writeback-only       move 64 MiB of compressed memory to swap
";

pub const BENCH: &str = "\
Exit status: 0; 1 if a suite failed; 2 for wrong arguments; 130 after ^C, with what was measured by then.

Examples:
  uzswap bench all --quick
  sudo uzswap bench usemem --json usemem.json    beside the kernel's zswap, as root
  uzswap report usemem.json
";

pub const REPORT: &str = "\
Exit status: 0; 1 if the file cannot be read or is cut; 2 for wrong arguments.

Examples:
  uzswap run --trace job.jsonl --ram 256M -- ./job; uzswap report job.jsonl -o job.html
  uzswap bench codecs --json codecs.json; uzswap report codecs.json
";

pub const SWAPOFF: &str = "\
What does not fit in RAM goes to the other devices. A device from which not everything can be brought
back stays in use, and nothing is lost.
Exit status: 0; 1 if not everything could be brought back, or there is no such device; 2 for wrong arguments.

Examples:
  uzswap swapoff 4711                            the only device
  uzswap swapoff 4711 /dev/nvme0n1p3             by its name
  uzswap swapoff 4711 2                          the second that 'uzswap stat 4711' shows
";
