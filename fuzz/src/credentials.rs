//! Fuzz target for credentials in requests and for lists of valid credentials.

use std::collections::HashMap;
use std::fmt::Debug;
use std::net::Ipv4Addr;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use http::{HeaderMap, HeaderValue};
use serde::Serialize;
use tributary::component::{Extension, ExtensionConfig};
use tributary::extensions::{basicauth, bearertokenauth};
use tributary::fuzzing;
use tributary_config::{Problems, Validate};
use tributary_net::auth::{AuthFailure, Verdict};

/// Every admitted client has valid credentials by a second implementation of the definitions, and
/// no message shows credentials.
pub fn credentials(input: &[u8]) {
    let mut parts = input.splitn(4, |byte| *byte == 0);
    let mut next = || parts.next().unwrap_or_default();
    let (scheme, value, more, list) = (next(), next(), next(), next());
    let mut headers = HeaderMap::new();
    for value in [value, more] {
        if let (false, Ok(value)) = (value.is_empty(), HeaderValue::from_bytes(value)) {
            headers.append("authorization", value);
        }
    }
    let Ok(list) = std::str::from_utf8(list) else {
        return;
    };
    if let Ok(scheme) = std::str::from_utf8(scheme) {
        tokens(scheme, list, &headers);
    }
    users(list, &headers);
}

/// Text in every secret, by which a leak is recognized.
const MARK: &str = "sEcReT_7";

fn tokens(scheme: &str, list: &str, headers: &HeaderMap) {
    let config = |tokens: &[String]| bearertokenauth::Config {
        scheme: scheme.to_owned(),
        tokens: tokens.iter().map(|token| token.as_str().into()).collect(),
        ..bearertokenauth::Config::default()
    };
    let tokens: Vec<String> = list.split('\n').map(str::to_owned).collect();
    let marked: Vec<String> = tokens
        .iter()
        .map(|token| format!("{token}{MARK}{token}"))
        .collect();
    keeps_secrets(&config(&marked), scheme);

    let in_headers = |text: &str| {
        text.bytes()
            .all(|byte| byte == 9 || byte > 31 && byte != 127)
    };
    let fit = |token: &String| !token.is_empty() && token.trim() == token && in_headers(token);
    let built = build(&config(&tokens));
    let legal = in_headers(scheme) && !scheme.contains(' ');
    assert_eq!(
        problems(&config(&tokens)).is_empty(),
        legal && tokens.iter().all(fit)
    );
    let Some(extension) = built else {
        assert!(!legal || !tokens.iter().all(fit));
        return;
    };
    let values: Vec<&[u8]> = headers.values().map(HeaderValue::as_bytes).collect();
    let expected = match values.as_slice() {
        [] => Err(AuthFailure::Missing),
        [value] => match after(scheme, value) {
            None => Err(AuthFailure::Malformed),
            Some(token) if tokens.iter().any(|known| known.as_bytes() == token) => Ok(None),
            Some(_) => Err(AuthFailure::Wrong),
        },
        _ => Err(AuthFailure::Malformed),
    };
    assert_eq!(decision(&extension, headers), expected);
    // The server accepts the headers of the client, and printing the request does not show the
    // credentials.
    let mut sent = HeaderMap::new();
    extension
        .services
        .client_auth
        .as_ref()
        .unwrap()
        .add(&mut sent);
    assert_eq!(decision(&extension, &sent), Ok(None));
    assert!(sent.values().all(HeaderValue::is_sensitive));
}

