// A library that says that it was loaded.
#include <unistd.h>

__attribute__((constructor)) static void loaded(void) {
    if (write(1, "hostile library\n", 16) != 16)
        _exit(1);
}
