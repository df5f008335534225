//! Fuzz target for the headers of requests.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request};
use tributary::fuzzing::{exporters, receiver};

/// Every header is read as a second implementation of its definition reads it.
pub fn headers(input: &[u8]) {
    let mut values = input.split(|byte| *byte == b'\n');
    let mut next = || HeaderValue::from_bytes(values.next().unwrap_or_default()).ok();
    let (Some(value), Some(pattern)) = (next(), next()) else {
        return;
    };
    timeouts(&value);
    content_types(&value);
    encodings(&value);
    if let Ok(pattern) = pattern.to_str() {
        origins(pattern, &value, next());
    }
}

/// Timeouts of gRPC over HTTP/2 ("Requests"): `TimeoutValue TimeoutUnit`.
fn timeouts(value: &HeaderValue) {
    let read = receiver::grpc_timeout(value);
    let expected = value.to_str().ok().and_then(|text| {
        let unit = text.chars().last()?;
        let digits = text.strip_suffix(unit)?;
        let sizes = [
            ('H', 3_600_000_000_000),
            ('M', 60_000_000_000),
            ('S', 1_000_000_000),
            ('m', 1_000_000),
            ('u', 1000),
            ('n', 1_u128),
        ];
        let (_, size) = sizes.into_iter().find(|(name, _)| *name == unit)?;
        let legal = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        let nanos = digits.parse::<u128>().ok().filter(|_| legal)? * size;
        Some(Duration::new(
            u64::try_from(nanos / 1_000_000_000).unwrap(),
            u32::try_from(nanos % 1_000_000_000).unwrap(),
        ))
    });
    assert_eq!(read, expected);
    // A receiver reads the timeout that an exporter writes: at most one unit less, and never more.
    if let Some(timeout) = read {
        let text = exporters::grpc_timeout(timeout);
        let back = receiver::grpc_timeout(&HeaderValue::try_from(&text).unwrap()).unwrap();
        let unit = match text.chars().last() {
            Some('u') => Duration::from_micros(1),
            Some('m') => Duration::from_millis(1),
            _ => Duration::from_secs(1),
        };
        let lost = timeout.saturating_sub(back);
        let most = Duration::from_secs(99_999_999);
        assert!(back <= timeout && (lost < unit || back == most), "{text}");
    }
    // Retry-After (RFC 9110, 10.2.3): seconds, or a date.
    let text = value.to_str().ok().map(str::trim);
    match (text, exporters::retry_after(value)) {
        (Some(text), Some(wait)) => {
            let seconds = text.strip_prefix('+').unwrap_or(text).parse::<u64>();
            assert!(seconds == Ok(wait.as_secs()) || httpdate::parse_http_date(text).is_ok());
        }
        (Some(text), None) => {
            assert!(!text.bytes().all(|b| b.is_ascii_digit()) || text.len() > 19 || text.is_empty())
        }
        (None, wait) => assert_eq!(wait, None),
    }
}

/// Content types (RFC 9110, 8.3): the type, and parameters after a semicolon.
fn content_types(value: &HeaderValue) {
    let text = value.to_str().ok().map(str::to_ascii_lowercase);
    let essence = text.as_deref().and_then(|text| text.split(';').next());
    let expected = match essence.map(str::trim) {
        Some("application/json") => Some(true),
        Some("application/x-protobuf") => Some(false),
        _ => None,
    };
    assert_eq!(receiver::is_json(value), expected);
    if receiver::is_grpc(value) {
        assert!(expected.is_none() && value.as_bytes().starts_with(b"application/grpc"));
    }
}

/// Exactly the names of the supported encodings are accepted.
fn encodings(value: &HeaderValue) {
    let name = value.as_bytes();
    let grpc: [&[u8]; 5] = [b"", b"identity", b"gzip", b"zstd", b"snappy"];
    let http: [&[u8]; 8] = [
        b"",
        b"gzip",
        b"zstd",
        b"zlib",
        b"snappy",
        b"deflate",
        b"lz4",
        b"x-snappy-framed",
    ];
    let expected = (grpc.contains(&name), http.contains(&name));
    assert_eq!(receiver::encodings(name), expected);
}

/// An origin is allowed only by a pattern that it matches, and `*` alone never allows credentials.
fn origins(pattern: &str, origin: &HeaderValue, wanted: Option<HeaderValue>) {
    let patterns: Vec<String> = pattern.split(' ').map(str::to_owned).collect();
    let mut request = Request::new(());
    *request.method_mut() = http::Method::OPTIONS;
    let headers = request.headers_mut();
    headers.insert("origin", origin.clone());
    headers.insert(
        "access-control-request-method",
        HeaderValue::from_static("POST"),
    );
    let asked = wanted.is_some();
    if let Some(wanted) = wanted {
        headers.insert("access-control-request-headers", wanted);
    }
    let (preflight, answer) = receiver::cors(patterns.clone(), &request);
    let text = origin.to_str().map(str::to_ascii_lowercase).ok();
    let named = text.as_deref().is_some_and(|text| {
        let mut named = patterns.iter().filter(|pattern| *pattern != "*");
        named.any(|pattern| glob(pattern.to_ascii_lowercase().as_bytes(), text.as_bytes()))
    });
    let any = text.is_some() && patterns.iter().any(|pattern| pattern == "*");
    let allowed = |headers: &HeaderMap| headers.get("access-control-allow-origin").cloned();
    let credentials =
        |headers: &HeaderMap| headers.contains_key("access-control-allow-credentials");
    assert_eq!(credentials(&answer), named);
    let expected = match (named, any) {
        (true, _) => Some(origin.clone()),
        (false, true) => Some(HeaderValue::from_static("*")),
        (false, false) => None,
    };
    assert_eq!(allowed(&answer), expected);
    let preflight = preflight.unwrap();
    assert!(allowed(&preflight) == expected || asked && allowed(&preflight).is_none());
    assert!(!credentials(&preflight) || named);
}

/// Whether `text` matches `pattern`, in which each `*` stands for any text. Uses a table of all
/// prefixes.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let mut row = vec![false; text.len() + 1];
    row[0] = true;
    for byte in pattern {
        let before = row.clone();
        for at in 0..row.len() {
            row[at] = match (byte, at) {
                (b'*', 0) => before[0],
                (b'*', _) => before[at] || row[at - 1],
                (_, 0) => false,
                (_, _) => before[at - 1] && text[at - 1] == *byte,
            };
        }
    }
    row[text.len()]
}
