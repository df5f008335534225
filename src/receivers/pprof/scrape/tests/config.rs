//! Meaning and validation of the configuration.

use std::collections::BTreeMap;

use super::*;
use crate::receivers::pprof::scrape::servers::identity;
use crate::receivers::scraping::found::Found;
use tributary_config::Validate as _;

fn problems(yaml: &str) -> Vec<String> {
    crate::testing::problems::<Config>(yaml)
}

#[test]
fn violated_rules_are_reported_at_their_keys() {
    for (yaml, paths) in [
        ("{}", vec![""]),
        ("remote: {}", vec!["remote::endpoint"]),
        ("remote: {endpoint: 'http://a/heap'}", vec![]),
        ("remote: {endpoint: 'http://a'}", vec!["remote::endpoint"]),
        (
            "remote: {endpoint: 'http://a/heap', max_conns_per_host: 1, write_buffer_size: 1, compression: none}",
            vec!["remote::max_conns_per_host", "remote::write_buffer_size"],
        ),
        (
            "remote: {endpoint: 'http://a/heap', compression: gzip, compression_params: {level: 1}}",
            vec!["remote::compression", "remote::compression_params"],
        ),
        (
            "remote: {endpoint: 'http://a/profile?seconds=5', timeout: 5s, collection_interval: 0s, \
             max_response_body_size: 0, read_buffer_size: 1}",
            vec![
                "remote::timeout",
                "remote::collection_interval",
                "remote::max_response_body_size",
                "remote::read_buffer_size",
            ],
        ),
        ("targets: [{}]", vec!["targets::0"]),
        (
            "delta_max_bytes: 1KiB\ntargets: [{endpoint: 'http://a'}]",
            vec!["delta_max_bytes"],
        ),
        (
            "targets: [{endpoint: 'http://a'}, {endpoint: 'http://b/debug/pprof/'}]",
            vec!["targets::1::endpoint"],
        ),
        (
            "targets: [{endpoint: 'http://a', dns_sd: {names: [b], port: 1}, scheme: http}]",
            vec!["targets::0::dns_sd", "targets::0::scheme"],
        ),
        (
            "targets: [{endpoint: 'http://a', profiles: []}]",
            vec!["targets::0::profiles"],
        ),
        (
            "targets: [{endpoint: 'http://a', collection_interval: 20s, profiles: [heap, heap, heep, \
             {name: cpu, seconds: 30}, {name: mutex, seconds: 1}, {name: x, path: '/a b'}]}]",
            vec![
                "targets::0::profiles::1",
                "targets::0::profiles::2",
                "targets::0::profiles::3::seconds",
                "targets::0::profiles::4::seconds",
                "targets::0::profiles::5::path",
            ],
        ),
        (
            "targets: [{endpoint: 'http://a', collection_interval: 5s}]",
            vec!["targets::0::profiles::0"],
        ),
        (
            "targets: [{file_sd: {files: ['/a/*.yaml', c.txt]}}, {dns_sd: {names: ['a:1']}}]",
            vec![
                "targets::0::file_sd::files::1",
                "targets::1::dns_sd::names::0",
                "targets::1::dns_sd::port",
            ],
        ),
    ] {
        assert_eq!(problems(yaml), paths, "{yaml}");
    }
}

#[test]
fn target_with_auth_uses_extension() {
    let yaml = "targets: [{endpoint: 'http://a'}, {endpoint: 'https://b', auth: {authenticator: basicauth}}]";
    let config: Config = serde_yaml::from_str(yaml).unwrap();
    let uses = config.uses_extensions();
    assert_eq!(uses[0].path, ["targets", "1", "auth", "authenticator"]);
}

fn servers(yaml: &str) -> Servers {
    let target: Target = serde_yaml::from_str(yaml).unwrap();
    let cx = context("pprof");
    let intake = Intake::new(&cx.id, Scripted::new([]), cx.budget, "http", 1, LIMIT_KEY);
    let transport = ScrapeTransport {
        tls: None,
        options: ClientOptions::default(),
        headers: headers(&target.headers),
        auth: None,
        proxy: None,
    };
    Servers::new(&target, transport, intake, &cx.id).unwrap()
}

