//! The configuration of `otlp_grpc`.

use super::keys::grpc_client_section;
use crate::component::auth;
use crate::queue::{QueueConfig, RetryConfig};
use tributary_config::{ExtensionUse, Problems, Section, Validate};
use tributary_net::client::split_host_port;

grpc_client_section! {
    /// Sends OTLP requests over gRPC.
    pub struct Config {
        before: {
            /// Address of the server: `host:port`. The prefix `https://` forces TLS. `http://` and `dns:///` are accepted
            /// and have no effect: plaintext needs `tls: {insecure: true}`. Required.
            endpoint: String = String::new(),
        }
        after: {
            /// Sending queue. With `enabled: false`, senders wait while their data is sent. Default: on.
            sending_queue: Section<QueueConfig> = Section(Some(QueueConfig::default())),
            /// Retries after retryable failures. Default: on.
            retry_on_failure: Section<RetryConfig> = Section(Some(RetryConfig::default())),
        }
    }
}

/// The parts of an endpoint.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    pub(super) authority: &'a str,
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) tls: bool,
}

impl Config {
    pub(super) fn target(&self) -> Result<Target<'_>, String> {
        let (tls, authority) = match self.endpoint.split_once("://") {
            None => (false, self.endpoint.as_str()),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(("dns", rest)) => (false, rest.trim_start_matches('/')),
            Some((scheme, _)) => {
                return Err(format!(
                    "scheme \"{scheme}\" is not supported; write host:port, http:// or https://"
                ));
            }
        };
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        if authority.is_empty() {
            return Err("requires a non-empty \"endpoint\": write host:port".to_owned());
        }
        if authority.contains('/') {
            return Err(format!(
                "\"{authority}\" has a path, which gRPC does not support: write host:port"
            ));
        }
        let (host, port) = split_host_port(authority)?;
        Ok(Target {
            authority,
            host,
            port,
            tls: tls || !self.tls.is_plaintext(),
        })
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        match self.target() {
            Ok(target) if !target.tls => {
                auth::warn_about_plaintext(self.auth.as_ref(), false, target.host, problems);
            }
            Ok(_) => self.tls.validate_for_tls("tls", problems),
            Err(reason) => problems.error(&["endpoint"], reason),
        }
        self.compression_params
            .validate(self.compression.codec(), problems);
        if let Some(keepalive) = &*self.keepalive {
            for (key, duration) in [("time", keepalive.time), ("timeout", keepalive.timeout)] {
                if duration.is_zero() {
                    problems.error(&["keepalive", key], "must be above 0");
                }
            }
        }
        if !(65_535..=i32::MAX.unsigned_abs()).contains(&self.read_buffer_size) {
            problems.error(&["read_buffer_size"], "must be from 65535 to 2147483647");
        }
        if self.write_buffer_size == 0 || u32::try_from(self.write_buffer_size).is_err() {
            problems.error(&["write_buffer_size"], "must be from 1 to 4294967295");
        }
        if !(1..=64).contains(&self.connections) {
            problems.error(&["connections"], "must be from 1 to 64");
        }
        if let Some(queue) = &*self.sending_queue {
            problems.within("sending_queue", queue);
        }
        if let Some(retry) = &*self.retry_on_failure {
            problems.within("retry_on_failure", retry);
        }
        let (queue, retry) = (self.sending_queue.as_ref(), self.retry_on_failure.as_ref());
        crate::queue::warn_about_retry_limit(queue, retry, problems);
    }

    fn blocks_pipelines(&self) -> bool {
        crate::queue::blocks_pipelines(self.sending_queue.as_ref())
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let auth = self.auth.iter().map(|auth| auth.client_use(&["auth"]));
        auth.chain(self.sending_queue.iter().filter_map(QueueConfig::uses))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(yaml: &str) -> Vec<String> {
        crate::testing::problems::<Config>(yaml)
    }

    #[test]
    fn configuration_of_the_collector_is_accepted() {
        let yaml = "
endpoint: http://tempo:4317
tls: {insecure: true}
compression: zstd
headers: {x-scope-orgid: a}
timeout: 10s
keepalive: {time: 20s, permit_without_stream: true}
read_buffer_size: 123456
wait_for_ready: true
balancer_name: pick_first
sending_queue: {queue_size: 5000, num_consumers: 4}
retry_on_failure: {max_elapsed_time: 0s}
";
        assert_eq!(problems(yaml), Vec::<String>::new());
    }

    #[test]
    fn only_https_scheme_enables_tls() {
        let target = |yaml: &str| {
            let config: Config = serde_yaml::from_str(yaml).unwrap();
            let target = config.target().map_err(|_| ())?;
            Ok((target.host.to_owned(), target.port, target.tls))
        };
        let a = |tls| Ok(("a".to_owned(), 1, tls));
        assert_eq!(target("endpoint: a:1"), a(true));
        assert_eq!(target("endpoint: http://a:1"), a(true));
        assert_eq!(target("endpoint: dns:///a:1"), a(true));
        assert_eq!(
            target("{endpoint: 'http://a:1/', tls: {insecure: true}}"),
            a(false)
        );
        assert_eq!(
            target("{endpoint: 'https://a:1', tls: {insecure: true}}"),
            a(true)
        );
        assert_eq!(target("endpoint: unix:///a"), Err(()));
        assert_eq!(target("endpoint: a:1/v1/traces"), Err(()));
        assert_eq!(target("endpoint: a"), Err(()));
    }

    #[test]
    fn violated_rules_are_reported_at_their_keys() {
        let yaml = "
tls: {insecure: true}
compression: snappy
compression_params: {level: 3}
keepalive: {time: 0s}
read_buffer_size: 0
write_buffer_size: 0
connections: 0
sending_queue: {num_consumers: 0}
retry_on_failure: {multiplier: 0}
";
        assert_eq!(
            problems(yaml),
            [
                "endpoint",
                "compression_params::level",
                "keepalive::time",
                "read_buffer_size",
                "write_buffer_size",
                "connections",
                "sending_queue::num_consumers",
                "retry_on_failure::multiplier",
            ]
        );
    }
}
