import io.pyroscope.http.Format;
import io.pyroscope.javaagent.EventType;
import io.pyroscope.javaagent.PyroscopeAgent;
import io.pyroscope.javaagent.config.Config;
import io.pyroscope.labels.v2.LabelsSet;
import io.pyroscope.labels.v2.Pyroscope;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** A program under load for some seconds, with Pyroscope's agent: Shop URL. */
class Shop {
  static final List<byte[]> kept = new ArrayList<>();

  static long work() {
    long total = 0;
    for (int number = 0; number < 1000000; number++) total += (long) number * number;
    for (int each = 0; each < 200; each++) kept.add(new byte[10000]);
    if (kept.size() > 2000) kept.clear();
    return total;
  }

  public static void main(String[] arguments) throws Exception {
    PyroscopeAgent.start(
        new Config.Builder()
            .setApplicationName("shop.java")
            .setServerAddress(arguments[0])
            .setTenantID("team-a")
            .setLabels(java.util.Map.of("region", "eu"))
            .setFormat(Format.JFR)
            .setProfilingEvent(EventType.ITIMER)
            .setProfilingAlloc("128k")
            .setProfilingLock("1ms")
            .setUploadInterval(Duration.ofSeconds(2))
            .build());
    Object lock = new Object();
    Thread holder =
        new Thread(
            () -> {
              while (true) {
                synchronized (lock) {
                  try {
                    Thread.sleep(30);
                  } catch (InterruptedException error) {
                    return;
                  }
                }
              }
            });
    holder.setDaemon(true);
    holder.start();
    long end = System.currentTimeMillis() + 5000;
    Pyroscope.LabelsWrapper.run(
        new LabelsSet("route", "/cart"),
        () -> {
          while (System.currentTimeMillis() < end) {
            work();
            synchronized (lock) {
              work();
            }
          }
        });
    // The last interval is uploaded.
    Thread.sleep(3000);
    System.exit(0);
  }
}
