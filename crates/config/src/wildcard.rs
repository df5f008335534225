//! Patterns with `*` and `?`.

/// Whether `pattern` matches `text`. Only the last `*` is extended when the rest does not match, so the time is at most
/// the product of both lengths.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut from) = (0, 0);
    let mut star = None;
    while from < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(c) if *c == '?' || *c == text[from] => {
                at += 1;
                from += 1;
            }
            _ => {
                let Some((star_at, taken)) = star else {
                    return false;
                };
                star = Some((star_at, taken + 1));
                at = star_at + 1;
                from = taken + 1;
            }
        }
    }
    pattern.iter().skip(at).all(|c| *c == '*')
}
