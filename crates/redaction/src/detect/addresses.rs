//! Matches network addresses: IPv4, IPv6, MAC.

use std::net::Ipv6Addr;

use super::context;
use super::{Span, before, byte, run, run_back, starts, word};

/// Matches an IPv4 address that begins at a digit: four numbers up to 255 without leading zeros. Excludes
/// addresses that identify no host (0.x, 127.x, 255.x) and versions: after `v`, `version` and similar words,
/// within longer dotted numbers, after a product's name and `/` (RFC 9110, section 10.1.5), before a suffix
/// such as `-rc1`.
pub(in super::super) fn ipv4(text: &[u8], start: usize) -> Option<Span> {
    if matches!(before(text, start), b'.' | b'-' | b'_' | b'+') {
        return None;
    }
    let range = upper_ipv4(text, start)?;
    let version = version_before(text, start) || version_behind(text, range.end);
    (!version && !is_network(text, &range)).then_some(range)
}

/// Like [`ipv4`], for the upper end of an address range, after its dash.
pub(in super::super) fn upper_ipv4(text: &[u8], start: usize) -> Option<Span> {
    let (first, end) = ipv4_numbers(text, start)?;
    if matches!(first, 0 | 127 | 255) {
        return None;
    }
    let (after, next) = (byte(text, end), byte(text, end + 1));
    let longer = matches!(after, b'.' | b'-' | b'+' | b'~') && word(next);
    let ends = !longer || (after == b'-' && is_upper_end(text, end + 1, is_private(text, start)));
    (!word(after) && ends).then_some(start..end)
}

/// Returns the start of the upper end of an address range whose lower end begins at `start`: after an address, its
/// port, and a dash.
pub(in super::super) fn after_dash(text: &[u8], start: usize) -> Option<usize> {
    let (_, mut end) = ipv4_numbers(text, start)?;
    if byte(text, end) == b':' {
        end += 1 + digits(text, end + 1, PORT);
    }
    let goes_on = byte(text, end) == b'-' && byte(text, end + 1).is_ascii_digit();
    (goes_on && !version_before(text, start)).then_some(end + 1)
}

/// Maximum number of digits of a port.
const PORT: usize = 5;

/// Whether the text after the dash of an address is the upper end of a range: another address, or a number
/// such as a port or the last part of an address. A single digit is a package revision (`1.2.3.4-1`), unless
/// the address is private.
fn is_upper_end(text: &[u8], start: usize, private: bool) -> bool {
    if ipv4_numbers(text, start).is_some() {
        return true;
    }
    let length = digits(text, start, PORT);
    let (after, next) = (byte(text, start + length), byte(text, start + length + 1));
    let longer = word(after) || (matches!(after, b'.' | b'-' | b'+' | b'~') && word(next));
    !longer && (length > 1 || (length == 1 && private))
}

/// Whether an address is in 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16 (RFC 1918).
fn is_private(text: &[u8], start: usize) -> bool {
    let second = match (byte(text, start + 4), byte(text, start + 5)) {
        (b'1', digit) => matches!(digit, b'6'..=b'9'),
        (b'2', digit) => digit.is_ascii_digit(),
        (b'3', digit) => matches!(digit, b'0' | b'1'),
        _ => false,
    };
    let shared = starts(text, start, b"172.") && second && byte(text, start + 6) == b'.';
    shared || starts(text, start, b"10.") || starts(text, start, b"192.168.")
}

/// Returns the number of digits at a position; at most `most`.
fn digits(text: &[u8], start: usize, most: usize) -> usize {
    let rest = text.get(start..text.len().min(start + most));
    let digits = rest.unwrap_or_default().iter();
    digits.take_while(|byte| byte.is_ascii_digit()).count()
}

