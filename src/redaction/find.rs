//! The pass over a text: bit masks of its bytes say where something could be, matchers say whether it is.

use smallvec::SmallVec;

use super::catalogue::Detector;
use super::detect::{
    Span, addresses, credentials, email, entropy, home, iban, keys, numbers, phone,
};
use super::detect::{before, byte, starts};
use super::masks::{self, Masks, WINDOW};

/// The shortest text in which something can be found: `a@b.co`.
pub(super) const SHORTEST: usize = 6;

/// How many bytes at each end of a window are seen by its neighbour too, so that what a mask says of a place may depend on
/// so many bytes around it.
const OVERLAP: usize = 8;

/// The longest address with its port, and the dash behind it: `255.255.255.255:65535-`.
const ADDRESS: usize = 22;

/// Something that a built-in detector has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) span: Span,
    pub(super) detector: Detector,
}

/// What was found in a text; in no order, and possibly overlapping.
pub(super) type AllFound = SmallVec<[Found; 4]>;

/// The built-in detectors that are on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Enabled {
    detectors: u32,
    /// Whether the processor can do [`Masks::of_wide`].
    wide: bool,
}

impl Enabled {
    pub(super) fn none() -> Self {
        Enabled {
            detectors: 0,
            wide: masks::wide(),
        }
    }

    pub(super) fn add(&mut self, detector: Detector) {
        self.detectors |= 1 << detector as u8;
    }

    #[inline]
    fn has(self, detector: Detector) -> bool {
        self.detectors & 1 << detector as u8 != 0
    }
}

/// The place of each bit that is set, from the lowest on.
#[inline]
fn places(mut bits: u64, base: usize) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize;
        bits &= bits.checked_sub(1)?;
        Some(base + place)
    })
}

/// The bits from `from` to below `to`.
#[inline]
fn bits(from: usize, to: usize) -> u64 {
    let below = |end: usize| if end >= 64 { u64::MAX } else { (1 << end) - 1 };
    below(to) & !below(from)
}