fn users(list: &str, headers: &HeaderMap) {
    let config = |list: &str| basicauth::Config {
        htpasswd: Some(basicauth::Htpasswd {
            inline: list.into(),
            ..basicauth::Htpasswd::default()
        }),
        client_auth: None,
    };
    let marked = list.lines().map(|line| format!("{line}{MARK}\n"));
    keeps_secrets(&config(&marked.collect::<String>()), "");

    let mut known = HashMap::new();
    for line in list
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'))
    {
        let (user, hash) = line.split_once(':').unwrap_or_default();
        // The check of a bcrypt hash takes long on purpose.
        if hash.starts_with('$') {
            drop(problems(&config(list)));
            return;
        }
        let is_sha1 = hash.starts_with("{SHA}") || hash.starts_with("{SSHA}");
        if !user.is_empty() && !hash.is_empty() && !is_sha1 && !is_des(hash) {
            known.insert(user, hash.as_bytes());
        }
    }
    let Some(extension) = build(&config(list)) else {
        assert!(known.is_empty());
        return;
    };
    let values: Vec<&[u8]> = headers.values().map(HeaderValue::as_bytes).collect();
    let expected = match values.as_slice() {
        [] => Err(AuthFailure::Missing),
        [value] => match after("Basic", value).and_then(pair) {
            None => Err(AuthFailure::Malformed),
            Some((user, password)) => {
                let user = String::from_utf8(user).unwrap_or_default();
                let kept = known.get(user.as_str()).filter(|_| password.len() <= 1024);
                match kept.is_some_and(|kept| *kept == password) {
                    true => Ok(Some(user)),
                    false => Err(AuthFailure::Wrong),
                }
            }
        },
        _ => Err(AuthFailure::Malformed),
    };
    // The second check uses the remembered result.
    for _ in 0..2 {
        assert_eq!(decision(&extension, headers), expected);
    }
    if let Some((user, password)) = known.iter().next() {
        let right = [user.as_bytes(), b":", password].concat();
        let value = format!("basic {}", STANDARD.encode(right));
        let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, value.parse().unwrap())]);
        let expected = match password.len() > 1024 {
            true => Err(AuthFailure::Wrong),
            false => Ok(Some((*user).to_owned())),
        };
        assert_eq!(decision(&extension, &headers), expected);
    }
}

/// Returns true for a hash of traditional crypt(3), which is refused as a plain password would be the hash itself.
fn is_des(hash: &str) -> bool {
    let is_of_alphabet = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '/');
    hash.chars().count() == 13
        && hash.chars().all(is_of_alphabet)
        && hash.contains(|c: char| c.is_ascii_uppercase())
        && hash.contains(|c: char| c.is_ascii_lowercase())
        && hash.contains(|c: char| !c.is_ascii_alphabetic())
}

/// RFC 9110, 11.4: scheme, spaces, and the rest, which is not empty.
fn after<'v>(scheme: &str, value: &'v [u8]) -> Option<&'v [u8]> {
    if scheme.is_empty() {
        return Some(value);
    }
    let wanted = format!("{} ", scheme.to_ascii_lowercase());
    let begins = value.to_ascii_lowercase().starts_with(wanted.as_bytes());
    let rest = value
        .get(wanted.len()..)
        .filter(|_| begins)?
        .trim_ascii_start();
    (!rest.is_empty()).then_some(rest)
}

/// RFC 7617, 2, with or without padding.
fn pair(encoded: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let lenient = GeneralPurpose::new(&base64::alphabet::STANDARD, config);
    let decoded = lenient.decode(encoded).ok()?;
    let mut parts = decoded.splitn(2, |byte| *byte == b':').map(<[u8]>::to_vec);
    parts.next().zip(parts.next())
}

fn build(config: &impl ExtensionConfig) -> Option<Extension> {
    config.build(&fuzzing::context("auth")).ok()
}

fn decision(extension: &Extension, headers: &HeaderMap) -> Result<Option<String>, AuthFailure> {
    let server = extension.services.server_auth.as_ref().unwrap();
    match server.authenticate(headers, Ipv4Addr::LOCALHOST.into()) {
        Verdict::Known(known) => known.map(|identity| identity.user.map(|user| user.to_string())),
        Verdict::Pending(_) => panic!("it is checked at once"),
    }
}

/// Returns the errors without the warnings.
fn problems(config: &impl Validate) -> Vec<String> {
    let mut problems = Problems::default();
    config.validate(&mut problems);
    let errors = problems.found().iter().filter(|problem| !problem.warning);
    errors.map(|problem| problem.message.clone()).collect()
}

/// Checks that no message about a configuration contains the secret marker unless a public part
/// does.
fn keeps_secrets<C: ExtensionConfig + Validate + Debug + Serialize>(config: &C, public: &str) {
    let mut problems = Problems::default();
    config.validate(&mut problems);
    let mut said = vec![
        format!("{config:?}"),
        serde_json::to_string(config).unwrap(),
    ];
    said.extend(
        problems
            .found()
            .iter()
            .map(|problem| problem.message.clone()),
    );
    match config.build(&fuzzing::context("auth")) {
        Err(error) => said.push(format!("{error:?} {error}")),
        Ok(extension) => {
            let mut sent = HeaderMap::new();
            if let Some(client) = &extension.services.client_auth {
                client.add(&mut sent);
            }
            said.push(format!("{sent:?}"));
        }
    }
    for text in said {
        assert!(!text.contains(MARK) || public.contains(MARK), "{text}");
    }
}
