# A log taken apart into hashes of hashes, with counts and an inverted index.
use strict;
my $seed = 3;
sub below { $seed = ($seed * 1103515245 + 12345) & 0x7fffffff; return ($seed >> 8) % $_[0]; }
my @words = qw(order left harbour customer blue seven window letter north paper delayed river market);
my (%by_host, %index, @lines);
for my $i (1 .. 220_000) {
    my $line = join ' ', map { $words[below(scalar @words)] } 1 .. 4 + below(5);
    my $record = { id => $i, host => 'host-' . below(50), ms => below(2000), line => $line, at => 1700000000 + $i * 3 };
    push @lines, $record;
    push @{ $by_host{ $record->{host} } }, $record;
    $index{$_}{$i}++ for (split ' ', $line)[0, 1];
}
<STDIN>;
