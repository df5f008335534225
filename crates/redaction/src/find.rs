//! Scans a text: bit masks of its bytes give the anchors, and matchers confirm hits at the anchors.

use smallvec::SmallVec;

use super::anchors::{Anchors, BEFORE, BEHIND, Part};
use super::catalogue::Detector;
use super::detect::{
    Span, addresses, assigned, credentials, email, entropy, home, iban, keys, numbers, phone,
    tokens,
};
use super::detect::{before, byte};
use super::masks::{self, Masks, WINDOW};

/// Minimum length of a text with a hit: `a@b.co`.
pub(super) const MIN_TEXT_LENGTH: usize = 6;

/// Maximum length of an address with its port, and the dash after it: `255.255.255.255:65535-`.
const ADDRESS: usize = 22;

/// A hit of a built-in detector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) span: Span,
    pub(super) detector: Detector,
}

/// Hits in a text, unordered and possibly overlapping.
pub(super) type AllFound = SmallVec<[Found; 4]>;

/// Enabled built-in detectors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Enabled {
    detectors: u32,
    /// Whether the processor supports [`Masks::of_wide`].
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
    pub(super) fn has(self, detector: Detector) -> bool {
        self.detectors & 1 << detector as u8 != 0
    }

    /// Returns all bits if IPv4 addresses are searched for, otherwise none.
    #[inline]
    fn addresses(self) -> u64 {
        0_u64.wrapping_sub(u64::from(self.has(Detector::IpAddress)))
    }
}

/// Iterates over the positions of the set bits, lowest first.
#[inline]
fn places(mut bits: u64, base: usize) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize;
        bits &= bits.checked_sub(1)?;
        Some(base + place)
    })
}

/// Returns a mask with the bits from `from` to below `to`.
#[inline]
fn bits(from: usize, to: usize) -> u64 {
    let below = |end: usize| if end >= 64 { u64::MAX } else { (1 << end) - 1 };
    below(to) & !below(from)
}

/// Whether the masks prove that a text has no hit: it is ASCII without any anchor, like most texts. Does not
/// cover [`Detector::HighEntropy`], which has no anchors.
#[inline]
#[allow(
    unsafe_code,
    reason = "only after a look at the processor is the code for its newer instructions called"
)]
pub(super) fn nothing(enabled: Enabled, text: &[u8]) -> bool {
    if text.len() < MIN_TEXT_LENGTH || enabled.detectors == 0 {
        return text.is_ascii();
    }
    #[cfg(target_arch = "x86_64")]
    if enabled.wide {
        // SAFETY: the processor supports the instructions.
        return unsafe { nothing_wide(enabled, text) };
    }
    nothing_by(Masks::of, enabled, text)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
fn nothing_wide(enabled: Enabled, text: &[u8]) -> bool {
    nothing_by(|window| Masks::of_wide(window), enabled, text)
}

#[inline(always)]
fn nothing_by(masks: impl Fn(&[u8]) -> Masks, enabled: Enabled, text: &[u8]) -> bool {
    Windows::of(text).all(|window| {
        let masks = masks(window.bytes);
        masks.foreign == 0 && Anchors::of(&masks, window.part, enabled.addresses()).is_none()
    })
}

/// Finds all hits of the enabled detectors.
#[allow(
    unsafe_code,
    reason = "only after a look at the processor is the code for its newer instructions called"
)]
pub(super) fn find(enabled: Enabled, text: &[u8], found: &mut AllFound) {
    if text.len() < MIN_TEXT_LENGTH || enabled.detectors == 0 {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if enabled.wide {
        // SAFETY: the processor supports the instructions.
        unsafe { find_wide(enabled, text, found) };
        return;
    }
    find_by(Masks::of, enabled, text, found);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
fn find_wide(enabled: Enabled, text: &[u8], found: &mut AllFound) {
    find_by(|window| Masks::of_wide(window), enabled, text, found);
}

#[inline(always)]
fn find_by(masks: impl Fn(&[u8]) -> Masks, enabled: Enabled, text: &[u8], found: &mut AllFound) {
    for window in Windows::of(text) {
        let masks = masks(window.bytes);
        if let Some(anchors) = Anchors::of(&masks, window.part, enabled.addresses()) {
            anchors.confirm(enabled, text, window.base, found);
        }
    }
    if enabled.has(Detector::HighEntropy) {
        entropy::high_entropy(text, |span| {
            found.push(Found {
                span,
                detector: Detector::HighEntropy,
            });
        });
    }
}

/// Windows of a text. They overlap by the context of an anchor.
struct Windows<'t> {
    text: &'t [u8],
    /// Start of the next window; `None` after the last one.
    base: Option<usize>,
}

struct Window<'t> {
    base: usize,
    bytes: &'t [u8],
    part: Part,
}