/// Finds all that the enabled detectors know. Returns whether there is anything but ASCII.
#[inline]
#[allow(
    unsafe_code,
    reason = "only after a look at the processor is the code for its newer instructions called"
)]
pub(super) fn find(enabled: Enabled, text: &[u8], found: &mut AllFound) -> bool {
    if text.len() < SHORTEST || enabled.detectors == 0 {
        return !text.is_ascii();
    }
    #[cfg(target_arch = "x86_64")]
    if enabled.wide {
        // SAFETY: the processor can do it.
        return unsafe { find_wide(enabled, text, found) };
    }
    find_by(Masks::of, enabled, text, found)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
fn find_wide(enabled: Enabled, text: &[u8], found: &mut AllFound) -> bool {
    find_by(|window| Masks::of_wide(window), enabled, text, found)
}

#[inline(always)]
fn find_by(
    masks: impl Fn(&[u8]) -> Masks,
    enabled: Enabled,
    text: &[u8],
    found: &mut AllFound,
) -> bool {
    let mut base = 0;
    let mut foreign = 0;
    loop {
        let end = text.len().min(base + WINDOW);
        let window = text.get(base..end).unwrap_or_default();
        let last = end == text.len();
        let own = bits(
            if base == 0 { 0 } else { OVERLAP },
            if last { WINDOW } else { WINDOW - OVERLAP },
        );
        let masks = masks(window);
        foreign |= masks.foreign;
        if let Some(anchors) = Anchors::of(&masks, own, last) {
            anchors.confirm(enabled, text, base, found);
        }
        if last {
            break;
        }
        base += WINDOW - 2 * OVERLAP;
    }
    if enabled.has(Detector::HighEntropy) {
        entropy::high_entropy(text, |span| {
            found.push(Found {
                span,
                detector: Detector::HighEntropy,
            });
        });
    }
    foreign != 0
}

/// Where in a window something could be.
struct Anchors {
    /// Digits that begin a number, and not one in the middle of a date, a version or an id.
    number: u64,
    /// All dashes. What is behind the window may be one.
    dash: u64,
    /// `@`
    at: u64,
    /// `://`
    url: u64,
    /// The first of two colons, or of three at most 5 bytes apart.
    ipv6: u64,
    /// The first of three separators 3 bytes apart.
    mac: u64,
    /// The first of two dots 5 bytes apart.
    mac_dotted: u64,
    /// The first of two digits after two letters.
    iban: u64,
    /// Underscores after two letters.
    underscore: u64,
    /// Dashes after four letters.
    slack: u64,
    /// The first of five dashes.
    pem: u64,
    /// Spaces after the last letter of `Bearer` or `Basic`.
    space: u64,
    /// Slashes before `h` and `U`, backslashes before a letter, and the first of two backslashes.
    path: u64,
    /// `J`
    j: u64,
    /// `I`
    i: u64,
}

impl Anchors {
    /// The anchors among the bytes `own`; none for most texts. Inlined, so that masks stay in registers whatever the
    /// instructions are that made them.
    #[inline(always)]
    fn of(masks: &Masks, own: u64, last: bool) -> Option<Anchors> {
        let Masks {
            digit,
            alpha,
            at,
            colon,
            dot,
            dash,
            underscore,
            slash,
            backslash,
            space,
            home,
            scheme,
            j,
            i,
            foreign: _,
        } = *masks;
        let word = digit | alpha | underscore;
        let soon =
            |colons: u64| colons >> 1 | colons >> 2 | colons >> 3 | colons >> 4 | colons >> 5;
        // Two together, or three near each other: a time of day has only two.
        let ipv6 = colon & (colon >> 1 | soon(colon & soon(colon)));
        let anchors = Anchors {
            number: digit & !((word | dash | dot) << 1) & own,
            dash: dash | u64::from(!last) << (WINDOW - 1),
            at: at & own,
            url: colon & slash >> 1 & slash >> 2 & own,
            ipv6: ipv6 & own,
            mac: ((colon & colon >> 3 & colon >> 6) | (dash & dash >> 3 & dash >> 6)) & own,
            mac_dotted: dot & dot >> 5 & own,
            iban: digit & digit >> 1 & alpha << 1 & alpha << 2 & !(word << 3) & own,
            underscore: underscore & alpha << 1 & alpha << 2 & own,
            slack: dash & alpha << 1 & alpha << 2 & alpha << 3 & alpha << 4 & own,
            pem: dash & dash >> 1 & dash >> 2 & dash >> 3 & dash >> 4 & !(dash << 1) & own,
            space: space & scheme << 1 & own,
            path: (slash & home >> 1 | backslash & (alpha | backslash) >> 1) & own,
            j: j & own,
            i: i & own,
        };
        let any = anchors.number
            | anchors.at
            | anchors.url
            | anchors.ipv6
            | anchors.mac
            | anchors.mac_dotted
            | anchors.iban
            | anchors.underscore
            | anchors.slack
            | anchors.pem
            | anchors.space
            | anchors.path
            | anchors.j
            | anchors.i;
        (any != 0).then_some(anchors)
    }

    /// Asks the matchers at each anchor.
    fn confirm(&self, enabled: Enabled, text: &[u8], base: usize, all: &mut AllFound) {
        let mut ask = |detector: Detector, matcher: fn(&[u8], usize) -> Option<Span>, at: usize| {
            if enabled.has(detector)
                && let Some(span) = matcher(text, at)
            {
                all.push(Found { span, detector });
            }
        };
        for at in places(self.number, base) {
            // Numbers behind dashes are no anchors: those of a list or a range of numbers follow from the one before.
            let range = self.dash >> (at - base) & bits(0, ADDRESS) != 0;
            let mut next = number(text, at, range, &mut ask);
            while let Some(at) = next {
                next = upper_end(text, at, &mut ask);
            }
        }
        for at in places(self.at, base) {
            ask(Detector::Email, email::email, at);
        }
        for at in places(self.url, base) {
            let authority = text.get(at..text.len().min(at + credentials::AUTHORITY));
            if memchr::memchr(b'@', authority.unwrap_or_default()).is_some() {
                ask(Detector::UrlCredentials, credentials::url, at);
            }
            ask(Detector::SlackToken, credentials::slack_hook, at);
        }
        for at in places(self.path, base) {
            if matches!(byte(text, at + 1), b'h' | b'U' | b'u' | b'\\') {
                ask(Detector::HomeDirectory, home::home, at);
            }
        }
        for at in places(self.space, base) {
            match before(text, at) {
                b'r' | b'R' => ask(Detector::BearerToken, credentials::bearer, at),
                b'c' | b'C' => ask(Detector::BasicAuth, credentials::basic, at),
                _ => {}
            }
        }
        for at in places(self.underscore, base) {
            match before(text, at - 1) {
                b'h' | b'a' => ask(Detector::GithubToken, keys::github, at),
                b's' | b'r' | b'e' => ask(Detector::StripeKey, keys::stripe, at),
                _ => {}
            }
        }
        self.confirm_rare(text, base, &mut ask);
    }

    /// What few texts have.
    #[inline]
    fn confirm_rare(
        &self,
        text: &[u8],
        base: usize,
        ask: &mut impl FnMut(Detector, fn(&[u8], usize) -> Option<Span>, usize),
    ) {
        for at in places(self.ipv6, base) {
            ask(Detector::IpAddress, addresses::ipv6, at);
        }
        for at in places(self.mac, base) {
            ask(Detector::MacAddress, addresses::mac, at);
        }
        for at in places(self.mac_dotted, base) {
            ask(Detector::MacAddress, addresses::mac_dotted, at);
        }
        for at in places(self.iban, base) {
            ask(Detector::Iban, iban::iban, at - 2);
        }
        for at in places(self.j, base) {
            if at >= 2 && starts(text, at - 2, b"eyJ") {
                ask(Detector::Jwt, credentials::jwt, at - 2);
            }
        }
        for at in places(self.i, base) {
            ask(Detector::AwsAccessKey, keys::aws, at);
            ask(Detector::GcpApiKey, keys::gcp, at);
        }
        for at in places(self.slack, base) {
            ask(Detector::SlackToken, keys::slack, at);
        }
        for at in places(self.pem, base) {
            ask(Detector::PrivateKey, keys::private_key, at);
        }
    }
}

/// What begins with the digit at `start`: by the length of the number and what follows it. Returns where the upper end begins
/// if this is the lower end of a range, which it cannot be without a dash behind it.
#[inline]
fn number(
    text: &[u8],
    start: usize,
    dash: bool,
    ask: &mut impl FnMut(Detector, fn(&[u8], usize) -> Option<Span>, usize),
) -> Option<usize> {
    let rest = text.get(start..).unwrap_or_default();
    let digits = rest
        .iter()
        .take(20)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if matches!(before(text, start), b'+' | b'(') {
        ask(Detector::Phone, phone::phone, start);
    }
    let separator = byte(rest, digits);
    let goes_on =
        matches!(separator, b' ' | b'-' | b'.' | b'/') && byte(rest, digits + 1).is_ascii_digit();
    if (14..20).contains(&digits) {
        ask(Detector::CreditCard, numbers::credit_card, start);
        return (separator == b'-' && goes_on).then_some(start + digits + 1);
    }
    if digits > 7 || !goes_on {
        return None;
    }
    let mut next = None;
    if separator == b'.' {
        ask(Detector::IpAddress, addresses::ipv4, start);
        if dash {
            next = addresses::after_dash(text, start);
        }
    }
    // The shortest that are left have 11 bytes. What follows are dates and versions most of the time.
    if rest.len() < 10 {
        return next;
    }
    match digits {
        3 if byte(rest, 6) == separator => ask(Detector::UsSsn, numbers::us_ssn, start),
        4 if byte(rest, 7).is_ascii_digit() && byte(rest, 8).is_ascii_digit() => {
            ask(Detector::CreditCard, numbers::credit_card, start);
        }
        _ => {}
    }
    // Of those without a trunk prefix, groups of three digits follow each other.
    let first = byte(rest, 0);
    let grouped = match digits {
        3 => byte(rest, 7) == separator,
        1 => first == b'1' && byte(rest, 5) == separator,
        _ => false,
    };
    if first == b'0' || grouped {
        ask(Detector::Phone, phone::phone, start);
    }
    next
}

/// What begins after the dash behind an address or a card number, at `start`.
#[cold]
fn upper_end(
    text: &[u8],
    start: usize,
    ask: &mut impl FnMut(Detector, fn(&[u8], usize) -> Option<Span>, usize),
) -> Option<usize> {
    ask(Detector::IpAddress, addresses::upper_ipv4, start);
    if let Some(next) = addresses::after_dash(text, start) {
        return Some(next);
    }
    ask(Detector::CreditCard, numbers::credit_card, start);
    let rest = text.get(start..text.len().min(start + 20))?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let goes_on =
        byte(text, start + digits) == b'-' && byte(text, start + digits + 1).is_ascii_digit();
    ((14..20).contains(&digits) && goes_on).then_some(start + digits + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Enabled {
        let mut enabled = Enabled::none();
        Detector::ALL
            .into_iter()
            .for_each(|detector| enabled.add(detector));
        enabled
    }

    fn found(text: &str) -> Vec<(String, Detector)> {
        let mut all_found = AllFound::new();
        find(all(), text.as_bytes(), &mut all_found);
        // An address is found from each of its colons.
        all_found.dedup();
        let found = all_found.into_iter();
        found
            .map(|found| (text[found.span].to_owned(), found.detector))
            .collect()
    }

    #[test]
    fn what_is_found_does_not_depend_on_where_it_stands() {
        let texts = [
            ("jane@example.com", Detector::Email),
            ("192.0.2.17", Detector::IpAddress),
            ("2001:db8::17", Detector::IpAddress),
            ("00:1a:2b:3c:4d:5e", Detector::MacAddress),
            ("001a.2b3c.4d5e", Detector::MacAddress),
            ("4111 1111 1111 1111", Detector::CreditCard),
            ("378282246310005", Detector::CreditCard),
            ("078-05-1120", Detector::UsSsn),
            ("DE89 3704 0044 0532 0130 00", Detector::Iban),
            ("+49 30 901820", Detector::Phone),
            ("(415) 555-2671", Detector::Phone),
            ("/home/jane", Detector::HomeDirectory),
            ("C:\\Users\\jane", Detector::HomeDirectory),
            ("AKIAIOSFODNN7EXAMPLE", Detector::AwsAccessKey),
        ];
        for (text, detector) in texts {
            for lead in 0..140 {
                let padded = format!("{} {text} {}", ".".repeat(lead), ".".repeat(lead % 7));
                let expected = (text.to_owned(), detector);
                assert!(found(&padded).contains(&expected), "{padded}");
            }
        }
    }
}
