//! The target for what certificates say about themselves.

use rustls_pki_types::CertificateDer;
use tributary::net::tls::certificate::{self, LONGEST_TEXT, date};

/// Whatever a certificate says, what is shown of it is printable, short and the same every time.
pub fn certificate(input: &[u8]) {
    let der = CertificateDer::from(input);
    let Ok(facts) = certificate::describe(&der) else {
        return;
    };
    let names: Vec<String> = facts.names.iter().map(ToString::to_string).collect();
    let texts = [&facts.subject, &facts.issuer, &facts.serial];
    let texts = texts.into_iter().chain(&facts.common_name).chain(&names);
    for text in texts {
        assert!(text.len() <= LONGEST_TEXT, "{text}");
        assert!(text.bytes().all(|b| matches!(b, b' '..=b'~')), "{text}");
    }
    assert!(names.len() <= 256);
    assert!(facts.names_listed().len() <= 9 * (LONGEST_TEXT + 2));
    assert!(!facts.title().is_empty());
    // Who it is, is one of the things it says.
    if let Some(identity) = facts.identity() {
        let said = names.iter().chain(&facts.common_name);
        assert!(said.into_iter().any(|name| name == identity));
    }
    for moment in [facts.not_before, facts.not_after] {
        assert!(date(moment).is_ascii());
    }
    assert_eq!(certificate::describe(&der), Ok(facts));
}
