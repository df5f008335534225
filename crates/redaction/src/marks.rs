//! Marks: the texts that replace hits, and the recognition of marks from an earlier redaction.

use std::ops::Range;

use super::SettingsError;
use super::catalogue::DetectorId;
use super::hash::Hasher;
use super::settings::DetectorAction;

/// Mark of a masked hit, the same as the Collector's.
pub(super) const MASK: &str = "****";

/// Characters that `partial` keeps.
const KEPT_CHARACTERS: usize = 4;
/// Shortest hit of which `partial` keeps characters, so that at most a third of a hit remains.
const MIN_PARTIAL_LENGTH: usize = 3 * KEPT_CHARACTERS;

/// Action of a detector together with its label.
pub(super) struct Treatment {
    pub(super) action: DetectorAction,
    /// Text of a `replace` mark and the prefix of a hash: `EMAIL`.
    pub(super) label: String,
}

impl Treatment {
    /// Writes the mark that replaces `hit`. Hashes are computed from `canonical`.
    pub(super) fn write(
        &self,
        hit: &str,
        canonical: impl FnOnce() -> String,
        hashers: &Hashers,
        output: &mut String,
    ) {
        let hash = |hasher: &Option<Hasher>, output: &mut String| match hasher {
            Some(hasher) => {
                output.push('[');
                output.push_str(&self.label);
                output.push(':');
                output.push_str(&hasher.hex(&canonical()));
                output.push(']');
            }
            // Unreachable: the scanner is refused at construction if its actions need a hasher that is missing.
            None => output.push_str(MASK),
        };
        match self.action {
            DetectorAction::Mask => output.push_str(MASK),
            DetectorAction::Replace if self.label == "HOME_DIRECTORY" => output.push('~'),
            DetectorAction::Replace => {
                output.push('[');
                output.push_str(&self.label);
                output.push(']');
            }
            DetectorAction::Hash => hash(&hashers.hash, output),
            DetectorAction::Hmac => hash(&hashers.hmac, output),
            DetectorAction::Partial => {
                output.push_str(MASK);
                let length = hit.chars().count();
                if length >= MIN_PARTIAL_LENGTH {
                    output.extend(hit.chars().skip(length - KEPT_CHARACTERS));
                }
            }
            DetectorAction::Truncate | DetectorAction::Drop => {}
        }
    }
}

/// Hash functions of the actions `hash` and `hmac`; `None` if no detector uses the action.
#[derive(Debug, Default)]
pub(super) struct Hashers {
    pub(super) hash: Option<Hasher>,
    pub(super) hmac: Option<Hasher>,
}

impl Hashers {
    pub(super) fn new(
        settings: &super::ScannerSettings<'_>,
        used: impl Fn(DetectorAction) -> bool,
    ) -> Result<Hashers, SettingsError> {
        use super::settings::HashFunction;
        let function = settings.hash_function;
        let hash = used(DetectorAction::Hash).then(|| function.unwrap_or(HashFunction::Sha3));
        let hmac = used(DetectorAction::Hmac).then_some(match function {
            Some(HashFunction::HmacSha512) => HashFunction::HmacSha512,
            _ => HashFunction::HmacSha256,
        });
        let hasher = |function: Option<HashFunction>| {
            function
                .map(|function| Hasher::new(function, settings.hmac_key))
                .transpose()
        };
        Ok(Hashers {
            hash: hasher(hash)?,
            hmac: hasher(hmac)?,
        })
    }
}

/// Returns the ranges of marks from an earlier redaction: `****` with up to four characters kept by `partial`, and
/// `[LABEL]` or `[LABEL:hash]`.
pub(super) fn marks(text: &str, known: impl Fn(&str) -> bool) -> Vec<Range<usize>> {
    let mut marks = Vec::new();
    for (start, _) in text.match_indices('[') {
        let rest = text.get(start + 1..).unwrap_or_default();
        let Some(end) = rest.bytes().take(220).position(|byte| byte == b']') else {
            continue;
        };
        let inside = rest.get(..end).unwrap_or_default();
        let (label, hash) = match inside.split_once(':') {
            Some((label, hash)) => (label, Some(hash)),
            None => (inside, None),
        };
        // Only a hash may follow the colon; a bracketed number is not a mark.
        let fits = hash.is_none_or(|hash| {
            let lower = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
            matches!(hash.len(), 32 | 40 | 64 | 128) && hash.bytes().all(lower)
        });
        if fits && known(label) {
            marks.push(start..start + end + 2);
        }
    }
    let mut from = 0;
    while let Some(found) = text.get(from..).and_then(|rest| rest.find(MASK)) {
        let start = from + found;
        let rest = text.get(start..).unwrap_or_default();
        let asterisks = rest.bytes().take_while(|byte| *byte == b'*').count();
        let kept = rest
            .get(asterisks..)
            .unwrap_or_default()
            .chars()
            .take(KEPT_CHARACTERS);
        let kept = kept
            .take_while(|kept| !kept.is_whitespace())
            .map(char::len_utf8)
            .sum::<usize>();
        marks.push(start..start + asterisks + kept);
        from = start + asterisks;
    }
    marks.sort_unstable_by_key(|mark| mark.start);
    marks
}

/// Returns the label of a detector: its name in upper case.
pub(super) fn label(name: &str) -> String {
    name.to_ascii_uppercase()
}

/// A hit and its detector, for the choice between overlapping hits.
#[derive(Debug, Clone)]
pub(super) struct Hit {
    pub(super) span: Range<usize>,
    /// Priority among hits at the same position; the lowest rank wins.
    pub(super) rank: u8,
    pub(super) id: DetectorId,
    /// Decoded hit, if the text spells the hit in other characters: encoded, escaped or full-width.
    pub(super) plain: Option<String>,
}

/// Merges overlapping hits. The leftmost hit, then the lowest rank, decides the action and then covers the whole
/// range.
pub(super) fn merge(hits: &mut Vec<Hit>) {
    hits.sort_by_key(|hit| (hit.span.start, hit.rank));
    hits.dedup_by(|next, earlier| {
        let overlap = next.span.start < earlier.span.end;
        if overlap && next.span.end > earlier.span.end {
            earlier.span.end = next.span.end;
            // The merged hit covers more than its decoded text.
            earlier.plain = None;
        }
        overlap
    });
}
