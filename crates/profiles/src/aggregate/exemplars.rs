//! Spans of the heaviest samples.

use std::collections::HashMap;

use super::super::id::LinkId;
use super::super::model::Samples;
use crate::entry::SampleKey;

/// The heaviest samples of a profile that have a span.
#[derive(Debug, Default)]
pub(super) struct Exemplars(Vec<(SampleKey, i64)>);

impl Exemplars {
    /// Records a sample if it is among the `most` heaviest.
    pub(super) fn add(&mut self, key: SampleKey, value: i64, most: usize) {
        if let Some((_, sum)) = self.0.iter_mut().find(|(known, _)| *known == key) {
            *sum = sum.saturating_add(value);
            return;
        }
        if self.0.len() < most {
            self.0.push((key, value));
            return;
        }
        let lightest = self.0.iter_mut().min_by_key(|(_, v)| v.unsigned_abs());
        if let Some(lightest) = lightest
            && lightest.1.unsigned_abs() < value.unsigned_abs()
        {
            *lightest = (key, value);
        }
    }

    /// Restores the spans of the recorded samples: the share of a span becomes a separate sample, and the rest stays
    /// without a span.
    pub(super) fn apply(&self, samples: &mut Samples) {
        let mut parts: HashMap<SampleKey, Vec<(LinkId, i64)>> = HashMap::new();
        for (key, value) in &self.0 {
            let plain = SampleKey {
                link: LinkId::default(),
                ..*key
            };
            parts.entry(plain).or_default().push((key.link, *value));
        }
        let mut linked = Samples::default();
        linked.reserve(samples.len());
        for sample in samples.iter() {
            let (mut rest, _) = sample.total();
            for (link, value) in parts.remove(&sample.key).into_iter().flatten() {
                // Samples of the opposite sign may have cancelled the share.
                let is_part =
                    value.signum() == rest.signum() && value.abs_diff(0) <= rest.abs_diff(0);
                if is_part {
                    let key = SampleKey { link, ..sample.key };
                    linked.push(key, &[value], &[]);
                    rest -= value;
                }
            }
            if rest != 0 {
                linked.push(sample.key, &[rest], &[]);
            }
        }
        *samples = linked;
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(SampleKey, i64)>()
    }
}
