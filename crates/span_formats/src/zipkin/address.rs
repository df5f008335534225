//! Texts of IP addresses, as Go's `net.IP` formats them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Formats an address. An IPv4 address within IPv6 is an IPv4 address.
pub(super) fn text(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.to_string(),
            None => address.to_string(),
        },
    }
}

/// Formats an address of 4 or 16 bytes; `None` without bytes. Other bytes become hexadecimal digits after `?`.
pub(super) fn text_of_bytes(bytes: &[u8]) -> Option<String> {
    if bytes.is_empty() {
        return None;
    }
    if let Ok(address) = <[u8; 4]>::try_from(bytes) {
        return Some(text(Ipv4Addr::from(address).into()));
    }
    if let Ok(address) = <[u8; 16]>::try_from(bytes) {
        return Some(text(Ipv6Addr::from(address).into()));
    }
    // A longer value is no address; its beginning is enough to find the sender of it.
    let digits = bytes.iter().take(16).map(|byte| format!("{byte:02x}"));
    Some(format!("?{}", digits.collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_format_of_the_collector() {
        for (address, expected) in [
            ("10.1.2.3", "10.1.2.3"),
            ("::ffff:10.1.2.3", "10.1.2.3"),
            ("2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"),
            ("::", "::"),
        ] {
            assert_eq!(text(address.parse().unwrap()), expected);
        }
        assert_eq!(text_of_bytes(&[]), None);
        assert_eq!(text_of_bytes(&[1, 2, 3, 4]).unwrap(), "1.2.3.4");
        assert_eq!(text_of_bytes(&[1, 255]).unwrap(), "?01ff");
    }
}