/// Returns the first number of an address, and the end of the address.
fn ipv4_numbers(text: &[u8], start: usize) -> Option<(u32, usize)> {
    let (mut first, mut at) = (0, start);
    for position in 0..4 {
        if position > 0 {
            if byte(text, at) != b'.' {
                return None;
            }
            at += 1;
        }
        let rest = text.get(at..text.len().min(at + 4)).unwrap_or_default();
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let digits = rest.get(..length).unwrap_or_default();
        let number = digits
            .iter()
            .fold(0, |number, digit| 10 * number + u32::from(digit - b'0'));
        if !(1..=3).contains(&length) || number > 255 || (length > 1 && digits.starts_with(b"0")) {
            return None;
        }
        if position == 0 {
            first = number;
        }
        at += length;
    }
    Some((first, at))
}

/// Whether an address ends in three zeros and has no mask. Such an address identifies no host and is usually
/// a version: `131.0.0.0`.
fn is_network(text: &[u8], range: &Span) -> bool {
    let address = text.get(range.clone()).unwrap_or_default();
    address.ends_with(b".0.0.0") && byte(text, range.end) != b'/'
}

/// Words after a version number.
const AFTER: [&[u8]; 9] = [
    b"build",
    b"release",
    b"released",
    b"beta",
    b"alpha",
    b"rc",
    b"snapshot",
    b"installed",
    b"sp",
];

/// Whether the next word marks the preceding number as a version: `1.2.3.4 (build 17)`, `1.2.3.4 released`.
fn version_behind(text: &[u8], end: usize) -> bool {
    if byte(text, end) != b' ' {
        return false;
    }
    let at = end + 1 + usize::from(byte(text, end + 1) == b'(');
    let limit = text.get(..text.len().min(at + 12)).unwrap_or_default();
    let next = run(limit, at, |byte| byte.is_ascii_alphabetic());
    AFTER.iter().any(|word| next.eq_ignore_ascii_case(word))
}

/// Words before versions and similarly numbered parts of documents.
const VERSIONS: [&[u8]; 14] = [
    b"v",
    b"ver",
    b"rev",
    b"oid",
    b"version",
    b"versions",
    b"release",
    b"build",
    b"revision",
    b"firmware",
    b"section",
    b"chapter",
    b"clause",
    b"paragraph",
];

/// Endings of longer names with the same meaning: `appVersion`.
const VERSION_ENDS: [&[u8]; 4] = [b"version", b"release", b"revision", b"firmware"];

/// Words before a version or an address.
const CHANGES: [&[u8]; 14] = [
    b"upgrade",
    b"upgraded",
    b"upgrading",
    b"downgrade",
    b"downgraded",
    b"update",
    b"updated",
    b"updating",
    b"install",
    b"installed",
    b"installing",
    b"bump",
    b"bumped",
    b"patched",
];

/// Products with four-part versions, or with versions after a slash.
const PRODUCTS: [&[u8]; 30] = [
    b"chrome",
    b"chromium",
    b"firefox",
    b"safari",
    b"edge",
    b"opera",
    b"edg",
    b"opr",
    b"webkit",
    b"electron",
    b"windows",
    b"android",
    b"ios",
    b"macos",
    b"kernel",
    b"nginx",
    b"apache",
    b"tomcat",
    b"openssl",
    b"curl",
    b"libcurl",
    b"okhttp",
    b"java",
    b"jdk",
    b"python",
    b"ruby",
    b"oracle",
    b"sdk",
    b"assembly",
    b"plugin",
];

/// Whether the text before `start` shows that a version follows.
fn version_before(text: &[u8], start: usize) -> bool {
    let separator = before(text, start);
    let letters = |end: usize| {
        let length = run_back(text, end, 24, |byte| byte.is_ascii_alphabetic());
        text.get(end - length..end).unwrap_or_default()
    };
    match separator {
        b'/' => {
            // Product names begin with a capital letter, unlike hosts: `Chrome/1.2.3.4`.
            let name = letters(start - 1);
            let earlier = before(text, start - 1 - name.len());
            let product = PRODUCTS.iter().any(|word| name.eq_ignore_ascii_case(word));
            (product || name.first().is_some_and(u8::is_ascii_uppercase))
                && !matches!(earlier, b'.' | b'/' | b'-')
        }
        // `==1.2.3.4`, `>=1.2.3.4`, `~>1.2.3.4`, `^1.2.3.4`
        b'=' if matches!(before(text, start - 1), b'=' | b'>' | b'<' | b'~') => true,
        b'^' | b'~' => true,
        b'>' if before(text, start - 1) == b'~' => true,
        b':' if is_image(text, start - 1) => true,
        b' ' | b'=' | b':' | b'"' | b'\'' | b'(' | b'>' | b'[' => named_version(text, start),
        _ => false,
    }
}

