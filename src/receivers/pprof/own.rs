//! `self`: profiles this process.
//!
//! CPU profiles only, see [`cpu_profile`](crate::receivers::pprof::cpu_profile). A heap profile
//! needs an allocator with sampling; this program uses the C library's, which has none.
//!
//! A profile that the pipeline refuses temporarily is continued: the next profile starts where the
//! refused one started.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::intake::{Converted, Intake};
use super::origin::{Origin, Subject, text};
use crate::component::identity;
use crate::component::{BuildContext, BuildError};
use crate::pipeline::{Component, Undelivered};
use crate::receivers::pprof::cpu_profile;
use crate::receivers::pprof::cpu_profile::{BuildId, Mapped, Profiler, Stacks};
use futures_util::future::BoxFuture;
use tributary_config::units::Duration;
use tributary_config::{ComponentId, Problems, Validate};
use tributary_profiles::dictionary::{Location, Mapping, SampleKey, ValueType};
use tributary_profiles::model::{Header, Profile, ResourceProfiles, Samples, ScopeProfiles};
use tributary_profiles::{Dictionary, Profiles, names};

/// Profiles the CPU time of this process. Linux only, on x86-64 and arm64. The resource equals that
/// of the collector's own metrics, see `service.telemetry.resource`. Frames have addresses and
/// build ids, and no names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OwnConfig {
    /// Duration of each profile. Default 10s.
    pub collection_interval: Duration,
    /// Samples per second of CPU time, from 1 to 1000. The kernel's timer frequency (100, 250 or
    /// 1000 Hz, a build option) is the upper limit: above it there are fewer samples, and the
    /// reported CPU time is too low. Default 99. (The Collector has no such key: it uses 100.)
    pub frequency: u32,
    /// Heap profiles. Must be false, the default: the allocator of this program has no sampling.
    /// (The Collector has no such key.)
    pub heap: bool,
    /// A setting of Go's runtime. Accepted with a warning and without an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_profile_fraction: Option<i64>,
    /// A setting of Go's runtime. Accepted with a warning and without an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutex_profile_fraction: Option<i64>,
}

impl Default for OwnConfig {
    fn default() -> Self {
        OwnConfig {
            collection_interval: Duration::secs(10),
            frequency: 99,
            heap: false,
            block_profile_fraction: None,
            mutex_profile_fraction: None,
        }
    }
}

impl OwnConfig {
    /// Builds the section of a receiver.
    ///
    /// # Errors
    /// Returns an error if this system does not support CPU profiles.
    pub(super) fn build(
        &self,
        cx: &BuildContext,
        intake: Intake,
    ) -> Result<Box<dyn Component>, BuildError> {
        cpu_profile::supported().map_err(|error| BuildError(format!("self::{error}")))?;
        Ok(Box::new(Section {
            waiting: Some((self.clone(), origin(&cx.resource), cx.id.clone(), intake)),
            stop: CancellationToken::new(),
            task: None,
        }))
    }
}

impl Validate for OwnConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.collection_interval.unless_zero().is_none() {
            problems.error(&["collection_interval"], "must be more than 0");
        }
        if !(1..=1000).contains(&self.frequency) {
            problems.error(
                &["frequency"],
                "must be between 1 and 1000 samples a second",
            );
        }
        if self.heap {
            problems.error(
                &["heap"],
                "cannot be profiled: the allocator of this program is the system's, which takes no samples",
            );
        }
        for (key, fraction) in [
            ("block_profile_fraction", self.block_profile_fraction),
            ("mutex_profile_fraction", self.mutex_profile_fraction),
        ] {
            if fraction.is_some() {
                problems.warning(
                    &[key],
                    "has no effect: it is a setting of Go's runtime; remove it to silence this",
                );
            }
        }
    }
}

struct Section {
    waiting: Option<(OwnConfig, Origin, ComponentId, Intake)>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Component for Section {
    fn start(&mut self) {
        if let Some((config, origin, id, intake)) = self.waiting.take() {
            let stop = self.stop.clone();
            self.task = Some(tokio::spawn(run(config, origin, id, intake, stop)));
        }
    }

    /// Delivers the samples taken so far.
    fn shutdown(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            self.stop.cancel();
            if let Some(mut task) = self.task
                && timeout_at(deadline, &mut task).await.is_err()
            {
                task.abort();
            }
            Undelivered::default()
        })
    }
}

