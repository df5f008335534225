//! Durations of gRPC calls, with the metric names and labels of the Collector's instrumentation.

use std::time::Duration;

use metrics::{Histogram, histogram};

use crate::pipeline::batch::Code;
use tributary_otlp::Signal;

/// Metrics of calls, of the server or the client side.
#[derive(Clone)]
pub(crate) struct CallMetrics {
    name: &'static str,
    /// The method; `None` for the methods of OTLP.
    method: Option<&'static str>,
    /// Successful calls, by signal. Other outcomes are looked up on demand.
    good: [Histogram; 4],
    address: Option<(String, String)>,
}

impl CallMetrics {
    /// Returns the metrics of a receiver: `rpc_server_call_duration`.
    pub(crate) fn of_server() -> Self {
        CallMetrics::new("rpc_server_call_duration", None, None)
    }

    /// Returns the metrics of a receiver with one method, such as `package.Service/Method`.
    pub(crate) fn of_server_method(method: &'static str) -> Self {
        CallMetrics::new("rpc_server_call_duration", Some(method), None)
    }

    /// Returns the metrics of an exporter to this host and port: `rpc_client_call_duration`.
    pub(crate) fn of_client(host: &str, port: u16) -> Self {
        let address = (host.to_owned(), port.to_string());
        CallMetrics::new("rpc_client_call_duration", None, Some(address))
    }

    fn new(
        name: &'static str,
        method: Option<&'static str>,
        address: Option<(String, String)>,
    ) -> Self {
        let good =
            Signal::ALL.map(|signal| handle(name, method, address.as_ref(), signal, Code::Ok));
        CallMetrics {
            name,
            method,
            good,
            address,
        }
    }

    /// Records the duration and status of a call.
    pub(crate) fn ended(&self, signal: Signal, code: Code, time: Duration) {
        let seconds = time.as_secs_f64();
        match code {
            Code::Ok => self.good[signal.index()].record(seconds),
            code => {
                handle(self.name, self.method, self.address.as_ref(), signal, code).record(seconds);
            }
        }
    }
}

fn handle(
    name: &'static str,
    method: Option<&'static str>,
    address: Option<&(String, String)>,
    signal: Signal,
    code: Code,
) -> Histogram {
    let service = match signal {
        Signal::Traces => "trace.v1.TraceService",
        Signal::Metrics => "metrics.v1.MetricsService",
        Signal::Logs => "logs.v1.LogsService",
        Signal::Profiles => "profiles.v1development.ProfilesService",
    };
    let method = match method {
        Some(method) => method.to_owned(),
        None => format!("opentelemetry.proto.collector.{service}/Export"),
    };
    let mut labels = vec![
        ("rpc_method", method),
        ("rpc_response_status_code", status_name(code).to_owned()),
        ("rpc_system_name", "grpc".to_owned()),
    ];
    if let Some((host, port)) = address {
        labels.push(("server_address", host.clone()));
        labels.push(("server_port", port.clone()));
    }
    histogram!(name, &labels)
}

/// Returns the name of a status as in the gRPC specification.
fn status_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
