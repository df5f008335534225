//! The rules of the Collector's keys: attributes to keep, and values to mask.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use super::config::{Config, SummaryDetail};
use super::sanitize::Sanitizers;
use crate::component::BuildError;
use tributary_config::Secret;
use tributary_redaction::{Hasher, Pattern, PatternSet, Unscannable};

/// The compiled rules of a configuration.
#[derive(Debug)]
pub(super) struct Rules {
    allow_all_keys: bool,
    allowed_keys: HashSet<String>,
    ignored_keys: HashSet<String>,
    ignored_key_patterns: PatternSet,
    blocked_key_patterns: PatternSet,
    blocked_values: Vec<Pattern>,
    /// All blocked patterns in one set, because most values match no pattern.
    any_blocked_value: PatternSet,
    allowed_values: PatternSet,
    pub(super) all_types: bool,
    pub(super) verbosity: SummaryDetail,
    pub(super) sanitizers: Sanitizers,
    hasher: Option<Hasher>,
}

/// Decision about an attribute based on its key alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The attribute is not checked.
    Ignored,
    /// The attribute is removed.
    Removed,
    /// The whole value is masked, unless the value is allowed.
    Blocked,
    /// The value of the attribute decides.
    Open,
}

/// Cache of decisions about keys, because most attribute sets of a request have the same keys.
#[derive(Debug, Default)]
pub(super) struct Memory {
    known: HashMap<String, Verdict, RandomState>,
}

impl Memory {
    /// Maximum number of cached keys; bounds the memory for requests in which all keys differ.
    const MAX_CACHED_KEYS: usize = 1024;

    pub(super) fn verdict(&mut self, rules: &Rules, key: &str) -> Verdict {
        if rules.is_open_to_all() {
            return Verdict::Open;
        }
        if let Some(known) = self.known.get(key) {
            return *known;
        }
        let verdict = rules.verdict(key);
        if self.known.len() < Memory::MAX_CACHED_KEYS {
            self.known.insert(key.to_owned(), verdict);
        }
        verdict
    }
}

impl Rules {
    /// Compiles the rules. Returns `None` if the configuration has no rules.
    pub(super) fn new(config: &Config) -> Result<Option<Rules>, BuildError> {
        let sanitizers = Sanitizers::new(config);
        let lists = [
            &config.ignored_keys,
            &config.ignored_key_patterns,
            &config.blocked_key_patterns,
            &config.blocked_values,
            &config.allowed_values,
        ];
        let idle = config.allow_all_keys
            && !config.redact_all_types
            && config.summary == SummaryDetail::Silent
            && sanitizers.is_empty()
            && lists.iter().all(|list| list.is_empty());
        if idle {
            return Ok(None);
        }
        let mut allowed_keys: HashSet<String> = config.allowed_keys.iter().cloned().collect();
        allowed_keys.extend(super::summary::keys().map(str::to_owned));
        Ok(Some(Rules {
            allow_all_keys: config.allow_all_keys,
            allowed_keys,
            ignored_keys: config.ignored_keys.iter().cloned().collect(),
            ignored_key_patterns: set(&config.ignored_key_patterns)?,
            blocked_key_patterns: set(&config.blocked_key_patterns)?,
            blocked_values: patterns(&config.blocked_values)?,
            any_blocked_value: set(&config.blocked_values)?,
            allowed_values: set(&config.allowed_values)?,
            all_types: config.redact_all_types,
            verbosity: config.summary,
            sanitizers,
            hasher: hasher(config, &config.hmac_key)?,
        }))
    }

    /// Whether no rule depends on the key.
    fn is_open_to_all(&self) -> bool {
        self.allow_all_keys
            && self.ignored_keys.is_empty()
            && self.ignored_key_patterns.is_empty()
            && self.blocked_key_patterns.is_empty()
    }

    fn verdict(&self, key: &str) -> Verdict {
        if self.ignored_keys.contains(key) || self.ignored_key_patterns.is_match(key) {
            Verdict::Ignored
        } else if !self.allow_all_keys && !self.allowed_keys.contains(key) {
            Verdict::Removed
        } else if self.blocked_key_patterns.is_match(key) {
            Verdict::Blocked
        } else {
            Verdict::Open
        }
    }

    pub(super) fn allows_value(&self, text: &str) -> bool {
        self.allowed_values.is_match(text)
    }

    pub(super) fn blocks_value(&self, text: &str) -> bool {
        self.any_blocked_value.is_match(text)
    }

    /// Masks the blocked parts of a value, in the order of the configured patterns, and counts them.
    pub(super) fn block<'t>(
        &self,
        text: &'t str,
        count: &mut u64,
    ) -> Result<Cow<'t, str>, Unscannable> {
        let mut output = Cow::Borrowed(text);
        if !self.blocks_value(text) {
            return Ok(output);
        }
        for pattern in &self.blocked_values {
            if !pattern.is_match(&output) {
                continue;
            }
            if output.is_empty() {
                // As in the Collector, a match of the empty string is masked.
                *count += 1;
                output = Cow::Owned(self.mask(""));
                continue;
            }
            let replaced = pattern.replace_all(&output, |found| {
                *count += 1;
                self.mask(found)
            })?;
            if let Cow::Owned(replaced) = replaced {
                output = Cow::Owned(replaced);
            }
        }
        Ok(output)
    }

    /// Masks each line of a value under a blocked key, like the Collector's `.*`.
    pub(super) fn mask_all(&self, text: &str) -> String {
        let lines: Vec<String> = text.split('\n').map(|line| self.mask(line)).collect();
        lines.join("\n")
    }

    fn mask(&self, text: &str) -> String {
        match &self.hasher {
            Some(hasher) => hasher.hex(text),
            None => "****".to_owned(),
        }
    }
}

fn set(list: &[String]) -> Result<PatternSet, BuildError> {
    PatternSet::new(list).map_err(BuildError)
}

fn patterns(list: &[String]) -> Result<Vec<Pattern>, BuildError> {
    let compiled = list.iter().map(|pattern| Pattern::new(pattern));
    compiled.collect::<Result<_, _>>().map_err(BuildError)
}

fn hasher(config: &Config, key: &Secret) -> Result<Option<Hasher>, BuildError> {
    let hasher = config.hash_function.map(|f| Hasher::new(f, key));
    hasher
        .transpose()
        .map_err(|error| BuildError(error.to_string()))
}
