//! Anchors: positions in a window at which matchers are called.
//!
//! A matcher takes longer than the scan of many windows, mostly because of mispredicted branches. Therefore an anchor
//! tests as much of its matcher's pattern as shifted masks can express. For example, a number is an anchor only if it
//! continues like a telephone number. An anchor may have false positives, but no false negatives; a test compares
//! anchors with calling the matchers at every position.

use super::masks::{Masks, WINDOW};

/// Number of bytes before and after an anchor that its mask depends on. An inner window reports only anchors
/// with that many bytes on both sides.
pub(super) const BEFORE: usize = 8;
pub(super) const BEHIND: usize = 12;

/// The part of a window whose anchors are reported.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// Bit per reported byte.
    pub(super) own: u64,
    /// Whether the text continues after the window.
    pub(super) goes_on: bool,
}

/// Anchors, one bit per byte of the window.
pub(super) struct Anchors {
    /// Digits that begin a number outside of a date, a version or an id. Either all such digits are set, because any of
    /// them may begin a hit, or no digit.
    pub(super) number: u64,
    /// All dashes. The text after the window may continue the hit.
    pub(super) dash: u64,
    /// `@`
    pub(super) at: u64,
    /// `://`, if an `@` follows or the host is `hooks.slack.com`.
    pub(super) url: u64,
    /// First of two colons, or of three colons at most 5 bytes apart.
    pub(super) ipv6: u64,
    /// First of three separators 3 bytes apart.
    pub(super) mac: u64,
    /// First of two dots 5 bytes apart, between groups of four letters and digits.
    pub(super) mac_dotted: u64,
    /// First of two digits after two letters.
    pub(super) iban: u64,
    /// Underscores after a possible token prefix.
    pub(super) underscore: u64,
    /// Dashes after four letters.
    pub(super) slack: u64,
    /// First of five dashes.
    pub(super) pem: u64,
    /// Spaces after a possible `Bearer` or `Basic`.
    pub(super) space: u64,
    /// Slashes before a word of 4 or 5 letters, which may be a directory of home directories; backslashes before a
    /// letter; and the first of two backslashes.
    pub(super) path: u64,
    /// `e` before `y` or `w`, at the beginning of a word.
    pub(super) jwt: u64,
    /// Last letter of a possible key name of a secret, before `=` or `:`.
    pub(super) key: u64,
    /// `=` after three letters that begin with `s`, for `sig`.
    pub(super) signature: u64,
    /// `~` after a digit and a letter.
    pub(super) tilde: u64,
    /// Dashes after `t` and before a long token.
    pub(super) gitlab: u64,
    /// Long numbers after `B`, as at the beginning of track 1 of a magnetic stripe.
    pub(super) track: u64,
    /// `I` next to an `A`.
    pub(super) i: u64,
}

impl Anchors {
    /// Returns the anchors in a part of the window; `None` for most texts. `addresses` has all bits set if
    /// IPv4 addresses are searched for. Inlined, so that masks stay in registers for every instruction set.
    #[inline(always)]
    pub(super) fn of(masks: &Masks, part: Part, addresses: u64) -> Option<Anchors> {
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
            opening,
            zero: _,
            a,
            b,
            home,
            scheme,
            equal,
            tilde,
            d,
            e,
            n,
            s,
            t,
            w,
            y,
            i,
            foreign: _,
        } = *masks;
        let own = part.own;
        let joined = digit | alpha;
        let word = joined | underscore;
        let all_if = |there: bool| 0_u64.wrapping_sub(u64::from(there));

