//! The targets for what certificates say about themselves, whom they let in, and the files they come in.

use std::net::IpAddr;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use tributary::fuzzing::tls;
use tributary::fuzzing::tls::Clients;
use tributary_net::tls::certificate;
use tributary_net::tls::certificate::{LONGEST_TEXT, Name, date, printable};

/// The displayed fields of any certificate are printable, short and stable; only clients with an
/// issued certificate are admitted.
pub fn certificate(input: &[u8]) {
    let der = CertificateDer::from(input);
    nobody_else_gets_in(&der);
    let Ok(fields) = certificate::describe(&der) else {
        return;
    };
    let names: Vec<String> = fields.names.iter().map(ToString::to_string).collect();
    let texts = [&fields.subject, &fields.issuer, &fields.serial];
    let texts = texts.into_iter().chain(&fields.common_name).chain(&names);
    for text in texts {
        assert!(text.len() <= LONGEST_TEXT, "{text}");
        assert!(text.bytes().all(|b| matches!(b, b' '..=b'~')), "{text}");
    }
    assert!(names.len() <= 256);
    assert!(fields.names_listed().len() <= 9 * (LONGEST_TEXT + 2));
    assert!(!fields.title().is_empty());
    // The identity is one of the fields.
    if let Some(identity) = fields.identity() {
        let said = names.iter().chain(&fields.common_name);
        assert!(said.into_iter().any(|name| name == identity));
    }
    for moment in [fields.not_before, fields.not_after] {
        assert!(date(moment).is_ascii());
    }
    assert_eq!(certificate::describe(&der), Ok(fields));
    // Decided is by the names as they stand there, told of them is what can be printed.
    let exact = tls::names(&der);
    for (exact, shown) in exact.iter().zip(&names) {
        assert_eq!(&printable(&exact.to_string()), shown);
    }
    assert!(exact.len() == names.len() || names.len() == 256);
}

/// Trust in `root`, which has signed `client`; both certificates were made with openssl.
static CLIENTS: LazyLock<[Clients; 2]> = LazyLock::new(|| {
    let root = pem("CERTIFICATE", include_bytes!("../seeds/certificate/root"));
    let allowed = ["spiffe://example.org/ns/*/sa/b"];
    [&[], &allowed[..]].map(|allowed| Clients::new(root.as_bytes(), allowed).unwrap())
});
const CLIENT: &[u8] = include_bytes!("../seeds/certificate/client");
/// Within the time in which both are valid: 2027.
const NOW: u64 = 1_800_000_000;

fn nobody_else_gets_in(der: &CertificateDer<'_>) {
    for clients in CLIENTS.iter() {
        let alone = clients.verify(der, &[], NOW);
        assert_eq!(alone.is_ok(), **der == *CLIENT);
        // As an authority between the root and the client: there is none.
        let chain = std::slice::from_ref(der);
        assert_eq!(
            clients.verify(&CertificateDer::from(CLIENT), chain, NOW),
            Ok(())
        );
        assert!(
            clients
                .verify(der, &[CertificateDer::from(CLIENT)], NOW)
                .is_err()
                || alone.is_ok()
        );
        if let Err(words) = alone {
            assert!(words.len() < 8 * LONGEST_TEXT + 1024, "{words}");
            assert!(words.bytes().all(|b| matches!(b, b' '..=b'~')), "{words}");
        }
    }
}

/// An allowed name lets in exactly whom a second reading of its definition lets in.
pub fn names(input: &[u8]) {
    let Some((pattern, name)) = std::str::from_utf8(input)
        .ok()
        .and_then(|text| text.split_once('\n'))
    else {
        return;
    };
    for (is_uri, name) in [
        (false, Name::Dns(name.to_owned())),
        (true, Name::Uri(name.to_owned())),
    ] {
        let allowed = tls::allows(pattern, &name).ok();
        assert_eq!(
            allowed,
            naive(pattern, is_uri, &name.to_string()),
            "{name:?}"
        );
    }
    // A name used as a pattern allows the same names.
    if !name.contains('*')
        && let Ok(allowed) = tls::allows(name, &Name::Dns(name.to_owned()))
    {
        let uri = tls::allows(name, &Name::Uri(name.to_owned())).unwrap();
        assert!(allowed != uri, "it is the one or the other");
    }
    if let Ok(address) = name.parse::<IpAddr>() {
        assert!(tls::allows(pattern, &Name::Ip(address)) != Ok(true));
    }
}

