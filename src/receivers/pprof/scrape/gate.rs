//! Gates against concurrent profiles of one server: Go can create one CPU profile at a time.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};

use http::Uri;
use parking_lot::Mutex;

use crate::receivers::scraping::client::port_of;
use tributary_net::client::host_of;

/// Locked while a profile is being scraped.
pub(super) type Gate = tokio::sync::Mutex<()>;

/// Gates of all receivers in the process, including receivers that a reload is about to stop.
static GATES: LazyLock<Mutex<HashMap<String, Weak<Gate>>>> = LazyLock::new(Mutex::default);

/// Returns the gate of a URL's server and path, ignoring the query.
pub(super) fn of(url: &Uri) -> Arc<Gate> {
    let mut gates = GATES.lock();
    gates.retain(|_, gate| gate.strong_count() > 0);
    let host = host_of(url).to_ascii_lowercase();
    let host = match host.as_str() {
        "127.0.0.1" | "::1" => "localhost",
        host => host,
    };
    let key = format!("{host}:{}{}", port_of(url), url.path());
    let known = gates.get(&key).and_then(Weak::upgrade);
    known.unwrap_or_else(|| {
        let gate = Arc::new(Gate::default());
        gates.insert(key, Arc::downgrade(&gate));
        gate
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equivalent_urls_share_a_gate() {
        let gate = |url: &str| of(&url.parse().unwrap());
        let first = gate("http://Gate.Example/debug/pprof/profile?seconds=5");
        let same = gate("http://gate.example:80/debug/pprof/profile");
        assert!(Arc::ptr_eq(&first, &same));
        let local = gate("http://localhost:1/p");
        assert!(Arc::ptr_eq(&local, &gate("http://127.0.0.1:1/p?seconds=1")));
        assert!(Arc::ptr_eq(&local, &gate("http://[::1]:1/p")));
        assert!(!Arc::ptr_eq(
            &first,
            &gate("http://gate.example/debug/fgprof")
        ));
        assert!(!Arc::ptr_eq(
            &first,
            &gate("http://gate.example:81/debug/pprof/profile")
        ));
    }
}