        let letters = alpha << 1 & alpha << 2;
        let begins = digit & !((word | dash | dot) << 1);
        let number = begins & own;
        // A telephone number after `+` or a parenthesis. The number may begin earlier, as in `0049 (0)30`, so positions
        // after the part count too.
        let opened = begins & opening << 1;
        let mut anchors = Anchors {
            number: 0,
            dash: dash | u64::from(part.goes_on) << (WINDOW - 1),
            at: at & own,
            url: 0,
            ipv6: 0,
            mac: 0,
            mac_dotted: 0,
            iban: digit & digit >> 1 & letters & !(word << 3) & own,
            underscore: 0,
            slack: 0,
            pem: 0,
            space: space & scheme << 1 & (b << 5 | b << 6) & own,
            path: (slash & home >> 1 & (slash >> 5 | slash >> 6)
                | backslash & (alpha | backslash) >> 1)
                & own,
            jwt: e & (y | w) >> 1 & !(joined << 1) & own,
            key: 0,
            signature: 0,
            tilde: 0,
            gitlab: 0,
            track: 0,
            i: i & (a << 1 | a >> 1) & own,
        };
        // Expensive masks are computed only if their characteristic byte occurs, which is predictable for the values of
        // one key.
        if opened | numbers_behind(masks, number) | long(digit, number) != 0 {
            let addresses = addresses | all_if(anchors.dash != 0);
            anchors.number = number & all_if(opened | numbers(masks, number, addresses) != 0);
        }
        let tracks = digit & b << 1 & !(word << 2) & own;
        if tracks != 0 {
            anchors.track = long(digit, tracks);
        }
        if tilde != 0 {
            anchors.tilde = tilde & alpha << 1 & digit << 2 & own;
        }
        let assigned = equal | colon;
        if assigned != 0 {
            anchors.signature = equal & letters & s << 3 & !(word << 4) & own;
            // `rd`, `wd`, `ret`, `en`, `ey`, `ass`, `rase`, `ssn`, `ber`, and quotes or spaces before the sign.
            let other = !(word | dash);
            let soon = assigned >> 1
                | assigned >> 2 & other >> 1
                | assigned >> 3 & other >> 1 & other >> 2;
            let ends = d & (scheme | w) << 1
                | t & e << 1 & scheme << 2
                | (n | y) & e << 1
                | s & s << 1 & a << 2
                | e & s << 1 & a << 2 & scheme << 3
                | n & s << 1 & s << 2
                | scheme & e << 1 & b << 2;
            anchors.key = ends & soon & own;
        }
        if colon != 0 {
            // Two adjacent colons, or three colons near each other: a time of day has only two.
            let soon =
                |colons: u64| colons >> 1 | colons >> 2 | colons >> 3 | colons >> 4 | colons >> 5;
            anchors.ipv6 = colon & (colon >> 1 | soon(colon & soon(colon))) & own;
            anchors.mac = again(again(colon, 3), 3) & own;
            let near = home >> 3 | all_if(at != 0 || part.goes_on);
            anchors.url = colon & slash >> 1 & slash >> 2 & near & own;
        }
        if dash != 0 {
            anchors.mac |= again(again(dash, 3), 3) & own;
            anchors.slack = dash & letters & alpha << 3 & alpha << 4 & !(joined << 5) & own;
            // Prefixes have 4 to 7 letters.
            let inside = word | dash;
            let short = !(inside << 5 & inside << 6 & inside << 7 & inside << 8);
            anchors.gitlab = dash & t << 1 & letters & short & token(word | dash) >> 1 & own;
            anchors.pem = again(again(again(dash, 1), 2), 1) & !(dash << 1) & own;
        }
        let dots = again(dot, 5);
        if dots != 0 {
            let fours = again(again(digit | alpha, 1), 2);
            anchors.mac_dotted = dots & fours << 4 & !(word << 5) & fours >> 1 & fours >> 6 & own;
        }
        if underscore != 0 {
            // `sk` and `rk`, `gh` and a letter, `github_pat`, `whsec`.
            let prefix = !(joined << 3)
                | home << 2 & alpha << 3 & !(joined << 4)
                | a << 2 & underscore << 4
                | scheme << 1 & home << 4 & !(joined << 6)
                | n << 3 & !(joined << 4) & token(word) >> 1;
            anchors.underscore = underscore & letters & prefix & own;
        }
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
            | anchors.jwt
            | anchors.key
            | anchors.signature
            | anchors.tilde
            | anchors.gitlab
            | anchors.track
            | anchors.i;
        (any != 0).then_some(anchors)
    }
}

/// Returns the set bits that have another set bit `distance` bytes later.
#[inline(always)]
fn again(mask: u64, distance: u32) -> u64 {
    mask & mask >> distance
}

/// Returns the positions at which 11 bytes of a class begin.
#[inline(always)]
fn token(class: u64) -> u64 {
    let eights = again(again(again(class, 1), 2), 4);
    again(eights, 3)
}

/// Returns the positions after the numbers that begin at `number`: the addition carries the bit over all
/// digits.
#[inline(always)]
fn behind(digit: u64, number: u64) -> u64 {
    digit.wrapping_add(number) & !digit
}

/// Returns the positions after numbers that are followed by a separator and another number.
#[inline(always)]
fn numbers_behind(masks: &Masks, number: u64) -> u64 {
    let separator = masks.space | masks.dash | masks.dot | masks.slash;
    behind(masks.digit, number) & separator & masks.digit >> 1
}

/// Returns numbers of 12 digits and more. Card numbers without separators have at least 14.
#[inline(always)]
fn long(digit: u64, number: u64) -> u64 {
    let fours = again(again(digit, 1), 2);
    number & fours & fours >> 4 & fours >> 8
}

/// Returns a non-zero mask if a number that begins at `number` may begin a hit. `addresses` has all bits set if four
/// dotted numbers may be an address.
#[inline(always)]
fn numbers(masks: &Masks, number: u64, addresses: u64) -> u64 {
    let Masks {
        digit,
        dot,
        dash,
        space,
        zero,
        ..
    } = *masks;
    let pairs = again(digit, 1);
    // `AAA-GG-S`
    let ssn = number << 3 & (again(dash, 3) | again(space, 3)) & digit >> 2 & digit >> 4;
    // `4111 1111`, and the 6 digits of other cards.
    let card = number << 4 & (dash | space) & pairs >> 1 & pairs >> 3;
    // `415-555-2`, `1-415-555-2`
    let grouped = (number << 3 | number << 1)
        & (again(dash, 4) | again(dot, 4) | again(space, 4))
        & pairs >> 1
        & digit >> 3
        & digit >> 5;
    // `030 90`, `0049 30`
    let trunk = behind(digit, number & zero & digit >> 1);
    let near = |dots: u64| dots >> 2 | dots >> 3 | dots >> 4;
    let address = dot & near(dot & near(dot)) & addresses;
    long(digit, number) | numbers_behind(masks, number) & (ssn | card | grouped | trunk | address)
}
