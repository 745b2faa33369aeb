// An image, to be built without a C library: says that it was started, and ends the process.
__asm__(".globl _start\n"
        "_start: mov $1, %eax\n"
        "mov $1, %edi\n"
        "lea text(%rip), %rsi\n"
        "mov $14, %edx\n"
        "syscall\n"
        "mov $231, %eax\n"
        "xor %edi, %edi\n"
        "syscall\n"
        "text: .ascii \"hostile image\\n\"\n");
