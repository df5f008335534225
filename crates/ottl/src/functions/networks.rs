//! Functions of addresses and URLs.

use std::borrow::Cow;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use super::ParameterKind::{Int, List, Text};
use super::{Arguments, Function, Parameter, TARGET_TEXT};
use crate::value::{Undecided, Value};

pub(super) const ALL: &[Function] = &[
    Function::new(
        "IsInCIDR",
        &[TARGET_TEXT, Parameter::new("networks", List)],
        is_in_cidr,
    ),
    Function::new("URL", &[Parameter::new("uri", Text)], url),
    Function::new(
        "CommunityID",
        &[
            Parameter::new("source_ip", Text),
            Parameter::new("source_port", Int),
            Parameter::new("destination_ip", Text),
            Parameter::new("destination_port", Int),
            Parameter::optional("protocol", Text),
            Parameter::optional("seed", Int),
        ],
        community_id,
    ),
];

/// Returns an address, in which an IPv4 address in IPv6 notation is an IPv4 address.
fn address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    Some(address.to_canonical())
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn is_in_cidr<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    let networks = arguments.list(1)?;
    let Some(target) = address(arguments.text(0)?) else {
        return Ok(Value::Bool(false));
    };
    let target = octets(target);
    for network in networks {
        let (network, bits) = network_of(network.plain_text()?)
            .ok_or(Undecided::Because("a network is not in CIDR notation"))?;
        let same = network.len() == target.len()
            && (0..bits).all(|bit| {
                let byte =
                    |octets: &[u8]| octets.get(bit / 8).map(|byte| byte >> (7 - bit % 8) & 1);
                byte(&network) == byte(&target)
            });
        if same {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn network_of(text: &str) -> Option<(Vec<u8>, usize)> {
    let (address, bits) = text.split_once('/')?;
    let address = octets(address.parse().ok()?);
    let bits: usize = bits.parse().ok()?;
    (bits <= 8 * address.len()).then_some((address, bits))
}

/// Splits a URL by the rules of Go's `net/url`, into attributes of the semantic conventions.
fn url<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    const NO_URL: Undecided = Undecided::Because("a text is not a URL");
    let text = arguments.text(0)?;
    if text.is_empty() || text.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(NO_URL);
    }
    let mut entries: Vec<(Cow<'v, str>, Value<'v>)> = Vec::new();
    let mut put = |key: &'static str, value: String| {
        entries.push((Cow::Borrowed(key), Value::owned_text(value)));
    };
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = match rest.split_once(':') {
        Some((scheme, after)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), after),
        Some((first, _)) if first.is_empty() => return Err(NO_URL),
        Some((first, _)) if !first.contains('/') => return Err(NO_URL),
        _ => (String::new(), rest),
    };
    let (authority, path) = match rest.strip_prefix("//") {
        Some(after) => {
            let end = after.find('/').unwrap_or(after.len());
            after.split_at_checked(end).ok_or(NO_URL)?
        }
        None => ("", rest),
    };
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let (host, port) = match host.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (host, ""),
    };
    if host.contains([' ', '"', '<', '>', '\\', '^', '`', '{', '|', '}']) {
        return Err(NO_URL);
    }
    let path = unescaped(path).ok_or(NO_URL)?;
    put("url.original", text.to_owned());
    put(
        "url.domain",
        host.trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned(),
    );
    put("url.scheme", scheme);
    put("url.path", path.clone());
    if !fragment.is_empty() {
        put("url.fragment", unescaped(fragment).ok_or(NO_URL)?);
    }
    if let Some(user) = user {
        put("url.user_info", user.to_owned());
        let (name, password) = match user.split_once(':') {
            Some((name, password)) => (name, Some(password)),
            None => (user, None),
        };
        if !name.is_empty() {
            put("url.username", unescaped(name).ok_or(NO_URL)?);
        }
        if let Some(password) = password {
            put("url.password", unescaped(password).ok_or(NO_URL)?);
        }
    }
    if !query.is_empty() {
        put("url.query", query.to_owned());
    }
    if let Some((_, extension)) = path.rsplit_once('.')
        && !extension.is_empty()
    {
        put("url.extension", extension.to_owned());
    }
    if !port.is_empty() {
        let port: u32 = port.parse().map_err(|_| NO_URL)?;
        entries.push((Cow::Borrowed("url.port"), Value::Int(port.into())));
    }
    Ok(Value::Map(entries))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

/// Decodes percent encoding; `None` if it is malformed.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high << 4 | low).ok()?);
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Computes the hash of a flow (Community ID specification, version 1).
fn community_id<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    const NO_FLOW: Undecided = Undecided::Because(
        "CommunityID needs addresses, ports from 0 to 65535 and a known protocol",
    );
    let endpoint = |at: usize| -> Result<(Vec<u8>, u16), Undecided> {
        let address = address(arguments.text(at)?).ok_or(NO_FLOW)?;
        let port = u16::try_from(arguments.int(at + 1)?).map_err(|_| NO_FLOW)?;
        Ok((octets(address), port))
    };
    let (mut source, mut destination) = (endpoint(0)?, endpoint(2)?);
    let protocol: u8 = match arguments.text_or(4, "TCP")? {
        "ICMP" => 1,
        "TCP" => 6,
        "UDP" => 17,
        "RSVP" => 46,
        "ICMP6" => 58,
        "SCTP" => 132,
        _ => return Err(NO_FLOW),
    };
    let seed = match arguments.get(5) {
        Some(_) => u16::try_from(arguments.int(5)?).map_err(|_| NO_FLOW)?,
        None => 0,
    };
    let key = |(address, port): &(Vec<u8>, u16)| (address.len(), address.clone(), *port);
    if key(&source) > key(&destination) {
        std::mem::swap(&mut source, &mut destination);
    }
    let mut flow = seed.to_be_bytes().to_vec();
    flow.extend_from_slice(&source.0);
    flow.extend_from_slice(&destination.0);
    flow.extend_from_slice(&[protocol, 0]);
    flow.extend_from_slice(&source.1.to_be_bytes());
    flow.extend_from_slice(&destination.1.to_be_bytes());
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &flow);
    Ok(Value::owned_text(format!("1:{}", STANDARD.encode(hash))))
}
