//! The attack suite of `examples/attack`: a short run with small attacks, and its refusal of other targets.

#[allow(clippy::duplicate_mod, reason = "it shares code with the tests")]
#[path = "../../examples/attack/attack/mod.rs"]
mod program;

use clap::Parser as _;

use crate::harness::Collector;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collector_withstands_every_attack_in_a_short_run() {
    let yaml = "receivers:
  otlp: {protocols: {grpc: {endpoint: '127.0.0.1:0'}, http: {endpoint: '127.0.0.1:0'}}}
  pprof: {server: {endpoint: '127.0.0.1:0'}}
processors: {memory_limiter: {limit_mib: 128, spike_limit_mib: 16}}
exporters: {nop: {}}
service:
  pipelines:
    traces: {receivers: [otlp], processors: [memory_limiter], exporters: [nop]}
    profiles: {receivers: [otlp, pprof], processors: [memory_limiter], exporters: [nop]}
";
    let collector = Collector::start(yaml).await;
    let addresses = [
        ("--grpc", collector.grpc()),
        ("--http", collector.http()),
        ("--pprof", collector.server("Starting HTTP server", "pprof")),
    ];
    // Without optimizations all steps take longer, and other tests run at the same time.
    let arguments = format!(
        "attack --seconds=2 --items=200000 --connections=20 --max-wait-ms=20000 --limit-mib=128 --pid={}",
        collector.pid()
    );
    let addresses = addresses.map(|(name, address)| format!("{name}={address}"));
    let arguments = arguments.split(' ').map(str::to_owned).chain(addresses);
    let options = program::Options::parse_from(arguments);
    let report = program::run(options).await.unwrap();
    let short: Vec<_> = report.failed().collect();
    assert!(short.is_empty(), "{short:#?}");
    collector.assert_conservation().await;
}

#[test]
fn only_loopback_addresses_are_attacked() {
    let refused = |address: &str| {
        let options = program::Options::try_parse_from(["attack", "--grpc", address]);
        options.err().map(|error| error.to_string())
    };
    for address in [
        "127.0.0.1:1",
        "127.3.2.1:1",
        "[::1]:1",
        "https://127.0.0.1:1",
    ] {
        assert_eq!(refused(address), None, "{address}");
    }
    for address in [
        "192.0.2.1:1",
        "[2001:db8::1]:1",
        "0.0.0.0:1",
        "https://10.0.0.1:1",
    ] {
        let error = refused(address).unwrap();
        assert!(error.contains("is not a loopback address"), "{error}");
    }
    // A name could resolve to any address.
    assert!(refused("localhost:1").unwrap().contains("is not IP:PORT"));
}