/// Whether a colon separates an image from its tag: `registry/app:1.2.3.4`.
fn is_image(text: &[u8], colon: usize) -> bool {
    let path = run_back(text, colon, 128, |byte| {
        word(byte) || b"/.-:".contains(&byte)
    });
    let path = text.get(colon - path..colon).unwrap_or_default();
    let scheme = memchr::memmem::find(path, b"//").is_some();
    let last = path.iter().rposition(|byte| *byte == b'/');
    let name = last
        .and_then(|last| path.get(last + 1..))
        .unwrap_or_default();
    !scheme && last > Some(0) && name.iter().any(u8::is_ascii_alphabetic)
}

/// Whether words before a number mark it as a version. Some words may precede an address too; in this case the number
/// is a version if it is not a private address and begins like a version.
fn named_version(text: &[u8], start: usize) -> bool {
    // The first number of current versions is at most about 150, for browsers. Addresses of hosts rarely
    // begin below 30.
    const FIRST: u32 = 30;
    let ends = |word: &[u8]| {
        let end = |end: &&[u8]| {
            let at = word.len().checked_sub(end.len());
            at.and_then(|at| word.get(at..))
                .is_some_and(|tail| tail.eq_ignore_ascii_case(end))
        };
        VERSION_ENDS.iter().any(end)
    };
    let version = |word: &[u8]| context::is_one_of(word, &VERSIONS) || ends(word);
    if context::find(text, start, false, version) {
        return true;
    }
    let first = ipv4_numbers(text, start).map_or(0, |(first, _)| first);
    if is_private(text, start) {
        return false;
    }
    let change = |word: &[u8]| version(word) || context::is_one_of(word, &CHANGES);
    let old = first < FIRST && context::find(text, start, true, change);
    let product = before(text, start) == b' ' && product_before(text, start - 1, first < FIRST);
    old || product
}

/// Number of browsers at the beginning of [`PRODUCTS`]; their versions begin above 30.
const BROWSER_COUNT: usize = 8;

/// Whether the word that ends at `end` is a product: any product if `any`, otherwise a browser.
fn product_before(text: &[u8], end: usize, any: bool) -> bool {
    let length = run_back(text, end, 12, |byte| byte.is_ascii_alphanumeric());
    let name = text.get(end - length..end).unwrap_or_default();
    !matches!(before(text, end - length), b'-' | b'_' | b'/')
        && PRODUCTS
            .iter()
            .take(if any { PRODUCTS.len() } else { BROWSER_COUNT })
            .any(|word| name.eq_ignore_ascii_case(word))
}

