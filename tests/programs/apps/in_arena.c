// in_arena: a program with a segment of its own in the address range that uzswap manages. Link with
// -no-pie -mcmodel=large -Wl,--section-start=.inarena=0x100000400000
#include <stdio.h>

__attribute__((section(".inarena"))) volatile int there[1024] = {41};

int main(void) {
    there[0]++;
    printf("%p: %d\n", (void *)there, there[0]);
    return 0;
}
