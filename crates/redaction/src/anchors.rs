//! Anchors: places in a window at which matchers are called.
//!
//! A matcher takes longer than many windows, mostly because of mispredicted branches. Therefore an anchor tests as
//! much of its matcher's pattern as shifted masks can express: not every number, but numbers that continue like a
//! telephone number. An anchor may have false positives, but no false negatives; a test compares anchors with
//! calling the matchers everywhere.

use super::masks::{Masks, WINDOW};

/// Bytes before an anchor, and from it on, that its mask depends on. A window that is neither the first nor the
/// last answers only for places with that many bytes around them.
pub(super) const BEFORE: usize = 8;
pub(super) const BEHIND: usize = 12;

/// The part of a window that it answers for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// The places.
    pub(super) own: u64,
    /// Whether the text goes on behind the window.
    pub(super) goes_on: bool,
}

/// One bit per place at which something could be.
pub(super) struct Anchors {
    /// Digits that begin a number, and not one in the middle of a date, a version or an id: all of them if one of them could
    /// be something, else none.
    pub(super) number: u64,
    /// All dashes. What is behind the window may be one.
    pub(super) dash: u64,
    /// `@`
    pub(super) at: u64,
    /// `://`, if there is an `@` behind it or it is one of `hooks.slack.com`.
    pub(super) url: u64,
    /// The first of two colons, or of three at most 5 bytes apart.
    pub(super) ipv6: u64,
    /// The first of three separators 3 bytes apart.
    pub(super) mac: u64,
    /// The first of two dots 5 bytes apart, between groups of four letters and digits.
    pub(super) mac_dotted: u64,
    /// The first of two digits after two letters.
    pub(super) iban: u64,
    /// Underscores after what may be the prefix of a token.
    pub(super) underscore: u64,
    /// Dashes after four letters.
    pub(super) slack: u64,
    /// The first of five dashes.
    pub(super) pem: u64,
    /// Spaces after what may be `Bearer` or `Basic`.
    pub(super) space: u64,
    /// Slashes before a word of 4 or 5 letters that begins like a directory of home directories, backslashes before a
    /// letter, and the first of two backslashes.
    pub(super) path: u64,
    /// `e` before `y` or `w`, at the beginning of a word.
    pub(super) jwt: u64,
    /// Last letters of what may be the name of a key whose value is secret, before `=` or `:`.
    pub(super) key: u64,
    /// `=` after three letters that begin with `s`, which may be `sig`.
    pub(super) signature: u64,
    /// `~` after a digit and a letter.
    pub(super) tilde: u64,
    /// Dashes after `t` and before a long token.
    pub(super) gitlab: u64,
    /// Long numbers after `B`, as track 1 of a magnetic stripe begins.
    pub(super) track: u64,
    /// `I` next to an `A`.
    pub(super) i: u64,
}

impl Anchors {
    /// The anchors among the places of a part; none for most texts. `addresses` has all bits set if addresses of IP
    /// version 4 are looked for. Inlined, so that masks stay in registers whatever the instructions are that made them.
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
        let word = digit | alpha | underscore;
        let all_if = |there: bool| 0_u64.wrapping_sub(u64::from(there));

        let letters = alpha << 1 & alpha << 2;
        let begins = digit & !((word | dash | dot) << 1);
        let number = begins & own;
        // Behind a `+` or a parenthesis: a telephone number. It may begin before it, `0049 (0)30`, so those behind the part
        // count too.
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
            jwt: e & (y | w) >> 1 & !(word << 1) & own,
            key: 0,
            signature: 0,
            tilde: 0,
            gitlab: 0,
            track: 0,
            i: i & (a << 1 | a >> 1) & own,
        };
        // What takes long to find out is asked only where its sign is, which is the same for most values of a key.
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
            // `rd`, `wd`, `ret`, `en`, `ey`, `ass`, `rase`, and quotes or spaces before the sign.
            let other = !(word | dash);
            let soon = assigned >> 1
                | assigned >> 2 & other >> 1
                | assigned >> 3 & other >> 1 & other >> 2;
            let ends = d & (scheme | w) << 1
                | t & e << 1 & scheme << 2
                | (n | y) & e << 1
                | s & s << 1 & a << 2
                | e & s << 1 & a << 2 & scheme << 3;
            anchors.key = ends & soon & own;
        }
        if colon != 0 {
            // Two together, or three near each other: a time of day has only two.
            let soon =
                |colons: u64| colons >> 1 | colons >> 2 | colons >> 3 | colons >> 4 | colons >> 5;
            anchors.ipv6 = colon & (colon >> 1 | soon(colon & soon(colon))) & own;
            anchors.mac = again(again(colon, 3), 3) & own;
            let near = home >> 3 | all_if(at != 0 || part.goes_on);
            anchors.url = colon & slash >> 1 & slash >> 2 & near & own;
        }
        if dash != 0 {
            anchors.mac |= again(again(dash, 3), 3) & own;
            anchors.slack = dash & letters & alpha << 3 & alpha << 4 & !(word << 5) & own;
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
            let prefix = !(word << 3)
                | home << 2 & alpha << 3 & !(word << 4)
                | a << 2 & underscore << 4
                | scheme << 1 & home << 4 & !(word << 6)
                | n << 3 & !(word << 4) & token(word) >> 1;
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

/// The places that have a bit set, and another one at a distance behind it.
#[inline(always)]
fn again(mask: u64, distance: u32) -> u64 {
    mask & mask >> distance
}

/// The places at which 11 bytes of a class begin.
#[inline(always)]
fn token(class: u64) -> u64 {
    let eights = again(again(again(class, 1), 2), 4);
    again(eights, 3)
}

/// The places behind the digits of numbers that begin at `number`: adding a one where digits begin carries it there.
#[inline(always)]
fn behind(digit: u64, number: u64) -> u64 {
    digit.wrapping_add(number) & !digit
}

/// The places behind numbers at which another number follows after a separator.
#[inline(always)]
fn numbers_behind(masks: &Masks, number: u64) -> u64 {
    let separator = masks.space | masks.dash | masks.dot | masks.slash;
    behind(masks.digit, number) & separator & masks.digit >> 1
}

/// Numbers of 12 digits and more: all that are card numbers without separators have 14.
#[inline(always)]
fn long(digit: u64, number: u64) -> u64 {
    let fours = again(again(digit, 1), 2);
    number & fours & fours >> 4 & fours >> 8
}

/// Not zero if one of the numbers that begin at `number` may be something. `addresses` has all bits set if four numbers
/// with dots between them may be.
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
        & (again(dash, 4) | again(dot, 4))
        & pairs >> 1
        & digit >> 3
        & digit >> 5;
    // `030 90`, `0049 30`
    let trunk = behind(digit, number & zero & digit >> 1);
    let near = |dots: u64| dots >> 2 | dots >> 3 | dots >> 4;
    let address = dot & near(dot & near(dot)) & addresses;
    long(digit, number) | numbers_behind(masks, number) & (ssn | card | grouped | trunk | address)
}
