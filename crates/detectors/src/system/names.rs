//! The name of this host.

use std::net::IpAddr;

use dns_lookup::{AddrInfoHints, getaddrinfo, lookup_addr, lookup_host};
use tokio::task::spawn_blocking;
use tokio::time::timeout_at;

use crate::Detection;
use crate::config::HostNameSource;

/// Returns the name from the first source that works.
pub(super) async fn host_name(
    detection: &Detection<'_>,
    sources: &[HostNameSource],
) -> Result<String, String> {
    let own = rustix::system::uname();
    let own = own.nodename().to_string_lossy().into_owned();
    let mut reasons = Vec::new();
    for source in sources {
        let from_hosts = match source {
            HostNameSource::Os if !own.is_empty() => return Ok(own),
            HostNameSource::Os => {
                reasons.push("this host has no name".to_owned());
                continue;
            }
            HostNameSource::Dns => {
                let hosts = detection.machine.read("etc/hosts");
                qualified(&hosts.unwrap_or_default(), &own)
            }
            HostNameSource::Cname | HostNameSource::Lookup => None,
        };
        if let Some(name) = from_hosts {
            return Ok(name);
        }
        let (name, source) = (own.clone(), *source);
        // The system's resolver blocks, without a time limit of its own.
        let asked = spawn_blocking(move || ask(&name, source));
        match timeout_at(detection.deadline, asked).await {
            Ok(Ok(Ok(name))) => return Ok(name),
            Ok(Ok(Err(reason))) => reasons.push(reason),
            _ => reasons.push("DNS did not respond in time".to_owned()),
        }
    }
    Err(format!(
        "no source has the name of this host: {}; add `os` to `system.hostname_sources`",
        reasons.join("; ")
    ))
}

fn ask(own: &str, source: HostNameSource) -> Result<String, String> {
    match source {
        HostNameSource::Cname => canonical(own),
        HostNameSource::Lookup => reverse(own),
        _ => canonical(own)
            .and_then(|name| match name.contains('.') {
                true => Ok(name),
                false => Err(format!("`{name}` has no domain")),
            })
            .or_else(|_| reverse(own)),
    }
}

/// Returns the name with a domain on the line of a hosts file that lists `own`.
fn qualified(hosts: &str, own: &str) -> Option<String> {
    let lines = hosts
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    for line in lines {
        let names = || line.split_whitespace().skip(1);
        if names().any(|name| name == own)
            && let Some(name) = names().find(|name| name.contains('.'))
        {
            return Some(name.to_owned());
        }
    }
    None
}

/// Returns the canonical name in DNS.
fn canonical(own: &str) -> Result<String, String> {
    let hints = AddrInfoHints {
        flags: libc::AI_CANONNAME,
        ..AddrInfoHints::default()
    };
    let failed = |error: &dyn std::fmt::Display| format!("cannot resolve {own}: {error}");
    let mut found = getaddrinfo(Some(own), None, Some(hints))
        .map_err(|error| failed(&std::io::Error::from(error)))?;
    let first = found.next().ok_or_else(|| failed(&"no address"))?;
    let name = first.map_err(|error| failed(&error))?.canonname;
    name.map(|name| name.trim_end_matches('.').to_owned())
        .filter(|name| !name.is_empty())
        .ok_or_else(|| failed(&"no canonical name"))
}

/// Returns the name in DNS of an address of this host.
fn reverse(own: &str) -> Result<String, String> {
    let addresses = lookup_host(own).map_err(|error| format!("cannot resolve {own}: {error}"))?;
    let mut last = format!("{own} has no addresses");
    for address in addresses.collect::<Vec<IpAddr>>() {
        match lookup_addr(&address) {
            Ok(name) => return Ok(name.trim_end_matches('.').to_owned()),
            Err(error) => last = format!("DNS has no name for {address}: {error}"),
        }
    }
    Err(last)
}
