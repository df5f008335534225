//! Protocol settings for members: the configuration of `otlp_grpc` without the keys that do not
//! apply to a member.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exporters::otlp_grpc;
use crate::exporters::otlp_grpc::keys::grpc_client_section;
use tributary_config::{Problems, Section, Unread, Validate as _};

/// Protocol settings of all members.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MemberProtocol {
    /// OTLP over gRPC.
    pub otlp: Otlp,
}

grpc_client_section! {
    /// OTLP over gRPC, with the keys of `otlp_grpc`. After `timeout`, the next member is tried.
    pub struct Otlp {
        before: {}
        after: {
            /// Not supported here: `resolver` defines the members.
            #[serde(skip_serializing)]
            endpoint: Option<Unread> = None,
            /// Not supported here: configure the queue next to `protocol`. `enabled: false` is accepted.
            #[serde(skip_serializing)]
            sending_queue: Section<Unread> = Section(None),
            /// Not supported here: configure retries next to `protocol`. `enabled: false` is accepted.
            #[serde(skip_serializing)]
            retry_on_failure: Section<Unread> = Section(None),
        }
    }
}

impl Otlp {
    /// Returns the configuration of the exporter to a member at this address.
    pub(super) fn at(&self, address: &str) -> otlp_grpc::Config {
        let own = self.clone();
        otlp_grpc::Config {
            endpoint: address.to_owned(),
            tls: own.tls,
            auth: own.auth,
            compression: own.compression,
            compression_params: own.compression_params,
            headers: own.headers,
            timeout: own.timeout,
            keepalive: own.keepalive,
            read_buffer_size: own.read_buffer_size,
            write_buffer_size: own.write_buffer_size,
            wait_for_ready: own.wait_for_ready,
            user_agent: own.user_agent,
            balancer_name: own.balancer_name,
            authority: own.authority,
            connections: own.connections,
            sending_queue: Section(None),
            retry_on_failure: Section(None),
        }
    }
}

impl MemberProtocol {
    /// Reports all invalid settings for a member at this address.
    pub(super) fn check(&self, address: &str, problems: &mut Problems) {
        if self.otlp.endpoint.is_some() {
            let message = "is not supported here: `resolver` lists the addresses of the members";
            problems.error(&["otlp", "endpoint"], message);
        }
        if self.otlp.sending_queue.is_some() {
            let message = "is not supported for a member, because queued data may go to another member: set \
                           `sending_queue` beside `protocol`";
            problems.error(&["otlp", "sending_queue"], message);
        }
        if self.otlp.retry_on_failure.is_some() {
            let message = "is not supported for a member, because a refused request goes to another member: set \
                           `retry_on_failure` beside `protocol`";
            problems.error(&["otlp", "retry_on_failure"], message);
        }
        let mut member = Problems::default();
        self.otlp.at(address).validate(&mut member);
        // Invalid addresses are reported at their own position.
        if !member
            .found()
            .iter()
            .any(|problem| problem.path == ["endpoint"])
        {
            problems.extend(&["otlp"], member);
        }
    }
}