/// Matches an IPv6 address with a colon at `colon`. Excludes `::` and `::1`. In the short form, only
/// allocated prefixes match (IANA IPv6 address space), because `abc::def` is a C++ name.
pub(in super::super) fn ipv6(text: &[u8], colon: usize) -> Option<Span> {
    // C++ names on either side.
    let name = |byte: u8| word(byte) && !byte.is_ascii_hexdigit();
    if byte(text, colon + 1) == b':' && (name(byte(text, colon + 2)) || name(before(text, colon))) {
        return None;
    }
    let part = |byte: u8| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.';
    // The longest address ends with an IPv4 address and has 45 bytes.
    let mut start = colon - run_back(text, colon, 46, part);
    let mut end = colon
        + run(
            text.get(..text.len().min(colon + 47)).unwrap_or_default(),
            colon,
            part,
        )
        .len();
    // A name and a colon before the address, a colon or a full stop after it.
    if byte(text, start) == b':' && byte(text, start + 1) != b':' {
        start += 1;
    } else if word(before(text, start)) {
        return None;
    }
    while end > start
        && (before(text, end) == b'.' || before(text, end) == b':' && before(text, end - 1) != b':')
    {
        end -= 1;
    }
    if word(byte(text, end)) || end <= colon {
        return None;
    }
    let token = std::str::from_utf8(text.get(start..end)?).ok()?;
    let address: Ipv6Addr = token.parse().ok()?;
    if address.is_loopback() || address.is_unspecified() {
        return None;
    }
    let [first, ..] = address.segments();
    let short = token.contains("::");
    let in_use = matches!(first, 0x2000..=0x3fff | 0xfc00..=0xfdff | 0xfe80..=0xfebf | 0xff00..=0xffff)
        || (token.contains('.') && matches!(first, 0 | 0x64));
    (!short || in_use).then_some(start..end)
}

/// Matches a MAC address with its first separator at `separator`: six bytes, all separated by `:` or all by
/// `-`. Excludes the all-zero and the broadcast address.
pub(in super::super) fn mac(text: &[u8], separator: usize) -> Option<Span> {
    let start = separator.checked_sub(2)?;
    let with = byte(text, separator);
    let address = text.get(start..start + 17)?;
    let fits = address
        .iter()
        .enumerate()
        .all(|(position, byte)| match position % 3 {
            2 => *byte == with,
            _ => byte.is_ascii_hexdigit(),
        });
    let time = with == b'-' && is_time(address);
    (fits && !time && alone(text, start, start + 17, with)).then_some(start..start + 17)
}

/// Returns true for a date and a time with two digits each: `26-11-21-01-08-26`.
fn is_time(address: &[u8]) -> bool {
    let part = |position: usize| {
        let digits = address.get(3 * position..3 * position + 2)?;
        std::str::from_utf8(digits).ok()?.parse::<u8>().ok()
    };
    let most = [99, 12, 31, 23, 59, 59];
    (0..)
        .zip(most)
        .all(|(position, most)| part(position).is_some_and(|part| part <= most))
}

/// Matches a MAC address in the notation of routers with its first dot at `dot`: `001a.2b3c.4d5e`.
pub(in super::super) fn mac_dotted(text: &[u8], dot: usize) -> Option<Span> {
    let start = dot.checked_sub(4)?;
    let address = text.get(start..start + 14)?;
    let fits = address
        .iter()
        .enumerate()
        .all(|(position, byte)| match position % 5 {
            4 => *byte == b'.',
            _ => byte.is_ascii_hexdigit(),
        });
    // Decimal numbers with two dots are not addresses.
    let hexadecimal = address.iter().any(u8::is_ascii_alphabetic) || address.starts_with(b"00");
    (fits && hexadecimal && alone(text, start, start + 14, b'.')).then_some(start..start + 14)
}

/// Whether an address is not part of a longer sequence, such as a fingerprint, and is neither all-zero nor
/// broadcast.
fn alone(text: &[u8], start: usize, end: usize, separator: u8) -> bool {
    let (earlier, after) = (before(text, start), byte(text, end));
    let longer = |next: u8, further: u8| {
        next.is_ascii_alphanumeric() || (next == separator && word(further))
    };
    let address = text.get(start..end).unwrap_or_default();
    let all = |digit: u8| {
        let mut digits = address.iter().filter(|byte| byte.is_ascii_hexdigit());
        digits.all(|byte| byte.eq_ignore_ascii_case(&digit))
    };
    let before_that = start.checked_sub(2).map_or(0, |at| byte(text, at));
    // A colon before the address separates it from its name.
    let joined = word(earlier)
        || (earlier == separator && (separator == b'-' || before_that.is_ascii_hexdigit()));
    !joined && !longer(after, byte(text, end + 1)) && !all(b'0') && !all(b'f')
}
