import java.util.*;

/** Accounts and their bookings in collections, indexed, some of it garbage. */
public class Ledger {
    record Booking(long id, String text, double amount, int account) {}

    public static void main(String[] args) throws Exception {
        var random = new Random(4);
        var words = "order left harbour customer blue seven window letter north paper".split(" ");
        var all = new ArrayList<Booking>();
        var byAccount = new HashMap<Integer, List<Booking>>();
        var byText = new TreeMap<String, Booking>();
        for (int i = 0; i < 700_000; i++) {
            var text = words[random.nextInt(words.length)] + " " + words[random.nextInt(words.length)] + " " + i % 50_000;
            var booking = new Booking(i, text, Math.round(random.nextGaussian() * 10_000) / 100.0, random.nextInt(20_000));
            all.add(booking);
            byAccount.computeIfAbsent(booking.account(), k -> new ArrayList<>()).add(booking);
            byText.put(text, booking);
            if (i % 4 == 0) all.set(random.nextInt(all.size()), null);
        }
        System.in.read();
        System.out.println(all.size() + byAccount.size() + byText.size());
    }
}
