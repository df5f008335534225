//! Checks that no two running components listen on the same address.

use crate::app::config::facts::{Facts, Listening};
use tributary_config::report::{Diagnostic, Report};
use tributary_config::units::Endpoint;

pub(super) fn check(facts: &Facts, report: &mut Report) {
    let mut running: Vec<&Listening> = facts
        .listening
        .iter()
        .filter(|listening| match &listening.component {
            Some((kind, id)) => facts.runs(*kind, id),
            None => true,
        })
        .collect();
    // A conflict with a default is reported at the position of the explicit address.
    running.sort_by_key(|listening| (listening.written, listening.span));
    for (index, later) in running.iter().enumerate() {
        let earlier = running
            .iter()
            .take(index)
            .find(|earlier| overlap(&earlier.endpoint, &later.endpoint));
        if let Some(earlier) = earlier {
            let (one, other) = (&earlier.endpoint.0, &later.endpoint.0);
            let who = if earlier.owner == later.owner {
                format!("{} listens twice", earlier.owner)
            } else {
                format!("{} and {} listen", earlier.owner, later.owner)
            };
            let message = if one == other {
                format!("{who} on `{one}`")
            } else {
                format!("{who} on the same address, as `{one}` and `{other}`")
            };
            let mut diagnostic = Diagnostic::error(message, later.span).path(later.path.clone());
            if earlier.written {
                diagnostic = diagnostic.related(earlier.span, "the other one");
            } else {
                let path = earlier.path.join(".");
                diagnostic = diagnostic.help(format!(
                    "`{}` is the default of `{path}`",
                    earlier.endpoint.0
                ));
            }
            report.push(diagnostic.help("set another port for one of the two"));
        }
    }
}

/// Whether the kernel would refuse to bind the second of two addresses.
fn overlap(a: &Endpoint, b: &Endpoint) -> bool {
    // Port 0 requests any free port.
    if a.port() != b.port() || a.port() == Some(0) {
        return false;
    }
    let (a, b) = (host(a), host(b));
    let covers = |wide: &str, other: &str| match wide {
        // An IPv6 wildcard socket accepts IPv4 connections, too.
        "::" => true,
        "0.0.0.0" => !other.contains(':'),
        _ => false,
    };
    a == b || covers(&a, &b) || covers(&b, &a)
}

fn host(endpoint: &Endpoint) -> String {
    let host = endpoint.host().to_ascii_lowercase();
    match host.as_str() {
        "" => "0.0.0.0".to_owned(),
        "localhost" => "127.0.0.1".to_owned(),
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_addresses_overlap_with_hosts() {
        let overlap = |a: &str, b: &str| {
            let (a, b) = (Endpoint(a.to_owned()), Endpoint(b.to_owned()));
            assert_eq!(super::overlap(&a, &b), super::overlap(&b, &a));
            super::overlap(&a, &b)
        };
        assert!(overlap("localhost:1", "127.0.0.1:1"));
        assert!(overlap(":1", "localhost:1"));
        assert!(overlap("0.0.0.0:1", "192.0.2.1:1"));
        assert!(overlap("[::]:1", "127.0.0.1:1"));
        assert!(overlap("[::]:1", "[::1]:1"));
        assert!(!overlap("0.0.0.0:1", "[::1]:1"));
        assert!(!overlap("localhost:1", "localhost:2"));
        assert!(!overlap("localhost:0", "localhost:0"));
        assert!(!overlap("192.0.2.1:1", "127.0.0.1:1"));
    }
}
