//! Finds the process that already listens on an address, if the system reports it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Returns a process that listens on the port of `address`, on that address or on all addresses: `process 1234
/// (jaeger)`. Returns `None` without `/proc`, or if the process belongs to another user.
pub(super) fn of(address: SocketAddr) -> Option<String> {
    let sockets = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter();
    let tables = sockets.filter_map(|table| fs::read_to_string(table).ok());
    let inodes: Vec<String> = tables
        .flat_map(|table| listening(&table, address))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let mut numbered = processes.map(|process| process.path()).filter(|process| {
        let name = process.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    });
    let holder = numbered.find(|process| {
        let files = fs::read_dir(process.join("fd")).into_iter().flatten();
        let mut links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        links.any(|link| {
            inodes
                .iter()
                .any(|inode| link.as_os_str() == inode.as_str())
        })
    })?;
    let number = holder.file_name()?.to_str()?.to_owned();
    let name = fs::read_to_string(holder.join("comm")).unwrap_or_default();
    Some(format!("process {number} ({})", name.trim_end()))
}

/// Returns the inodes of the sockets that listen there, from a table as in proc_pid_net(5).
fn listening(table: &str, wanted: SocketAddr) -> Vec<u64> {
    let lines = table.lines().skip(1);
    let found = lines.filter_map(|line| {
        let mut fields = line.split_whitespace();
        let local = address(fields.nth(1)?)?;
        let is_listening = fields.nth(1)? == "0A";
        let is_there = local.port() == wanted.port()
            && (local.ip() == wanted.ip() || local.ip().is_unspecified());
        let inode = fields.nth(5)?.parse().ok()?;
        (is_listening && is_there).then_some(inode)
    });
    found.collect()
}

/// Parses `0100007F:10DD` or the same with 32 digits: words in the machine's byte order, and a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let word = u32::from_str_radix(host.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    let ip: IpAddr = match host.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut octets = [0; 16];
            for (number, octets) in octets.chunks_exact_mut(4).enumerate() {
                octets.copy_from_slice(&word(8 * number)?);
            }
            Ipv6Addr::from(octets).to_canonical()
        }
        _ => return None,
    };
    Some((ip, port).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn holder_of_our_own_socket_is_this_process() {
        for host in ["127.0.0.1", "::1"] {
            let ip: IpAddr = host.parse().unwrap();
            let Ok(listener) = std::net::TcpListener::bind((ip, 0)) else {
                continue;
            };
            let holder = of(listener.local_addr().unwrap()).unwrap();
            let process = format!("process {} (", std::process::id());
            assert!(holder.starts_with(&process), "{holder}");
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn table_lists_sockets_on_address_or_wildcard() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:10DD 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0\n\
            1: 00000000:10DD 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0\n\
            2: 0200007F:10DD 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13 1 0\n\
            3: 0100007F:10DD 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 14 1 0\n";
        let at = |text: &str| listening(table, text.parse().unwrap());
        assert_eq!(at("127.0.0.1:4317"), [11, 12]);
        assert_eq!(at("127.0.0.2:4317"), [12, 13]);
        assert_eq!(at("127.0.0.1:4318"), [0; 0]);
        let v6 = address("00000000000000000000000001000000:10DE");
        assert_eq!(v6, Some("[::1]:4318".parse().unwrap()));
    }
}
