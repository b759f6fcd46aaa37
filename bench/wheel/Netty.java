import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import java.lang.management.ManagementFactory;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.TimeUnit;

/** Measures Netty's HashedWheelTimer as cells.go measures the peers in Go. */
public class Netty {
    static final int CHUNK = 10_000;
    static int samples = 2;
    static final TimerTask NOTHING = timeout -> {};
    static final Map<String, List<Double>> out = new LinkedHashMap<>();
    static final HashedWheelTimer timer = new HashedWheelTimer(1, TimeUnit.MILLISECONDS, 512);
    static final long[] delays = new long[1 << 16];

    public static void main(String[] args) throws Exception {
        Random random = new Random(1);
        for (int i = 0; i < delays.length; i++) {
            delays[i] = (long) ((60 + random.nextDouble() * 3600) * 1e9);
        }
        int n = Integer.parseInt(args[1]);
        boolean quick = args[2].equals("true");
        switch (args[0]) {
            case "ops": operations(n, quick); break;
            case "late": lateness(n, quick); break;
            case "idle": idle(); break;
            default: throw new IllegalArgumentException(args[0]);
        }
        StringJoiner json = new StringJoiner(", ", "{", "}");
        out.forEach((name, value) -> json.add('"' + name + "\": " + value));
        System.out.println(json);
        System.exit(0);
    }

    static void add(String name, double sample) {
        out.computeIfAbsent(name, n -> new ArrayList<>()).add(sample);
    }

    static Timeout after(long nanos) {
        return timer.newTimeout(NOTHING, nanos, TimeUnit.NANOSECONDS);
    }

    interface Chunk { void run(); }

    static void timed(String name, long budget, Chunk run, Chunk undo) {
        for (long warm = System.nanoTime(); System.nanoTime() - warm < budget / 2; ) {
            run.run();
            undo.run();
        }
        for (int sample = 0; sample < samples; sample++) {
            long wall = 0, cpu = 0, calls = 0;
            while (wall < budget) {
                long cpuBefore = cpu(), start = System.nanoTime();
                run.run();
                wall += System.nanoTime() - start;
                cpu += cpu() - cpuBefore;
                undo.run();
                calls += CHUNK;
            }
            add(name, (double) wall / calls);
            add(name + " cpu", (double) cpu / calls);
        }
    }

    static void operations(int n, boolean quick) throws Exception {
        if (n == 10_000_000) samples = 5; // as it runs only once
        long budget = quick ? 15_000_000 : 150_000_000;
        Timeout[] pending = new Timeout[Math.max(n, 1)];
        Timeout[] added = new Timeout[CHUNK];
        Random picker = new Random(2);
        after(3_600_000_000_000L).cancel();
        double before = heap();
        long start = System.nanoTime();
        for (int i = 0; i < pending.length; i++) {
            pending[i] = after(delays[i % delays.length]);
        }
        if (n > 0) {
            add("fill", (double) (System.nanoTime() - start) / n);
            Thread.sleep(n / 50_000); // the worker takes at most 100,000 a tick out of the queue
            add("heap", (heap() - before) / n);
        }
        timed("schedule", budget, () -> {
            for (int i = 0; i < CHUNK; i++) added[i] = after(delays[i]);
        }, () -> {
            for (Timeout t : added) t.cancel();
        });
        timed("schedule+cancel", budget, () -> {
            for (int i = 0; i < CHUNK; i++) after(delays[i]).cancel();
        }, () -> {});
        Chunk churn = () -> {
            for (int i = 0; i < CHUNK; i++) {
                int k = picker.nextInt(pending.length);
                pending[k].cancel();
                pending[k] = after(delays[i]);
            }
        };
        timed("reschedule", budget, churn, () -> {}); // it has no other way
        timed("churn", budget, churn, () -> {});
        if (n == 1_000_000) {
            for (int threads : new int[] {1, 2, 8}) {
                add("goroutines " + threads, contend(threads, budget));
            }
        }
        Arrays.fill(pending, null);
        System.gc();
        for (int i = 0; i < samples; i++) {
            start = System.nanoTime();
            System.gc();
            add("gc", (System.nanoTime() - start) / 1e6);
        }
    }

    static double contend(int threads, long budget) throws Exception {
        long[] counts = new long[threads];
        Thread[] all = new Thread[threads];
        long start = System.nanoTime();
        for (int t = 0; t < threads; t++) {
            int self = t;
            all[t] = new Thread(() -> {
                long n = 0;
                for (; System.nanoTime() - start < budget; n += 1000) {
                    for (int i = 0; i < 1000; i++) after(delays[self * 1000 + i]).cancel();
                }
                counts[self] = n;
            });
            all[t].start();
        }
        for (Thread t : all) t.join();
        return (double) (System.nanoTime() - start) / Arrays.stream(counts).sum();
    }

    static void lateness(int perSecond, boolean quick) throws Exception {
        double window = quick ? .5 : 2; // seconds
        int n = (int) (window * perSecond);
        long lead = 1_000_000_000L, every = 1_000_000_000L / perSecond, notFired = Long.MIN_VALUE;
        long[] late = new long[n];
        Arrays.fill(late, notFired);
        List<Integer> order = new ArrayList<>();
        for (int i = 0; i < n; i++) order.add(i);
        Collections.shuffle(order, new Random(1));
        long start = System.nanoTime();
        for (int id : order) {
            long due = start + lead + id * every;
            timer.newTimeout(t -> late[id] = System.nanoTime() - due, due - System.nanoTime(), TimeUnit.NANOSECONDS);
        }
        order = null;
        System.gc();
        if (System.nanoTime() - start > lead) add("overrun", (System.nanoTime() - start) / 1e9);
        long cpuBefore = cpu();
        Thread.sleep((lead + n * every - (System.nanoTime() - start)) / 1_000_000 + 100);
        long cpuAfter = cpu();
        long[] fired = Arrays.stream(late).filter(l -> l != notFired).sorted().toArray();
        double[] q = {.5, .99, .999, 1};
        String[] names = {"p50", "p99", "p99.9", "max"};
        for (int i = 0; i < q.length; i++) add(names[i], fired[(int) (q[i] * (fired.length - 1))] / 1e6);
        add("early", 100.0 * Arrays.stream(fired).filter(l -> l < 0).count() / n);
        add("missing", 100.0 * (n - fired.length) / n);
        add("over 2ms", 100.0 * Arrays.stream(fired).filter(l -> l > 2_000_000).count() / n);
        add("cpu", (cpuAfter - cpuBefore) / 1e9);
    }

    static void idle() throws Exception {
        after(3_600_000_000_000L);
        Thread.sleep(3000); // as in cells.go, settle
        long before = switches();
        while (System.in.read() >= 0) {}
        add("switches", (double) (switches() - before));
    }

    static double heap() throws Exception {
        for (int i = 0; i < 2; i++) {
            System.gc();
            Thread.sleep(50);
        }
        Runtime r = Runtime.getRuntime();
        return r.totalMemory() - r.freeMemory();
    }

    static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    static long switches() throws Exception {
        long sum = 0;
        try (DirectoryStream<Path> tasks = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
            for (Path task : tasks) {
                for (String line : Files.readAllLines(task.resolve("status"))) {
                    if (line.contains("ctxt_switches")) sum += Long.parseLong(line.replaceAll("\\D", ""));
                }
            }
        }
        return sum;
    }
}
