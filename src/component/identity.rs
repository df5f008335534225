//! The resource attributes of this process, for all telemetry about the process itself.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Returns the resource attributes of this process: the defaults, overridden and removed by
/// `service.telemetry.resource`.
pub(crate) fn resource(configured: &BTreeMap<String, Option<String>>) -> Vec<(String, String)> {
    static INSTANCE: LazyLock<String> = LazyLock::new(|| {
        // RFC 9562, version 4: random except for the version and variant bits.
        let random = fastrand::u128(..) & !(0xf000 << 64) & !(0xc << 60) | (4 << 76) | (8 << 60);
        let hex = format!("{random:032x}");
        let parts = [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ];
        parts.join("-")
    });
    let mut attributes: BTreeMap<String, Option<String>> = BTreeMap::from(
        [
            ("service.name", "collector"),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("service.instance.id", INSTANCE.as_str()),
        ]
        .map(|(key, value)| (key.to_owned(), Some(value.to_owned()))),
    );
    attributes.extend(configured.clone());
    attributes
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
        .collect()
}

/// Returns the host name that the kernel reports (of the machine, pod or container), if there is one.
pub(crate) fn host_name() -> Option<&'static str> {
    static NAME: LazyLock<Option<String>> = LazyLock::new(|| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
        let name = name.trim();
        // The kernel reports "(none)" if no host name is set.
        (!name.is_empty() && name != "(none)").then(|| name.to_owned())
    });
    NAME.as_deref()
}
