//! `system`: this host.

mod hardware;
mod names;
mod release;

use crate::attributes::AttributeValue::Texts;
use crate::attributes::{DetectedResource, Gathered};
use crate::{Detection, DetectionError};

/// Files with the id of this host, the first that exists.
const IDS: [&str; 2] = ["etc/machine-id", "var/lib/dbus/machine-id"];

pub(crate) async fn detect(detection: &Detection<'_>) -> Result<DetectedResource, DetectionError> {
    let section = &detection.config.system;
    let switches = &section.resource_attributes;
    let machine = detection.machine;
    let failed = |what: &str, error: std::io::Error| {
        DetectionError(format!("cannot read the {what} of this host: {error}"))
    };
    let mut gathered = Gathered::new(switches);
    if switches.is_enabled("host.name") {
        let name = names::host_name(detection, &section.hostname_sources).await;
        gathered.text("host.name", name.map_err(DetectionError)?);
    }
    gathered
        .text("os.type", std::env::consts::OS)
        .text("host.arch", arch());
    if switches.is_enabled("host.id") {
        let id = IDS.iter().find_map(|file| machine.read(file).ok());
        gathered.optional("host.id", id.map(|id| id.trim().to_owned()));
    }
    if switches.any(&["os.name", "os.version", "os.build.id", "os.description"]) {
        release::add(machine, &mut gathered);
    }
    if switches.any(&["host.interface", "host.mac", "host.ip"]) {
        let interfaces = hardware::interfaces(machine);
        let interfaces = interfaces.map_err(|error| failed("network interfaces", error))?;
        let texts = |values: Vec<String>| Texts(values);
        let active = || interfaces.iter().filter(|interface| interface.is_active);
        let macs = active().filter_map(|interface| interface.mac.clone());
        let names = interfaces.iter().map(|interface| interface.name.clone());
        gathered.set("host.mac", texts(macs.collect()));
        gathered.set("host.interface", texts(names.collect()));
        if switches.is_enabled("host.ip") {
            let active: Vec<&str> = active().map(|interface| interface.name.as_str()).collect();
            let addresses = hardware::addresses(&active);
            let addresses = addresses.map_err(|error| failed("addresses", error))?;
            gathered.set("host.ip", texts(addresses));
        }
    }
    let of_processor = [
        "host.cpu.vendor.id",
        "host.cpu.family",
        "host.cpu.model.id",
        "host.cpu.model.name",
        "host.cpu.stepping",
        "host.cpu.cache.l2.size",
    ];
    if switches.any(&of_processor) {
        let processor = machine.read("proc/cpuinfo");
        let processor = processor.map_err(|error| failed("processors", error))?;
        hardware::add_processor(&processor, &mut gathered);
    }
    Ok(gathered.finish())
}

