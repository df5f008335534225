//! Network interfaces and processors.

use std::io;

use crate::attributes::{AttributeValue, Gathered};
use crate::machine::Machine;
use crate::tables::SystemAttributes;

/// Flags of an interface that is up, and of a loopback interface (`linux/if.h`).
const UP: u32 = 1;
const LOOPBACK: u32 = 8;

/// A network interface.
pub(super) struct Interface {
    pub(super) name: String,
    /// Whether the interface is up and no loopback interface.
    pub(super) is_active: bool,
    /// Hardware address in the form of the semantic conventions: upper case, with hyphens.
    pub(super) mac: Option<String>,
}

/// Returns the interfaces in the order of their indices.
pub(super) fn interfaces(machine: &Machine) -> io::Result<Vec<Interface>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(machine.path("sys/class/net"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let read = |file: &str| {
            let text = machine.read(&format!("sys/class/net/{name}/{file}"));
            text.unwrap_or_default().trim().to_owned()
        };
        let Ok(index) = read("ifindex").parse::<u32>() else {
            continue; // No interface: `bonding_masters`, for example.
        };
        let flags = u32::from_str_radix(read("flags").trim_start_matches("0x"), 16);
        let flags = flags.unwrap_or_default();
        let mac = Some(read("address")).filter(|address| !address.is_empty());
        let interface = Interface {
            is_active: flags & UP != 0 && flags & LOOPBACK == 0,
            mac: mac.map(|address| address.to_ascii_uppercase().replace(':', "-")),
            name,
        };
        found.push((index, interface));
    }
    found.sort_by_key(|(index, _)| *index);
    Ok(found.into_iter().map(|(_, interface)| interface).collect())
}

/// Returns the addresses of these interfaces of the process's machine.
pub(super) fn addresses(active: &[&str]) -> io::Result<Vec<String>> {
    let found = if_addrs::get_if_addrs()?.into_iter();
    let found = found.filter(|found| active.contains(&found.name.as_str()));
    let addresses = found.map(|found| found.ip());
    let addresses = addresses.filter(|address| !address.is_loopback());
    Ok(addresses.map(|address| address.to_string()).collect())
}

/// Adds the attributes of the first processor in `/proc/cpuinfo`.
pub(super) fn add_processor(cpuinfo: &str, gathered: &mut Gathered<'_, SystemAttributes>) {
    let first = cpuinfo.lines().take_while(|line| !line.trim().is_empty());
    for (key, value) in first.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        let key = match key.trim() {
            "vendor_id" => "host.cpu.vendor.id",
            "cpu family" => "host.cpu.family",
            "model" => "host.cpu.model.id",
            "model name" => "host.cpu.model.name",
            "stepping" => "host.cpu.stepping",
            "cache size" => {
                // In KiB, as the Collector's detector reports it.
                let size = value.trim_end_matches("KB").trim_end();
                if let Ok(size) = size.parse() {
                    gathered.set("host.cpu.cache.l2.size", AttributeValue::Int(size));
                }
                continue;
            }
            _ => continue,
        };
        gathered.text(key, value);
    }
}