/// By text in front of the `*` and text behind it; None where it is no pattern.
fn naive(pattern: &str, is_uri: bool, name: &str) -> Option<bool> {
    let (of_uris, separator) = match pattern.contains(':') {
        true => (true, '/'),
        false => (false, '.'),
    };
    let mut around = pattern.split('*');
    let (before, after) = (around.next()?, around.next());
    let graphic = pattern.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
    if pattern.is_empty()
        || !graphic
        || pattern.parse::<IpAddr>().is_ok()
        || around.next().is_some()
    {
        return None;
    }
    let whole = pattern.starts_with(separator) || pattern.ends_with(separator);
    if !of_uris && (pattern.contains('/') || pattern.contains("..") || whole) {
        return None;
    }
    if let Some(after) = after {
        let begins = before.is_empty() || before.ends_with(separator) || lower(before).1.is_empty();
        let ends = after.is_empty() || after.starts_with(separator);
        let within = if of_uris {
            lower(pattern).0.contains('*')
        } else {
            pattern == "*"
        };
        if !begins || !ends || within || !of_uris && !(before.is_empty() || before.ends_with('.')) {
            return None;
        }
    }
    if of_uris != is_uri {
        return Some(false);
    }
    let normal = |text: &str| match of_uris {
        true => lower(text).0 + &lower(text).1,
        false => text.to_ascii_lowercase(),
    };
    let name = normal(name);
    let Some(after) = after else {
        return Some(name == normal(pattern));
    };
    let (before, after) = match of_uris {
        true => (normal(before), after.to_owned()),
        false => (normal(before), normal(after)),
    };
    let found = name
        .strip_prefix(&before)
        .and_then(|rest| rest.strip_suffix(&after));
    Some(found.is_some_and(|found| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        let plain = !found.is_empty() && found.chars().all(plain) && !found.contains(separator);
        plain && !matches!(found, "." | "..")
    }))
}

/// Splits a URI into its case-insensitive part, in lower case, and the rest.
fn lower(uri: &str) -> (String, String) {
    let length = match (uri.find("://"), uri.find(':')) {
        (Some(at), _) => {
            let authority = uri[at + 3..].split(['/', '?', '#']).next().unwrap();
            at + 3 + authority.len()
        }
        (None, Some(at)) => at + 1,
        (None, None) => 0,
    };
    (uri[..length].to_ascii_lowercase(), uri[length..].to_owned())
}

/// Items found in a PEM file are found again when written separately, and no error shows their
/// content.
pub fn material(input: &[u8]) {
    let labels = ["CERTIFICATE", "X509 CRL", "PRIVATE KEY"];
    for (at, (label, found)) in labels.into_iter().zip(tls::material(input)).enumerate() {
        match found {
            Ok(found) => {
                assert!(!found.is_empty());
                let written: String = found.iter().map(|der| pem(label, der)).collect();
                let [certificates, lists, key] = tls::material(written.as_bytes());
                assert_eq!([&certificates, &lists, &key][at].as_ref(), Ok(&found));
            }
            Err(error) => {
                let text = error.to_string();
                let mut lines = input.split(|byte| matches!(byte, b'\n' | b'\r'));
                // As long as no word of a complaint is, and in base64 as keys are.
                let shown = lines.any(|line| {
                    let base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
                    let line = std::str::from_utf8(line).unwrap_or_default();
                    line.len() >= 12 && line.as_bytes().iter().all(base64) && text.contains(line)
                });
                assert!(!shown && text.len() < 512, "{text}");
            }
        }
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        STANDARD.encode(der)
    )
}