fn urls(jobs: &[Job]) -> Vec<String> {
    jobs.iter().map(|job| job.url.to_string()).collect()
}

#[tokio::test]
async fn each_profile_of_a_target_has_its_url_and_its_times() {
    let servers = servers(
        "{endpoint: 'http://host:6060/app/', timeout: 7s, profiles: [heap, {name: cpu, seconds: 20}, \
         {name: checkouts, path: checkouts}, {name: fg, path: /debug/fgprof, seconds: 3, delta: true}]}",
    );
    let jobs = servers.given().unwrap();
    assert_eq!(
        urls(&jobs),
        [
            "http://host:6060/app/debug/pprof/heap",
            "http://host:6060/app/debug/pprof/profile?seconds=20",
            "http://host:6060/app/debug/pprof/checkouts",
            "http://host:6060/app/debug/fgprof?seconds=3",
        ]
    );
    let timeouts: Vec<u64> = jobs.iter().map(|job| job.timeout.as_secs()).collect();
    assert_eq!(timeouts, [7, 27, 7, 10]);
    let deltas: Vec<bool> = jobs.iter().map(|job| job.delta).collect();
    assert_eq!(deltas, [false, false, false, true]);
    // The jobs are spread over time.
    assert_ne!(jobs[0].schedule.first(), jobs[1].schedule.first());
}

#[tokio::test]
async fn discovered_labels_set_paths_and_attributes() {
    let servers =
        servers("{dns_sd: {names: [a], port: 1}, profiles: [heap], resource: {zone: x, team: y}}");
    let labels = [
        ("__profile_path__", "/p/"),
        ("__meta_kubernetes_pod_name", "no"),
        ("job", "checkout"),
        ("zone", "z"),
    ];
    let found = Found {
        address: "10.0.0.1:6060".to_owned(),
        name: None,
        labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
    };
    let jobs = servers.found(&found).unwrap();
    assert_eq!(urls(&jobs), ["http://10.0.0.1:6060/p/heap"]);
    let resource = jobs[0]
        .subject
        .resource(&tributary_profiles::Dictionary::new(), None);
    let attributes: BTreeMap<String, String> = resource
        .attributes
        .into_iter()
        .map(|attribute| {
            let value = format!("{:?}", attribute.value.unwrap().value.unwrap());
            (attribute.key, value)
        })
        .collect();
    let text = |text: &str| format!("StringValue({text:?})");
    let expected = [
        ("service.instance.id", "10.0.0.1:6060"),
        ("service.name", "checkout"),
        ("team", "y"),
        ("zone", "z"),
    ];
    assert_eq!(
        attributes,
        expected.map(|(k, v)| (k.to_owned(), text(v))).into()
    );
    let bad = |address: &str, scheme: &str| {
        let found = Found {
            address: address.to_owned(),
            name: None,
            labels: BTreeMap::from([("__scheme__".to_owned(), scheme.to_owned())]),
        };
        servers.found(&found).err().unwrap()
    };
    assert!(bad("a:1", "ftp").contains("use http or https"));
    assert!(bad("a:1/x", "http").contains("host:port"));
    // A target that requires TLS is never scraped without TLS.
    assert!(bad("a:1", "https").contains("TLS is not configured"));
}

#[test]
fn unnamed_service_is_named_after_its_host() {
    let of = |url: &str| identity(&url.parse().unwrap(), Vec::new());
    assert_eq!(of("http://localhost:6060").1, "unknown_service");
    let (attributes, name) = of("http://[2001:db8::1]:6060/x");
    assert_eq!(name, "2001:db8::1");
    assert_eq!(attributes.len(), 1);
}

#[test]
fn url_determines_profile_and_duration() {
    let of = |url: &str| {
        let (name, takes) = remote::described(&url.parse().unwrap());
        (name, takes.map(|takes| takes.as_secs()))
    };
    let heap = ("heap".to_owned(), None);
    assert_eq!(of("http://a/debug/pprof/heap?gc=1"), heap);
    assert_eq!(of("http://a/debug/pprof/profile").1, Some(30));
    assert_eq!(
        of("http://a/profile?x=1&seconds=4"),
        ("cpu".to_owned(), Some(4))
    );
}
