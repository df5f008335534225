//! Suggestions for unknown names ("Did you mean").

/// Jaro-Winkler similarity (0 to 1) above which a name is probably a typing mistake.
const MIN_SIMILARITY: f64 = 0.8;

/// Returns the nearest known name, if it is similar enough.
pub fn closest<S: AsRef<str>>(name: &str, known: &[S]) -> Option<String> {
    let folded = fold(name);
    known
        .iter()
        .map(|known| {
            let known = known.as_ref();
            (alike(&folded, &fold(known)), known)
        })
        .filter(|(alike, _)| *alike > MIN_SIMILARITY)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known.to_owned())
}

/// Returns the Jaro-Winkler similarity. The measure misses swapped letters in short names, such as `tsl` for `tls`, so
/// swapped letters are a separate test.
fn alike(name: &str, known: &str) -> f64 {
    let one_slip = name.len() > 2 && strsim::osa_distance(name, known) == 1;
    strsim::jaro_winkler(name, known).max(if one_slip { 0.9 } else { 0.0 })
}

/// Returns the known name of which `name` is a misspelling. Other words do not match: `k8sattributes` is not
/// `attributes`.
pub fn mistyped<S: AsRef<str>>(name: &str, known: &[S]) -> Option<String> {
    let folded = fold(name);
    let most = (folded.chars().count() / 3).min(2);
    known
        .iter()
        .map(|known| {
            let known = known.as_ref();
            (strsim::damerau_levenshtein(&folded, &fold(known)), known)
        })
        .filter(|(wrong, _)| *wrong <= most)
        .min_by_key(|(wrong, _)| *wrong)
        .map(|(_, known)| known.to_owned())
}

/// Joins all known names in one line.
pub fn list<S: AsRef<str>>(known: &[S]) -> String {
    if known.is_empty() {
        return "no keys are allowed here".to_owned();
    }
    // A value that is also accepted in another case is listed once, in lower case.
    let other_case = |name: &str| {
        let lower = name.to_lowercase();
        lower != name && known.iter().any(|other| other.as_ref() == lower)
    };
    let names: Vec<String> = known
        .iter()
        .map(AsRef::as_ref)
        .filter(|name| !other_case(name))
        .map(|name| format!("`{name}`"))
        .collect();
    format!("known here: {}", names.join(", "))
}

/// Normalizes case and separators, the most frequent mistakes: `sendingQueue`, `sending-queue`.
fn fold(name: &str) -> String {
    name.chars()
        .filter(|letter| !matches!(letter, '_' | '-'))
        .flat_map(char::to_lowercase)
        .collect()
}
