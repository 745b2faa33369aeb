//! *What*: the usage lines and examples that end each subcommand's help.

pub const UZSWAP: &str = "\
Examples:
  uzswap run --ram 512M -- python3 job.py        a job of 2 GiB in 512 MiB
  uzswap run -- make                             as much RAM as the container still allows
  uzswap run --ram 1G --compressor zstd -- node server.js
  uzswap stat 4711                               what it saves, while it runs
  uzswap doctor                                  what this machine allows

Every option of 'run' can be set by an environment variable: --ram by UZSWAP_RAM, --swap-max by
UZSWAP_SWAP_MAX, and so on. '--help' explains more than '-h'.
";

pub const RUN_USAGE: &str = "uzswap run [OPTIONS] -- COMMAND [ARG]...";

pub const RUN: &str = "\
Sizes are bytes or take a unit of base 1024: 512M, 2G, 1.5GiB.

Signals sent to uzswap are passed on to the command, job control works as without uzswap, and the
command dies with uzswap, even if that is killed.

Exit status: the command's own; 128+N if signal N ended it; 125 if uzswap failed or had to end the
command; 126 and 127 if the command cannot be executed or was not found, as with env(1); 2 for a
--group that cannot be joined as asked.

Examples:
  uzswap run --ram 256M -- python3 job.py
  uzswap run --ram 1G --stats /tmp/job.json --quiet -- ./job --big
  UZSWAP_RAM=256M uzswap run -- sort --parallel=2 big.txt
  uzswap run --metrics 127.0.0.1:9100 --idle-reclaim 5m -- ./server
  uzswap run --group jobs/batch --ram 512M -- ./import                 within the limit of jobs
  uzswap run --swap /dev/nvme0n1p3,pri=10 --swap /var/tmp -- ./job     the disk first, then a file
  UZSWAP_SWAP='/mnt/a,pri=1;/mnt/b,pri=1' uzswap run -- ./job          both directories evenly
";

pub const STAT: &str = "\
Rates are measured over a quarter of a second.

Exit status: 0; 2 if there is no such group; 125 if there is no such process, or for wrong arguments.

Examples:
  uzswap stat 4711
  uzswap stat jobs/batch
  uzswap stat 4711 --json | jq .refaults
  uzswap stat 4711 --prometheus > /var/lib/node_exporter/uzswap.prom
";

pub const TOP: &str = "\
Keys: q quits; up and down select a process, Enter shows it over time, Esc goes back; s, left and
right select the column to sort by. If the output is not a terminal, one snapshot is printed.
Watching costs the watched processes nothing.

Exit status: 0; 1 if there is no such run; 2 for wrong arguments.

Examples:
  uzswap top                                     every process under uzswap
  uzswap top jobs                                those of a group
  uzswap top 4711 -d 0.5                         one of them, over time
  uzswap top | head                              one snapshot
";

pub const SET_USAGE: &str = "uzswap set [OPTIONS] GROUP|PID [KNOB=VALUE]...";

pub const SET: &str = "\
Without KNOB=VALUE, shows each knob's value, syntax and meaning. A change applies to all processes
of the run, from their next decision on.

Those of a group by name begin with its own controls, which no other group has: max, high, low,
zswap.max, swap.max and zswap.writeback.

A higher 'ram' or 'max' holds at once. For a lower one the processes evict what is too much, and 'set' waits
until they have. If one cannot, nothing changes.

Exit status: 0; 1 if there is no such run or it cannot be changed; 2 for wrong arguments or a limit
below the lowest that works. Unless it is 0, nothing has changed.

Examples:
  uzswap set 4711
  uzswap set 4711 ram=128M
  uzswap set jobs/batch max=768M
  uzswap set jobs/batch high=512M zswap.writeback=off
  uzswap set 4711 max_pool_percent=50 accept_threshold_percent=80
";

pub const ANALYZE_USAGE: &str = "\
uzswap analyze [--json] --pid PID [--for TIME]
       uzswap analyze [--json] [--verify] -- COMMAND [ARG]...";

pub const ANALYZE: &str = "\
The process is only read and never stopped. The prediction holds for what it did while watched.