impl<'t> Windows<'t> {
    #[inline(always)]
    fn of(text: &'t [u8]) -> Self {
        Windows {
            text,
            base: Some(0),
        }
    }
}

impl<'t> Iterator for Windows<'t> {
    type Item = Window<'t>;

    #[inline(always)]
    fn next(&mut self) -> Option<Window<'t>> {
        let base = self.base?;
        let end = self.text.len().min(base + WINDOW);
        let goes_on = end < self.text.len();
        self.base = goes_on.then_some(base + WINDOW - BEHIND - BEFORE);
        let first = if base == 0 { 0 } else { BEFORE };
        let behind = if goes_on { WINDOW - BEHIND } else { WINDOW };
        Some(Window {
            base,
            bytes: self.text.get(base..end).unwrap_or_default(),
            part: Part {
                own: bits(first, behind),
                goes_on,
            },
        })
    }
}

impl Anchors {
    /// Calls the matchers at each anchor.
    #[cold]
    #[inline(never)]
    fn confirm(&self, enabled: Enabled, text: &[u8], base: usize, all: &mut AllFound) {
        let mut ask = |detector: Detector, matcher: fn(&[u8], usize) -> Option<Span>, at: usize| {
            if enabled.has(detector)
                && let Some(span) = matcher(text, at)
            {
                all.push(Found { span, detector });
            }
        };
        for at in places(self.number, base) {
            // A number after a dash is no anchor: the matcher for a list or range continues from the previous number.
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
            if matches!(byte(text, at + 1), b'h' | b'U' | b'u' | b'D' | b'\\') {
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
                b'p' => ask(Detector::NpmToken, tokens::npm, at),
                _ => {}
            }
        }
        for at in places(self.key, base) {
            if matches!(byte(text, at), b'n' | b'N' | b'r' | b'R') {
                ask(Detector::UsSsn, numbers::us_ssn_named, at);
            }
            if !assigned::ends_name(text, at) {
                continue;
            }
            ask(Detector::AwsSecretKey, assigned::aws_secret, at);
            ask(Detector::AzureKey, assigned::azure_key, at);
            ask(Detector::AssignedSecret, assigned::secret, at);
        }
        self.confirm_rare(base, &mut ask);
    }

    /// Calls the matchers of rare anchors.
    #[inline]
    fn confirm_rare(
        &self,
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
        for at in places(self.jwt, base) {
            ask(Detector::Jwt, credentials::jwt, at);
        }
        for at in places(self.signature, base) {
            ask(Detector::AzureKey, tokens::azure_signature, at);
        }
        for at in places(self.tilde, base) {
            ask(Detector::AzureKey, tokens::azure_client, at);
        }
        for at in places(self.gitlab, base) {
            ask(Detector::GitlabToken, tokens::gitlab, at);
        }
        for at in places(self.track, base) {
            ask(Detector::CreditCard, numbers::track, at);
        }
        for at in places(self.i, base) {
            ask(Detector::AwsAccessKey, keys::aws, at);
            ask(Detector::AwsSecretKey, keys::aws_secret_behind, at);
            ask(Detector::GcpApiKey, keys::gcp, at);
        }
        for at in places(self.slack, base) {
            ask(Detector::SlackToken, keys::slack, at);
            ask(Detector::PypiToken, tokens::pypi, at);
        }
        for at in places(self.pem, base) {
            ask(Detector::PrivateKey, keys::private_key, at);
        }
    }
}

