//! The operating system.

use std::collections::HashMap;

use crate::attributes::Gathered;
use crate::machine::Machine;
use crate::tables::SystemAttributes;

/// Files that describe the operating system, the first that exists
/// (<https://www.freedesktop.org/software/systemd/man/os-release.html>).
const RELEASES: [&str; 2] = ["etc/os-release", "usr/lib/os-release"];

/// Adds `os.name`, `os.version`, `os.build.id` and `os.description`.
pub(super) fn add(machine: &Machine, gathered: &mut Gathered<'_, SystemAttributes>) {
    let release = RELEASES.iter().find_map(|file| machine.read(file).ok());
    let release = release.unwrap_or_default();
    let release = parse(&release);
    let get = |key: &str| {
        let value = release.get(key).map(String::as_str);
        value.filter(|value| !value.is_empty())
    };
    // Debian's file has the version without the number of the point release.
    let debian = match get("ID") {
        Some("debian") => machine.read("etc/debian_version").ok(),
        _ => None,
    };
    let version = debian
        .as_deref()
        .map(str::trim)
        .or_else(|| get("VERSION_ID"));
    let uname = rustix::system::uname();
    let kernel = [
        uname.sysname(),
        uname.nodename(),
        uname.release(),
        uname.version(),
        uname.machine(),
    ]
    .map(|part| part.to_string_lossy().into_owned());
    let [_, _, kernel_version, _, _] = &kernel;
    let kernel_version = kernel_version.clone();
    let kernel = kernel.join(" ");
    let name = match (get("NAME"), get("VERSION").or_else(|| get("VERSION_ID"))) {
        (Some(name), Some(version)) => Some(format!("{name} {version}")),
        _ => get("PRETTY_NAME").map(str::to_owned),
    };
    gathered
        .optional("os.name", get("ID"))
        .optional("os.version", version)
        .text(
            "os.build.id",
            get("BUILD_ID").map_or(kernel_version, str::to_owned),
        )
        .text(
            "os.description",
            match name {
                Some(name) => format!("{name} ({kernel})"),
                None => kernel,
            },
        );
}

/// Parses lines of the form `KEY=VALUE`, with or without quotes.
fn parse(text: &str) -> HashMap<&str, String> {
    let lines = text.lines().map(str::trim);
    let pairs = lines.filter(|line| !line.starts_with('#'));
    let pairs = pairs.filter_map(|line| line.split_once('='));
    let unquoted = |value: &str| {
        let value = value.trim();
        let inner = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
        let inner = inner('"').or_else(|| inner('\'')).unwrap_or(value);
        inner.replace("\\\"", "\"")
    };
    pairs
        .map(|(key, value)| (key.trim(), unquoted(value)))
        .collect()
}
