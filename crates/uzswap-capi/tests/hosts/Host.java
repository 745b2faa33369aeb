/** What a virtual machine uses SIGSEGV for, and its collector, while a pool is used beside it. */
public class Host {
    private int field = 1;

    /** Dereferences null n / 2 times, in code that gets compiled; returns how often it was caught. */
    public static int nulls(int n) {
        int caught = 0;
        for (int i = 0; i < n; i++) {
            Host host = i % 2 == 0 ? null : new Host();
            try {
                caught += host.field - 1;
            } catch (NullPointerException e) {
                caught++;
            }
        }
        StringBuilder garbage = new StringBuilder();
        for (int i = 0; i < 100; i++) {
            garbage.append(new byte[100_000].length);
        }
        System.gc();
        return garbage.length() > 0 ? caught : 0;
    }

    /** The sum of a direct buffer's bytes, read by compiled code where the pool's faults come. */
    public static long sum(java.nio.ByteBuffer bytes) {
        long sum = 0;
        for (int i = 0; i < bytes.capacity(); i++) {
            sum += bytes.get(i);
        }
        return sum;
    }
}
