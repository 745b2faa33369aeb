// hello [STATUS]: says so and ends with STATUS.
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    puts("hello");
    return argc > 1 ? atoi(argv[1]) : 0;
}
