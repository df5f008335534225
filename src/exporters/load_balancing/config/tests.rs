use super::*;

fn problems(yaml: &str) -> Vec<String> {
    crate::testing::problems::<Config>(yaml)
}

#[test]
fn configuration_of_the_collector_is_accepted() {
    let yaml = "
routing_key: service
protocol: {otlp: {timeout: 1s, tls: {insecure: true}, sending_queue: {enabled: false}}}
resolver: {static: {hostnames: ['backend-1:4317', backend-2, '::1']}}
timeout: 10s
retry_on_failure: {enabled: true, max_elapsed_time: 0s}
sending_queue: {queue_size: 5000}
";
    assert_eq!(problems(yaml), Vec::<String>::new());
    let yaml = "
protocol: {otlp: {tls: {insecure: true}}}
resolver: {dns: {hostname: members.local, port: 5317}}
";
    assert_eq!(problems(yaml), Vec::<String>::new());
}

#[test]
fn violated_rules_are_reported_at_their_keys() {
    let yaml = "
routing_attributes: [a]
protocol:
  otlp:
    endpoint: 'a:1'
    compression_params: {level: 99}
    sending_queue: {queue_size: 1}
    retry_on_failure: {}
resolver:
  static: {hostnames: ['a:1', 'a:1', 'http://b', ':1', 'c:0']}
  dns: {hostname: 'a:1', port: 0, interval: 0s, timeout: 0s}
  file: {path: members.txt, refresh_interval: 0s}
  k8s: {service: a}
hash_balance_factor: 100
member_backoff: {initial_interval: 0s}
sending_queue: {num_consumers: 0}
retry_on_failure: {multiplier: 0}
";
    assert_eq!(
        problems(yaml),
        [
            "routing_attributes",
            "protocol::otlp::endpoint",
            "protocol::otlp::sending_queue",
            "protocol::otlp::retry_on_failure",
            "protocol::otlp::compression_params::level",
            "resolver::k8s",
            "resolver",
            "resolver::static::hostnames::1",
            "resolver::static::hostnames::2",
            "resolver::static::hostnames::3",
            "resolver::static::hostnames::4",
            "resolver::dns::hostname",
            "resolver::dns::port",
            "resolver::dns::interval",
            "resolver::dns::timeout",
            "resolver::file::path",
            "resolver::file::refresh_interval",
            "hash_balance_factor",
            "member_backoff::initial_interval",
            "sending_queue::num_consumers",
            "retry_on_failure::multiplier",
        ]
    );
    assert_eq!(
        problems("{routing_key: attributes}"),
        ["routing_attributes", "resolver"]
    );
    let backoff = "{resolver: {static: {hostnames: [a]}}, member_backoff: {max_interval: 500ms}}";
    assert_eq!(problems(backoff), ["member_backoff::max_interval"]);
}
