// Sends spans with zipkin-js and with Jaeger's client: node spans.js MODULES ZIPKIN_URL JAEGER_URL AGENT_PORT
const [modules, zipkinUrl, jaegerUrl, agentPort] = process.argv.slice(2);
const load = (name) => require(`${modules}/${name}`);

const { Tracer, BatchRecorder, ConsoleRecorder, jsonEncoder, ExplicitContext, Annotation } = load("zipkin");
const { HttpLogger } = load("zipkin-transport-http");

async function zipkin(service, path, encoder) {
  const logger = new HttpLogger({ endpoint: zipkinUrl + path, jsonEncoder: encoder, httpInterval: 50 });
  const recorder = new BatchRecorder({ logger });
  const tracer = new Tracer({ ctxImpl: new ExplicitContext(), recorder, localServiceName: service });
  for (let at = 0; at < 20; at += 1) {
    tracer.local(`work ${at}`, () => tracer.recordBinary("text", "Gr\u00fc\u00dfe"));
    tracer.scoped(() => {
      tracer.setId(tracer.createRootId());
      tracer.recordServiceName(service);
      tracer.recordRpc("get");
      tracer.recordAnnotation(new Annotation.ClientSend());
      tracer.recordAnnotation(new Annotation.ServerAddr({ serviceName: "db", port: 5432 }));
      tracer.recordMessage("half way");
      tracer.recordAnnotation(new Annotation.ClientRecv());
    });
  }
  await new Promise((resolve, reject) => {
    logger.on("success", resolve);
    logger.on("error", reject);
  });
}

async function jaeger(service, reporter) {
  const { initTracer, opentracing } = load("jaeger-client");
  const tracer = initTracer({ serviceName: service, sampler: { type: "const", param: 1 }, reporter });
  for (let at = 0; at < 20; at += 1) {
    const parent = tracer.startSpan(`parent ${at}`);
    const child = tracer.startSpan("child", { childOf: parent, tags: { "span.kind": "client", number: at } });
    child.setTag(opentracing ? opentracing.Tags.ERROR : "error", true);
    child.log({ event: "retry", attempt: 2 });
    child.finish();
    parent.finish();
  }
  await new Promise((resolve) => tracer.close(resolve));
}

// The timers of the clients do not keep the process alive.
setInterval(() => {}, 1000);
process.on("unhandledRejection", (error) => {
  console.error(error);
  process.exit(1);
});

(async () => {
  await zipkin("js-v1", "/api/v1/spans", jsonEncoder.JSON_V1);
  await zipkin("js-v2", "/api/v2/spans", jsonEncoder.JSON_V2);
  await jaeger("js-http", { collectorEndpoint: jaegerUrl });
  await jaeger("js-udp", { agentHost: "127.0.0.1", agentPort: Number(agentPort) });
  process.exit(0);
})();