/// Returns the architecture under the names of the semantic conventions.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "arm" => "arm32",
        "powerpc" => "ppc32",
        "powerpc64" => "ppc64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use crate::AttributeValue::{Int, Text, Texts};
    use crate::BuiltInDetector::System;
    use crate::testing::{Fixture, text_pairs};

    const CPU: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n\
        model name\t: Xeon\nstepping\t: 7\ncache size\t: 39424 KB\n\nprocessor\t: 1\nvendor_id\t: Other\n";

    fn enabled(keys: &[&str]) -> String {
        let switches = keys.iter().map(|key| format!("{key}: {{enabled: true}}"));
        let switches: Vec<String> = switches.collect();
        format!(
            "system: {{hostname_sources: [os], resource_attributes: {{{}}}}}",
            switches.join(", ")
        )
    }

    fn host_name() -> String {
        rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned()
    }

    #[tokio::test]
    async fn host_has_name_and_type_by_default() {
        let mut fixture = Fixture::new(&[]);
        fixture.configure("system: {hostname_sources: [os]}");
        let found = fixture.detect(System).await.unwrap();
        let name = host_name();
        assert_eq!(
            text_pairs(&found),
            [("host.name", name.as_str()), ("os.type", "linux")]
        );
    }

    #[tokio::test]
    async fn qualified_name_comes_from_the_hosts_file() {
        let fixture = Fixture::new(&[]);
        let name = host_name();
        fixture.write(
            "etc/hosts",
            &format!("127.0.0.1 localhost # {name}\n10.0.0.1\t{name}.example.com {name}\n"),
        );
        let found = fixture.detect(System).await.unwrap();
        assert_eq!(text_pairs(&found)[0].1, format!("{name}.example.com"));
    }

    #[tokio::test]
    async fn files_describe_system_and_processor() {
        let mut fixture = Fixture::new(&[]);
        fixture.write("etc/machine-id", "abc\n");
        fixture.write(
            "etc/os-release",
            "NAME=\"Debian GNU/Linux\"\nVERSION='13 (trixie)'\nVERSION_ID=\"13\"\nID=debian\nBUILD_ID=b7\n",
        );
        fixture.write("etc/debian_version", "13.1\n");
        fixture.write("proc/cpuinfo", CPU);
        fixture.configure(&enabled(&[
            "host.id",
            "os.name",
            "os.version",
            "os.build.id",
            "os.description",
            "host.cpu.vendor.id",
            "host.cpu.family",
            "host.cpu.model.id",
            "host.cpu.model.name",
            "host.cpu.stepping",
            "host.cpu.cache.l2.size",
        ]));
        let found = fixture.detect(System).await.unwrap().attributes;
        let value = |key: &str| {
            let mut all = found.iter();
            all.find(|(name, _)| name == key)
                .map(|(_, value)| value.clone())
        };
        for (key, expected) in [
            ("host.id", "abc"),
            ("os.name", "debian"),
            ("os.version", "13.1"),
            ("os.build.id", "b7"),
            ("host.cpu.vendor.id", "GenuineIntel"),
            ("host.cpu.family", "6"),
            ("host.cpu.model.id", "85"),
            ("host.cpu.model.name", "Xeon"),
            ("host.cpu.stepping", "7"),
        ] {
            assert_eq!(value(key), Some(Text(expected.to_owned())), "{key}");
        }
        assert_eq!(value("host.cpu.cache.l2.size"), Some(Int(39424)));
        let Some(Text(description)) = value("os.description") else {
            panic!("no description");
        };
        let start = "Debian GNU/Linux 13 (trixie) (Linux ";
        assert!(description.starts_with(start), "{description}");
    }

    #[tokio::test]
    async fn interfaces_have_hyphenated_addresses() {
        let mut fixture = Fixture::new(&[]);
        for (name, index, flags, address) in [
            ("eth0", "2", "0x1003", "02:42:ac:11:00:02"),
            ("lo", "1", "0x9", "00:00:00:00:00:00"),
            ("down0", "3", "0x1002", "02:42:ac:11:00:03"),
            ("tun0", "4", "0x10d1", ""),
        ] {
            for (file, text) in [("ifindex", index), ("flags", flags), ("address", address)] {
                fixture.write(&format!("sys/class/net/{name}/{file}"), text);
            }
        }
        fixture.configure(&enabled(&["host.interface", "host.mac", "host.ip"]));
        let found = fixture.detect(System).await.unwrap().attributes;
        let texts = |values: &[&str]| Texts(values.iter().map(|text| (*text).to_owned()).collect());
        let find = |key: &str| {
            found
                .iter()
                .find(|(name, _)| name == key)
                .unwrap()
                .1
                .clone()
        };
        assert_eq!(
            find("host.interface"),
            texts(&["lo", "eth0", "down0", "tun0"])
        );
        assert_eq!(find("host.mac"), texts(&["02-42-AC-11-00-02"]));
        assert!(matches!(find("host.ip"), Texts(_)));
    }
}
