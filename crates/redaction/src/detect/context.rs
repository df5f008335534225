//! Examines the words before a number. They may mark the number as a version, a part or an order instead of an address,
//! card or person.

use super::{before, run_back};

/// Maximum distance of words, in bytes.
const MAX_WORD_DISTANCE: usize = 56;

/// Maximum number of examined words.
const WORDS: usize = 6;

/// Words between a noun and its number: `version is 1.2.3.4`, `part no. 17`.
const DIRECT: [&[u8]; 6] = [b"is", b"no", b"nr", b"num", b"number", b"was"];

/// Words and numbers between a verb and a number: `upgraded from 1.2.3.4 to 1.2.3.5`.
const FAR_FILLERS: [&[u8]; 4] = [b"to", b"from", b"the", b"with"];

/// Whether the noun before `start` is in `words`: `part 17`, `part no. 17`.
pub(super) fn said(text: &[u8], start: usize, words: &[&[u8]]) -> bool {
    find(text, start, false, |word| is_one_of(word, words))
}

/// Whether a word is in `words`, in upper or lower case.
pub(super) fn is_one_of(word: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|other| word.eq_ignore_ascii_case(other))
}

/// Whether a word before `start` matches. Skips fillers, and if `far` is set, further fillers and numbers. Any other
/// word ends the search. `order_id` counts as two words.
pub(super) fn find(text: &[u8], start: usize, far: bool, fits: impl Fn(&[u8]) -> bool) -> bool {
    let first = start.saturating_sub(MAX_WORD_DISTANCE);
    let separator = |byte: u8| b" =:\"'`(>[#\\_-/.".contains(&byte);
    let digits = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let mut end = start;
    for _ in 0..WORDS {
        end -= run_back(text, end, end - first, separator);
        let mut length = run_back(text, end, end - first, |byte| byte.is_ascii_alphanumeric());
        if before(text, end).is_ascii_digit() {
            // A dotted number is one word.
            length = length.max(run_back(text, end, end - first, digits));
        }
        let mut word = text.get(end - length..end).unwrap_or_default();
        end -= length;
        if word.eq_ignore_ascii_case(b"n")
            && matches!(text.get(..end), Some([.., b'p' | b'P', b'/']))
        {
            word = b"pn";
        }
        if word.is_empty() {
            return false;
        }
        if fits(word) {
            return true;
        }
        let number = word.iter().copied().all(digits);
        if !is_one_of(word, &DIRECT) && !(far && (number || is_one_of(word, &FAR_FILLERS))) {
            return false;
        }
    }
    false
}

/// Nouns of numbers that are grouped like telephone and social security numbers.
pub(super) const PARTS: [&[u8]; 26] = [
    b"part",
    b"parts",
    b"partno",
    b"pn",
    b"sku",
    b"item",
    b"model",
    b"serial",
    b"sn",
    b"order",
    b"catalog",
    b"catalogue",
    b"ref",
    b"reference",
    b"lot",
    b"batch",
    b"article",
    b"product",
    b"invoice",
    b"ticket",
    b"stock",
    b"build",
    b"material",
    b"component",
    b"ext",
    b"mpn",
];

/// Nouns of numbers with as many digits as card numbers.
pub(super) const COUNTERS: [&[u8]; 22] = [
    b"order",
    b"orderid",
    b"invoice",
    b"ticket",
    b"trace",
    b"traceid",
    b"span",
    b"spanid",
    b"request",
    b"requestid",
    b"req",
    b"seq",
    b"sequence",
    b"offset",
    b"timestamp",
    b"ts",
    b"time",
    b"tracking",
    b"serial",
    b"sku",
    b"nonce",
    b"epoch",
];

/// Nouns and verbs before telephone numbers.
pub(super) const PHONES: [&[u8]; 16] = [
    b"phone",
    b"phonenumber",
    b"telephone",
    b"telefon",
    b"tel",
    b"mobile",
    b"cell",
    b"cellphone",
    b"fax",
    b"call",
    b"called",
    b"caller",
    b"dial",
    b"sms",
    b"msisdn",
    b"whatsapp",
];