Exit status: 0; 2 for a process that cannot be watched; 126 and 127 if the command cannot be
executed or was not found; 130 after ^C, which ends the watch and prints what is known by then.

Examples:
  uzswap analyze --pid 4711 --for 2m
  uzswap analyze -- python3 job.py
  uzswap analyze --verify -- sort -S 1G big.txt -o /dev/null
";

pub const RECLAIM: &str = "\
The coldest memory goes first. Given the pid of 'uzswap run', it asks the run's processes one after
the other, the largest first, until SIZE is reached. How old memory is tells the time since it came
into RAM, not since it was last used.

Exit status: 0; 1 if less than SIZE could be reclaimed, unless --older-than is given; 2 for wrong
arguments.

Examples:
  uzswap reclaim 4711 256M                       compress 256 MiB of resident memory
  uzswap reclaim 4711 --older-than 5m            what nobody brought in for five minutes
  uzswap reclaim 4711 64M --writeback-only       move 64 MiB of compressed memory to swap
";

pub const SWAPOFF: &str = "\
What does not fit in RAM goes to the other devices. If a device cannot be emptied, it stays in use
and nothing is lost. The run keeps an emptied device open until it ends.

Exit status: 0; 1 if the device cannot be emptied or does not exist; 2 for wrong arguments.

Examples:
  uzswap swapoff 4711                            the only device
  uzswap swapoff 4711 /dev/nvme0n1p3             by its name
  uzswap swapoff 4711 2                          the second in the output of 'uzswap stat 4711'
";

pub const BENCH: &str = "\
Exit status: 0; 1 if a suite failed; 2 for wrong arguments; 130 after ^C, which prints what was
measured by then.

Examples:
  uzswap bench all --quick
  sudo uzswap bench usemem --json usemem.json    beside the kernel's zswap, as root
  uzswap bench remote --quick --delay 0,1        with redis-server and nbdkit, if they are installed
  uzswap bench remote --simulate --quick
  uzswap report usemem.json
";

pub const REPORT: &str = "\
Exit status: 0; 1 if the file cannot be read or is truncated; 2 for wrong arguments.

Examples:
  uzswap run --trace job.jsonl --ram 256M -- ./job; uzswap report job.jsonl -o job.html
  uzswap bench codecs --json codecs.json; uzswap report codecs.json
";

pub const DOCTOR: &str = "\
It asks the functions that 'run' asks, with the options that UZSWAP_* variables set, and at last
runs a program. Each finding is 'ok'; 'worse', if programs run, but not as well as they could; or
'fails'. What to type is for a shell of the user that uzswap runs as; lines with sudo are for root.

Exit status: 0 if programs can be run; 1 if not; 2 for wrong arguments.

Examples:
  uzswap doctor
  uzswap doctor --json | jq '.findings[] | select(.verdict != \"ok\")'
  UZSWAP_FAULT_MODE=thread uzswap doctor         whether that mode would work
  docker run --rm IMAGE uzswap doctor            in a container of that image
";

pub const JUPYTER: &str = "\
The new kernelspec has the command of the old one, behind 'uzswap run'. If the old one is not found,
it starts ipykernel of the python3 in PATH. When a limit ends the kernel, the reason is shown as an
error of the cell that was running, and on the standard error of whatever started the kernel.

Exit status: 0; 1 if it cannot be written or removed; 2 for wrong arguments.

Examples:
  uzswap jupyter install --ram 4G                'Python 3 (uzswap, 4 GiB)' in the launcher
  uzswap jupyter install --kernel ir --name r-small --ram 1G
  uzswap jupyter install --prefix /opt/conda     for all users of that installation
  uzswap jupyter uninstall --name uzswap-python3
";

pub const COMPLETIONS: &str = "\
Exit status: 0; 1 if they cannot be printed; 2 for wrong arguments.

Examples:
  uzswap completions bash > ~/.local/share/bash-completion/completions/uzswap
  uzswap completions zsh > ~/.zfunc/_uzswap      with fpath+=~/.zfunc in ~/.zshrc
  uzswap completions fish > ~/.config/fish/completions/uzswap.fish
";

pub const MAN: &str = "\
Exit status: 0; 1 if they cannot be written; 2 for wrong arguments.

Examples:
  uzswap man ~/.local/share/man/man1
";
