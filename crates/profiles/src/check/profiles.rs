//! Checks resources, scopes, profiles and samples.

use hashbrown::HashMap;
use opentelemetry_proto::tonic::profiles::v1development as proto;

use super::path::Path;
use super::{Checker, Rule};
use crate::fault::DictionaryTable;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ObservationKind {
    Values,
    Timestamps,
    Both,
}

impl ObservationKind {
    fn name(self) -> &'static str {
        match self {
            ObservationKind::Values => "values without timestamps",
            ObservationKind::Timestamps => "timestamps without values",
            ObservationKind::Both => "values with timestamps",
        }
    }
}

impl Checker<'_> {
    pub(super) fn resources(&mut self, resources: &[proto::ResourceProfiles]) {
        let path = Path::root("resource_profiles");
        self.not_empty(resources, &path, "the message has no resources");
        for (at, resource) in resources.iter().enumerate() {
            let path = path.at(at);
            if let Some(resource) = &resource.resource {
                let resource_path = path.field("resource");
                let field = resource_path.field("attributes");
                self.key_values(&resource.attributes, false, &field);
            }
            let path = path.field("scope_profiles");
            self.not_empty(
                &resource.scope_profiles,
                &path,
                "the resource has no scopes",
            );
            for (at, scope) in resource.scope_profiles.iter().enumerate() {
                let path = path.at(at);
                if let Some(scope) = &scope.scope {
                    let scope_path = path.field("scope");
                    self.key_values(&scope.attributes, true, &scope_path.field("attributes"));
                }
                let path = path.field("profiles");
                self.not_empty(&scope.profiles, &path, "the scope has no profiles");
                for (at, profile) in scope.profiles.iter().enumerate() {
                    self.profile(profile, &path.at(at));
                }
            }
        }
    }

    fn not_empty<T>(&mut self, list: &[T], path: &Path<'_>, text: &str) {
        if list.is_empty() {
            self.add(Rule::Empty, path, || text.to_owned());
        }
    }

    fn profile(&mut self, profile: &proto::Profile, path: &Path<'_>) {
        let types = [
            (
                profile.sample_type,
                "sample_type",
                Rule::SampleTypeMissing,
                "the sample type has no name",
            ),
            (
                profile.period_type,
                "period_type",
                Rule::PeriodTypeMissing,
                "the period type has no name",
            ),
        ];
        for (value_type, name, rule, text) in types {
            let path = path.field(name);
            let indices = value_type.unwrap_or_default();
            let field = path.field("type_strindex");
            let valid = self.index(DictionaryTable::String, indices.type_strindex, &field);
            let field = path.field("unit_strindex");
            self.index(DictionaryTable::String, indices.unit_strindex, &field);
            if valid && self.text(indices.type_strindex).is_empty() {
                self.add(rule, &path, || text.to_owned());
            }
        }
        self.not_negative(profile.period, &path.field("period"));
        let id = &profile.profile_id;
        if !id.is_empty() && (id.len() != 16 || id.iter().all(|byte| *byte == 0)) {
            self.add(Rule::ProfileId, &path.field("profile_id"), || {
                match id.len() {
                    16 => "is all zero, which is not a valid id".to_owned(),
                    len => format!("has {len} bytes, but must have 16"),
                }
            });
        }
        if profile.original_payload.is_empty() != profile.original_payload_format.is_empty() {
            self.add(Rule::OriginalPayload, path, || {
                "only one of original_payload and original_payload_format is set".to_owned()
            });
        }
        self.attribute_indices(&profile.attribute_indices, &path.field("attribute_indices"));
        if profile
            .time_unix_nano
            .checked_add(profile.duration_nano)
            .is_none()
        {
            self.add(Rule::TimeOverflow, &path.field("duration_nano"), || {
                "the end of the profile exceeds 64 bits".to_owned()
            });
        }
        self.samples(profile, &path.field("samples"));
    }

    fn samples(&mut self, profile: &proto::Profile, path: &Path<'_>) {
        self.not_empty(&profile.samples, path, "the profile has no samples");
        let mut first_shape = None;
        let mut keys: HashMap<_, usize, foldhash::fast::RandomState> = HashMap::default();
        for (at, sample) in profile.samples.iter().enumerate() {
            let path = path.at(at);
            let field = path.field("stack_index");
            self.index(DictionaryTable::Stack, sample.stack_index, &field);
            self.attribute_indices(&sample.attribute_indices, &path.field("attribute_indices"));
            self.index(
                DictionaryTable::Link,
                sample.link_index,
                &path.field("link_index"),
            );
            let Some(shape) = self.observations(profile, sample, &path) else {
                continue;
            };
            let first = *first_shape.get_or_insert(shape);
            if shape != first {
                self.add(Rule::SampleShape, &path, || {
                    let (found, expected) = (shape.name(), first.name());
                    format!("has {found}, but the first sample has {expected}")
                });
            }
            let mut attributes = sample.attribute_indices.clone();
            attributes.sort_unstable();
            let key = (sample.stack_index, sample.link_index, shape, attributes);
            let earlier = *keys.entry(key).or_insert(at);
            if earlier != at {
                self.add(Rule::DuplicateSample, &path, || {
                    format!("has the stack, the attributes and the link of samples[{earlier}]")
                });
            }
        }
    }

    fn observations(
        &mut self,
        profile: &proto::Profile,
        sample: &proto::Sample,
        path: &Path<'_>,
    ) -> Option<ObservationKind> {
        let field = path.field("timestamps_unix_nano");
        let start = profile.time_unix_nano;
        let end = start.saturating_add(profile.duration_nano);
        for (at, time) in sample.timestamps_unix_nano.iter().enumerate() {
            if !(start..end).contains(time) {
                self.add(Rule::TimestampOutsideProfile, &field.at(at), || {
                    format!("is {time}, but the profile is from {start} until before {end}")
                });
            }
        }
        let (values, timestamps) = (sample.values.len(), sample.timestamps_unix_nano.len());
        match (values, timestamps) {
            (0, 0) => {
                self.add(Rule::NoObservations, path, || {
                    "has neither values nor timestamps".to_owned()
                });
                None
            }
            (0, _) => Some(ObservationKind::Timestamps),
            (_, 0) => {
                if values > 1 {
                    self.add(Rule::SampleShape, &path.field("values"), || {
                        format!("{values} values without timestamps should be one value, their sum")
                    });
                }
                Some(ObservationKind::Values)
            }
            _ => {
                if values != timestamps {
                    self.add(Rule::UnequalObservations, path, || {
                        format!("has {values} values, but {timestamps} timestamps")
                    });
                }
                Some(ObservationKind::Both)
            }
        }
    }
}
