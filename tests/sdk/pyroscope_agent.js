// A program under load for some seconds, with Pyroscope's agent: pyroscope_agent.js URL.
const Pyroscope = require('@pyroscope/nodejs');

Pyroscope.init({
  serverAddress: process.argv[2],
  appName: 'shop-node',
  tags: { region: 'eu' },
  tenantID: 'team-a',
  flushIntervalMs: 2000,
  wall: { collectCpuTime: true, samplingDurationMs: 2000 },
});
Pyroscope.start();

const kept = [];
const end = Date.now() + 5000;

function work() {
  let total = 0;
  for (let number = 0; number < 1e6; number++) total += number * number;
  kept.push(new Array(1000).fill(total));
  if (Date.now() < end) {
    setImmediate(work);
  } else {
    Pyroscope.stop().then(() => process.exit(0));
  }
}
work();