async fn run(
    config: OwnConfig,
    origin: Origin,
    id: ComponentId,
    intake: Intake,
    stop: CancellationToken,
) {
    let Some(every) = config.collection_interval.unless_zero() else {
        return;
    };
    let Some(mut profiler) = begin(config.frequency, &id, &stop).await else {
        return;
    };
    let mut ticks = interval(COLLECT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut taken = Taken::new();
    loop {
        let stopping = tokio::select! {
            biased;
            () = stop.cancelled() => true,
            _ = ticks.tick() => false,
        };
        taken.lost += profiler.collect(&mut taken.stacks);
        if !stopping && taken.since.elapsed() < every {
            continue;
        }
        let profiles = taken.profiles(profiler.mapped(), config.frequency, &origin);
        let delivered = match Converted::new(profiles, &intake.budget) {
            Ok(converted) => intake.hand_on(converted).await.map(|_| ()),
            Err(refused) => Err(refused),
        };
        match delivered {
            Err(error) if error.is_retryable() && !stopping => {
                debug!(
                    otelcol.component.id = %id,
                    otelcol.component.kind = "receiver",
                    %error,
                    "Could not deliver the profile of this process; it goes on"
                );
                // Retry at intervals, not at every tick.
                taken.since = Instant::now();
                continue;
            }
            Err(error) => warn!(
                otelcol.component.id = %id,
                otelcol.component.kind = "receiver",
                %error,
                "The profile of this process was refused"
            ),
            Ok(()) if taken.lost > 0 => debug!(
                otelcol.component.id = %id,
                otelcol.component.kind = "receiver",
                samples = taken.lost,
                "Samples of this process were lost"
            ),
            Ok(()) => {}
        }
        if stopping {
            return;
        }
        taken = Taken::new();
    }
}

/// Starts the profiler. Only one may run in a process: after a reload, the previous one may still
/// exist for a moment.
async fn begin(frequency: u32, id: &ComponentId, stop: &CancellationToken) -> Option<Profiler> {
    let mut attempts: u32 = 0;
    loop {
        // The start reads binaries.
        let started = tokio::task::spawn_blocking(move || Profiler::start(frequency)).await;
        match started.ok()? {
            Ok(profiler) => return Some(profiler),
            // A reload may cause the first failure.
            Err(error) if attempts == 1 => warn!(
                otelcol.component.id = %id,
                otelcol.component.kind = "receiver",
                %error,
                "Cannot profile this process yet"
            ),
            Err(_) => {}
        }
        attempts = attempts.saturating_add(1);
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

/// Samples since the last profile.
struct Taken {
    stacks: Stacks,
    /// Start in nanoseconds since 1970 (UTC).
    start: u64,
    began: Instant,
    /// Time of the last delivery attempt.
    since: Instant,
    lost: u64,
}

impl Taken {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_nanos();
        Taken {
            stacks: Stacks::new(),
            start: u64::try_from(now).unwrap_or(u64::MAX),
            began: Instant::now(),
            since: Instant::now(),
            lost: 0,
        }
    }

    /// Converts to the form that Go uses: `samples` in `count`, `cpu` in `nanoseconds`.
    fn profiles(&self, mapped: &[Mapped], frequency: u32, origin: &Origin) -> Profiles {
        let mut dictionary = Dictionary::new();
        let mappings: Vec<_> = mapped
            .iter()
            .map(|mapped| {
                let id = match &mapped.build_id {
                    BuildId::Gnu(id) => Some((names::BUILD_ID_GNU, id)),
                    BuildId::Hash(hash) => Some((names::BUILD_ID_HTLHASH, hash)),
                    BuildId::Unknown => None,
                };
                let id = id.map(|(key, id)| dictionary.string_attribute(key, id));
                let mapping = Mapping {
                    start: mapped.start,
                    limit: mapped.limit,
                    file_offset: mapped.file_offset,
                    filename: dictionary.string(&mapped.path),
                    attributes: dictionary.attribute_set(id.as_slice()),
                };
                (mapped.start..mapped.limit, dictionary.mapping(mapping))
            })
            .collect();
        let mut locations = Vec::new();
        let mut keys = Vec::new();
        for (stack, count) in &self.stacks {
            locations.clear();
            for address in stack {
                let mapping = mappings.iter().find(|(range, _)| range.contains(address));
                locations.push(dictionary.location(Location {
                    mapping: mapping.map(|(_, id)| *id).unwrap_or_default(),
                    address: *address,
                    ..Location::default()
                }));
            }
            let key = SampleKey {
                stack: dictionary.stack(&locations),
                ..SampleKey::default()
            };
            keys.push((key, i64::try_from(*count).unwrap_or(i64::MAX)));
        }
        let period = 1_000_000_000 / i64::from(frequency.max(1));
        let mut value_type = |kind: &str, unit: &str| ValueType {
            kind: dictionary.string(kind),
            unit: dictionary.string(unit),
        };
        let (count, cpu) = (
            value_type("samples", "count"),
            value_type("cpu", "nanoseconds"),
        );
        let duration = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let profile = |sample_type, weight: i64| {
            let mut samples = Samples::default();
            for (key, count) in &keys {
                samples.push(*key, &[count.saturating_mul(weight)], &[]);
            }
            Profile {
                header: Header {
                    sample_type,
                    period_type: cpu,
                    period,
                    time: self.start,
                    duration,
                    ..Header::default()
                },
                samples,
            }
        };
        let scope = ScopeProfiles {
            scope: Some(origin.scope(None, ["samples", "cpu"].into_iter())),
            schema_url: String::new(),
            profiles: vec![profile(count, 1), profile(cpu, period)],
        };
        let main = mappings.first().map(|(_, id)| *id);
        Profiles {
            resources: vec![ResourceProfiles {
                resource: Some(origin.subject.resource(&dictionary, main)),
                schema_url: String::new(),
                scopes: vec![scope],
            }],
            dictionary,
        }
    }
}

/// Returns this process as the origin, with the same identity as in its metrics.
fn origin(configured: &BTreeMap<String, Option<String>>) -> Origin {
    let attributes = identity::resource(configured);
    let attributes = attributes.iter().map(|(key, value)| text(key, value));
    Origin {
        subject: Subject::new(attributes.collect(), None).into(),
        profile: Some("profile".into()),
        start: 0,
        duration: std::time::Duration::ZERO,
    }
}

/// Interval at which samples are collected from the handler's slots, as the profiler requires.
const COLLECT: std::time::Duration = std::time::Duration::from_millis(100);
/// Retry interval while another profiler runs.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
    use prost::Message as _;

    use super::*;
    use tributary_profiles::check::check;

    fn mapped(at: u64, path: &str, build_id: BuildId) -> Mapped {
        Mapped {
            start: at * 0x1000,
            limit: at * 0x1000 + 0x1000,
            file_offset: 0x2000,
            path: path.to_owned(),
            build_id,
        }
    }

    #[test]
    fn samples_become_a_cpu_profile_with_mappings_and_build_ids() {
        let mut taken = Taken::new();
        taken.stacks.insert(vec![0x1010, 0x2020], 3);
        taken.stacks.insert(vec![0x9999], 1);
        let binaries = [
            mapped(1, "/bin/a", BuildId::Gnu("00ff".to_owned())),
            mapped(2, "/lib/b", BuildId::Hash("00".repeat(16))),
        ];
        let profiles = taken.profiles(&binaries, 100, &origin(&BTreeMap::new()));
        let request = ExportProfilesServiceRequest::decode(profiles.encode()).unwrap();
        let report = check(&request);
        assert!(report.is_clean(), "{:?}", report.findings());
        let dictionary = request.dictionary.unwrap();
        assert_eq!(dictionary.mapping_table.len(), 3);
        let attributes = dictionary.attribute_table.iter().skip(1);
        let keys = attributes.map(|attribute| {
            let key = usize::try_from(attribute.key_strindex).unwrap();
            dictionary.string_table[key].as_str()
        });
        let mut keys: Vec<&str> = keys.collect();
        keys.sort_unstable();
        assert_eq!(keys, [names::BUILD_ID_GNU, names::BUILD_ID_HTLHASH]);
        let totals: Vec<i64> = profiles
            .iter()
            .map(|profile| profile.samples.iter().map(|sample| sample.total().0).sum())
            .collect();
        assert_eq!(totals, [4, 40_000_000]);
    }

    #[test]
    fn what_is_gos_is_accepted_with_a_warning_and_the_heap_is_refused() {
        let config: OwnConfig = serde_yaml::from_str(
            "{block_profile_fraction: 1, mutex_profile_fraction: 1, heap: true, frequency: 0}",
        )
        .unwrap();
        let mut problems = Problems::default();
        config.validate(&mut problems);
        let found = problems.found().iter();
        let found: Vec<_> = found.map(|p| (p.path.join("."), p.warning)).collect();
        let expected = [
            ("frequency", false),
            ("heap", false),
            ("block_profile_fraction", true),
            ("mutex_profile_fraction", true),
        ];
        assert_eq!(
            found,
            expected.map(|(key, warning)| (key.to_owned(), warning))
        );
    }

    #[test]
    fn the_resource_is_that_of_the_own_metrics() {
        let configured = BTreeMap::from([("service.name".to_owned(), Some("mine".to_owned()))]);
        let resource = origin(&configured)
            .subject
            .resource(&Dictionary::new(), None);
        let attributes = identity::resource(&configured);
        let expected: Vec<_> = attributes
            .iter()
            .map(|(key, value)| text(key, value))
            .collect();
        assert_eq!(resource.attributes, expected);
    }
}
