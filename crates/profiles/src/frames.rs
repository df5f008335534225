//! Selects visible frames and samples: applies the drop patterns of a profile and the search of a user.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use regex::Regex;

use super::dictionary::Dictionary;
use super::id::{Id as _, LocationId, StringId};
use super::model::Profile;
use super::names;
use crate::entry::Line;
use tributary_config::re2;

/// Filter of samples.
#[derive(Debug, Default)]
pub struct Selection {
    /// Selects only samples with a frame whose function, file or binary matches.
    pub focus: Option<Regex>,
    /// Excludes samples with a frame whose function, file or binary matches, even if `focus` selects them.
    pub ignore: Option<Regex>,
}

impl Selection {
    /// Whether every sample is selected.
    pub fn is_all(&self) -> bool {
        self.focus.is_none() && self.ignore.is_none()
    }

    /// Effect of a location: selects or excludes its sample; `None` if the location has no effect.
    pub(super) fn of(
        &self,
        dictionary: &Dictionary,
        lines: &[Line],
        location: LocationId,
    ) -> Option<bool> {
        let matches = |regex: &Regex| {
            let by_line = lines.iter().any(|line| {
                let function = dictionary.get_function(line.function);
                regex.is_match(dictionary.text(function.name))
                    || regex.is_match(dictionary.text(function.filename))
            });
            let mapping = dictionary.get_location(location).mapping;
            by_line
                || (mapping.index() != 0
                    && regex.is_match(dictionary.text(dictionary.get_mapping(mapping).filename)))
        };
        if self.ignore.as_ref().is_some_and(matches) {
            return Some(false);
        }
        self.focus.as_ref().is_none_or(matches).then_some(true)
    }
}

/// Frames to drop according to a profile: functions that match `drop_frames` but not `keep_frames`, with all their
/// callees. Follows `Prune` in `profile/prune.go` of github.com/google/pprof.
#[derive(Debug)]
pub struct Pruning {
    drop: Regex,
    keep: Option<Regex>,
    drops: HashMap<StringId, bool, RandomState>,
}

/// Position at which a location cuts a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// No cut.
    None,
    /// Cuts before the location.
    Before,
    /// Cuts after the location, of which only the callers of the dropped lines remain.
    After,
}

impl Pruning {
    /// Returns the frames to drop according to a profile; `None` if the profile drops no frames.
    ///
    /// # Errors
    /// Fails if a pattern is not a valid regular expression or takes too much memory. The pattern is untrusted
    /// input.
    pub fn of(dictionary: &Dictionary, profile: &Profile) -> Result<Option<Self>, String> {
        let text = |key: &str| {
            let found = dictionary.find(profile.header.attributes, key)?;
            match dictionary.any_value(found.value).value? {
                Value::StringValue(text) if !text.is_empty() => Some(text),
                _ => None,
            }
        };
        let whole = |key: &str, text: String| {
            re2::compile(&format!("^({text})$"))
                .map_err(|wrong| format!("{key} of a profile has no effect: the pattern {wrong}"))
        };
        let Some(drop) = text(names::DROP_FRAMES) else {
            return Ok(None);
        };
        let keep = text(names::KEEP_FRAMES).map(|keep| whole("keep_frames", keep));
        Ok(Some(Pruning {
            drop: whole("drop_frames", drop)?,
            keep: keep.transpose()?,
            drops: HashMap::default(),
        }))
    }

    /// Returns the remaining lines of a location, innermost first, and the position of the cut.
    pub fn lines<'l>(&mut self, dictionary: &Dictionary, lines: &'l [Line]) -> (&'l [Line], Cut) {
        let dropped = lines.iter().rposition(|line| {
            let name = dictionary.get_function(line.function).name;
            self.drops(dictionary, name)
        });
        let Some(at) = dropped else {
            return (lines, Cut::None);
        };
        match lines.get(at + 1..).unwrap_or_default() {
            [] => (lines, Cut::Before),
            callers => (callers, Cut::After),
        }
    }

    fn drops(&mut self, dictionary: &Dictionary, name: StringId) -> bool {
        if let Some(known) = self.drops.get(&name) {
            return *known;
        }
        let text = dictionary.text(name);
        let simple = without_arguments(text);
        let drops = !text.is_empty()
            && self.drop.is_match(simple)
            && !self.keep.as_ref().is_some_and(|keep| keep.is_match(simple));
        self.drops.insert(name, drops);
        drops
    }
}

/// Returns the remaining part of a stack, leaf first, with `cut` applied to each location. Frames at the root stay up
/// to the first frame that is not dropped; otherwise the stack might become empty.
pub fn kept(stack: &[LocationId], cut: impl Fn(LocationId) -> Cut) -> &[LocationId] {
    let mut kept_any = false;
    for (at, location) in stack.iter().enumerate().rev() {
        let from = match cut(*location) {
            Cut::None => {
                kept_any = true;
                continue;
            }
            _ if !kept_any => continue,
            Cut::Before => at + 1,
            Cut::After => at,
        };
        return stack.get(from..).unwrap_or_default();
    }
    stack
}

/// Returns a function's name without its argument list, and without the leading dot that some systems add.
fn without_arguments(name: &str) -> &str {
    const OPERATOR: &str = "operator";
    let name = name.strip_prefix('.').unwrap_or(name);
    for (at, _) in name.match_indices('(') {
        let (before, after) = name.split_at(at);
        let belongs = after.starts_with("(anonymous namespace)")
            || (after.starts_with("()") && before.ends_with(OPERATOR));
        if !belongs {
            return before;
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_argument_lists_are_removed_from_names() {
        for (name, simple) in [
            ("f(int)", "f"),
            (".f", "f"),
            (
                "a::(anonymous namespace)::f(b)",
                "a::(anonymous namespace)::f",
            ),
            ("a::operator()(b)", "a::operator()"),
            ("main.(*T).f", "main."),
            ("f", "f"),
            ("", ""),
        ] {
            assert_eq!(without_arguments(name), simple);
        }
    }

    #[test]
    fn stack_is_cut_only_below_first_kept_frame() {
        let ids: Vec<LocationId> = (0..5).map(LocationId::new).collect();
        let cuts = |cuts: [Cut; 5]| {
            let kept = kept(&ids, |id| cuts[id.index()]);
            kept.first().map_or(5, |id| id.index())
        };
        use Cut::{After, Before, None};
        assert_eq!(cuts([None; 5]), 0);
        assert_eq!(cuts([None, Before, None, None, None]), 2);
        assert_eq!(cuts([None, After, None, None, None]), 1);
        assert_eq!(cuts([None, After, None, Before, None]), 4);
        assert_eq!(cuts([None, None, None, Before, Before]), 0);
        assert_eq!(cuts([Before; 5]), 0);
    }
}
