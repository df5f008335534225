//! Tests of the configuration.

use super::*;

/// Whether the configuration is refused because the console has no authentication.
fn is_refused(yaml: &str) -> bool {
    let config: Config = serde_yaml::from_str(yaml).unwrap();
    let mut problems = Problems::default();
    config.validate(&mut problems);
    let mut errors = problems.found().iter().filter(|problem| !problem.warning);
    errors.any(|problem| problem.message.contains("set `auth`"))
}

#[test]
fn address_of_other_machines_needs_authentication() {
    assert!(!is_refused("{}"));
    assert!(!is_refused("endpoint: 127.0.0.1:1"));
    assert!(is_refused("endpoint: 0.0.0.0:55679"));
    assert!(!is_refused(
        "{endpoint: 0.0.0.0:1, auth: {authenticator: basicauth}}"
    ));
    assert!(is_refused(
        "{endpoint: 0.0.0.0:1, tls: {cert_file: a, key_file: b}}"
    ));
    let mutual = "{endpoint: 0.0.0.0:1, tls: {cert_file: a, key_file: b, client_ca_file: c}}";
    assert!(!is_refused(mutual));
}