/// Calls the matchers for the digit at `start`, depending on the length of the number and the text after it. Returns
/// the start of the upper end if an address range begins here, which requires a dash after the address.
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
        // `0049 (0)30 901820`
        let opening = digits + usize::from(separator == b' ');
        if digits <= 5 && rest.starts_with(b"00") && byte(rest, opening) == b'(' {
            ask(Detector::Phone, phone::phone, start);
        }
        return None;
    }
    let mut next = None;
    if separator == b'.' {
        ask(Detector::IpAddress, addresses::ipv4, start);
        if dash {
            next = addresses::after_dash(text, start);
        }
    }
    // The shortest remaining forms have 11 bytes. The rest are mostly dates and versions.
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
    // Numbers without a trunk prefix consist of consecutive groups of three digits.
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

/// Calls the matchers for the text after a dash behind an address or a card number, at `start`.
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
    use crate::detect::{starts, word};

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
    fn hits_are_independent_of_position() {
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
            ("0049 (0)30 901820", Detector::Phone),
            ("0049(0)30 901820", Detector::Phone),
            ("001 (415) 555-2671", Detector::Phone),
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

    /// Calls all matchers at every byte where a hit may be, without masks, anchors and windows.
    fn find_everywhere(text: &[u8]) -> Vec<(Span, Detector)> {
        let mut all = Vec::new();
        let mut ask = |detector: Detector, matcher: fn(&[u8], usize) -> Option<Span>, at: usize| {
            all.extend(matcher(text, at).map(|span| (span, detector)));
        };
        for (at, here) in text.iter().copied().enumerate() {
            let earlier = before(text, at);
            match here {
                b'0'..=b'9' if !word(earlier) && !matches!(earlier, b'-' | b'.') => {
                    let mut next = number(text, at, true, &mut ask);
                    while let Some(at) = next {
                        next = upper_end(text, at, &mut ask);
                    }
                }
                b'A'..=b'Z' | b'a'..=b'z'
                    if !word(earlier)
                        && byte(text, at + 2).is_ascii_digit()
                        && byte(text, at + 3).is_ascii_digit() =>
                {
                    ask(Detector::Iban, iban::iban, at);
                }
                b'@' => ask(Detector::Email, email::email, at),
                b':' => {
                    ask(Detector::IpAddress, addresses::ipv6, at);
                    ask(Detector::MacAddress, addresses::mac, at);
                    if starts(text, at, b"://") {
                        ask(Detector::UrlCredentials, credentials::url, at);
                        ask(Detector::SlackToken, credentials::slack_hook, at);
                    }
                }
                b'-' => {
                    ask(Detector::MacAddress, addresses::mac, at);
                    ask(Detector::SlackToken, keys::slack, at);
                    ask(Detector::PypiToken, tokens::pypi, at);
                    ask(Detector::GitlabToken, tokens::gitlab, at);
                    if earlier != b'-' {
                        ask(Detector::PrivateKey, keys::private_key, at);
                    }
                }
                b'.' => ask(Detector::MacAddress, addresses::mac_dotted, at),
                b'/' => ask(Detector::HomeDirectory, home::home, at),
                b'\\' => ask(Detector::HomeDirectory, home::home, at),
                b' ' => {
                    ask(Detector::BearerToken, credentials::bearer, at);
                    ask(Detector::BasicAuth, credentials::basic, at);
                }
                b'_' => {
                    ask(Detector::GithubToken, keys::github, at);
                    ask(Detector::StripeKey, keys::stripe, at);
                    ask(Detector::NpmToken, tokens::npm, at);
                }
                b'=' => ask(Detector::AzureKey, tokens::azure_signature, at),
                b'~' => ask(Detector::AzureKey, tokens::azure_client, at),
                _ => {}
            }
            match here {
                b'e' => ask(Detector::Jwt, credentials::jwt, at),
                b'0'..=b'9' => ask(Detector::CreditCard, numbers::track, at),
                b'I' => {
                    ask(Detector::AwsAccessKey, keys::aws, at);
                    ask(Detector::AwsSecretKey, keys::aws_secret_behind, at);
                    ask(Detector::GcpApiKey, keys::gcp, at);
                }
                _ => {}
            }
            ask(Detector::AwsSecretKey, assigned::aws_secret, at);
            ask(Detector::AzureKey, assigned::azure_key, at);
            ask(Detector::AssignedSecret, assigned::secret, at);
            ask(Detector::UsSsn, numbers::us_ssn_named, at);
        }
        entropy::high_entropy(text, |span| all.push((span, Detector::HighEntropy)));
        all.sort_by_key(|(span, detector)| (span.start, span.end, *detector as u8));
        all.dedup();
        all
    }

    /// Compares the scan with the exhaustive search, for each kind of processor.
    #[allow(unsafe_code, reason = "what the processor cannot do is left out")]
    fn compare(text: &str) {
        let text = text.as_bytes();
        let expected = match text.len() < MIN_TEXT_LENGTH {
            true => Vec::new(),
            false => find_everywhere(text),
        };
        let has_no_anchors = |found: &AllFound| {
            let mut found = found.iter();
            found.all(|found| found.detector == Detector::HighEntropy)
        };
        let check = |by: &str, all: AllFound| {
            let mut all: Vec<_> = all
                .into_iter()
                .map(|found| (found.span, found.detector))
                .collect();
            all.sort_by_key(|(span, detector)| (span.start, span.end, *detector as u8));
            all.dedup();
            assert_eq!(all, expected, "{by}: {:?}", text.escape_ascii().to_string());
        };
        let mut by_default = AllFound::new();
        find(all(), text, &mut by_default);
        assert!(has_no_anchors(&by_default) || !nothing(all(), text));
        check("find", by_default);
        if text.len() >= MIN_TEXT_LENGTH {
            let mut narrow = AllFound::new();
            find_by(Masks::of, all(), text, &mut narrow);
            assert!(has_no_anchors(&narrow) || !nothing_by(Masks::of, all(), text));
            check("find_by", narrow);
        }
        for detector in Detector::ALL {
            let mut enabled = Enabled::none();
            enabled.add(detector);
            let mut alone = AllFound::new();
            find(enabled, text, &mut alone);
            let mut alone: Vec<Span> = alone.into_iter().map(|found| found.span).collect();
            alone.sort_by_key(|span| (span.start, span.end));
            alone.dedup();
            let expected = expected.iter().filter(|(_, by)| *by == detector);
            let expected: Vec<Span> = expected.map(|(span, _)| span.clone()).collect();
            assert_eq!(
                alone,
                expected,
                "{detector}: {:?}",
                text.escape_ascii().to_string()
            );
        }
    }

    #[test]
    fn anchors_find_all_hits_of_full_search() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut texts: Vec<String> = Vec::new();
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
        for file in std::fs::read_dir(corpus).unwrap() {
            let file = std::fs::read_to_string(file.unwrap().path()).unwrap();
            texts.extend(file.lines().map(|line| line.replace("<>", "")));
        }
        texts.extend(crate::corpus::some_texts());
        assert!(texts.len() > 2000);
        for text in &texts {
            compare(text);
        }
        // Two texts with some changed bytes, at any distance from the beginning.
        let bytes = b"0123456789 -./:_@(+AaIhJ\\x=~\"deknstwyB^";
        for _ in 0..2000 {
            let mut text = ".".repeat(random.usize(..70));
            for _ in 0..2 {
                text.push_str(random.choice(&texts).unwrap());
            }
            let mut text: Vec<u8> = text.into_bytes();
            for _ in 0..random.usize(..4) {
                let at = random.usize(..text.len());
                let byte = *random.choice(bytes).unwrap();
                match random.u8(..3) {
                    0 => text[at] = byte,
                    1 => text.insert(at, byte),
                    _ => drop(text.remove(at)),
                }
            }
            compare(&String::from_utf8_lossy(&text));
        }
        for _ in 0..5000 {
            let mut text = String::new();
            while text.len() < 90 {
                for _ in 0..random.choice([1, 2, 2, 3, 3, 3, 4, 4, 6, 14, 16]).unwrap() {
                    text.push(char::from(b'0' + random.u8(..10)));
                }
                text.push(
                    random
                        .choice(['-', '-', '.', '.', ' ', ' ', '/', ':', '(', ')', '+', 'x'])
                        .unwrap(),
                );
                if random.u8(..12) == 0 {
                    text.push_str(" 4111 1111 1111 1111,");
                }
            }
            compare(&text);
        }
    }
}
