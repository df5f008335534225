//! The result of the detection, shared by all pipelines that use the processor, and its renewal.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::{Arc, LazyLock, Weak};
use std::thread;

use arc_swap::{ArcSwap, Guard};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::task::block_in_place;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::session::detect;
use tributary_config::ComponentId;
use tributary_detectors::{AttributeValue, DetectedResource, DetectionConfig, Machine};
use tributary_net::Owner;
use tributary_otlp::attributes::{Action, Actions, Operation, ValueSource};

/// Detections in use, by component. A reload with the same settings does not detect again.
static IN_USE: LazyLock<Mutex<HashMap<ComponentId, Weak<RunningDetection>>>> =
    LazyLock::new(Mutex::default);

/// A detection that has happened, and is repeated if so configured.
pub(super) struct RunningDetection {
    config: DetectionConfig,
    actions: Arc<ArcSwap<Option<Actions>>>,
    _refresh: Option<AbortOnDropHandle<()>>,
}

impl RunningDetection {
    /// Returns the detection in use for the component, or detects now, which takes as long as the settings allow.
    ///
    /// # Errors
    /// The reasons of the detectors that failed.
    pub(super) fn shared(
        id: &ComponentId,
        config: &DetectionConfig,
        machine: Machine,
    ) -> Result<Arc<Self>, String> {
        let known = IN_USE.lock().get(id).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.config == *config) {
            return Ok(known);
        }
        let running = Arc::new(Self::start(id, config, machine)?);
        let mut in_use = IN_USE.lock();
        in_use.retain(|_, detection| detection.strong_count() > 0);
        in_use.insert(id.clone(), Arc::downgrade(&running));
        Ok(running)
    }

    pub(super) fn start(
        id: &ComponentId,
        config: &DetectionConfig,
        machine: Machine,
    ) -> Result<Self, String> {
        let owner = Owner::new(id, "processor");
        let found = detect_now(config, &machine, &owner)?;
        report(id, &found);
        let actions = Arc::new(ArcSwap::from_pointee(to_actions(&found, config)));
        let refresh = config.refresh_interval.unless_zero().map(|every| {
            let (config, actions, mut last) = (config.clone(), actions.clone(), found);
            AbortOnDropHandle::new(tokio::spawn(async move {
                let mut ticks = interval(every);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                ticks.tick().await;
                loop {
                    ticks.tick().await;
                    match detect(&config, &machine, &owner).await {
                        Ok(found) if found == last => {}
                        Ok(found) => {
                            report(&owner.id, &found);
                            actions.store(Arc::new(to_actions(&found, &config)));
                            last = found;
                        }
                        Err(reason) => warn!(
                            otelcol.component.id = %owner.id,
                            otelcol.component.kind = "processor",
                            reason,
                            "Cannot detect the resource again; still using the previous attributes."
                        ),
                    }
                }
            }))
        });
        Ok(RunningDetection {
            config: config.clone(),
            actions,
            _refresh: refresh,
        })
    }

    /// Returns the changes to make to each resource; `None` if nothing was detected.
    pub(super) fn actions(&self) -> Guard<Arc<Option<Actions>>> {
        self.actions.load()
    }
}

/// Detects on a thread of its own, because components are built in synchronous code.
fn detect_now(
    config: &DetectionConfig,
    machine: &Machine,
    owner: &Owner,
) -> Result<DetectedResource, String> {
    let work = || {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start the detection: {error}"))?;
        let found = runtime.block_on(detect(config, machine, owner));
        // A lookup in DNS may still block a thread.
        runtime.shutdown_background();
        found
    };
    let wait = || {
        thread::scope(|scope| {
            scope
                .spawn(work)
                .join()
                .unwrap_or_else(|panic| resume_unwind(panic))
        })
    };
    let is_multi_thread = Handle::try_current()
        .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    match is_multi_thread {
        true => block_in_place(wait),
        false => wait(),
    }
}

fn report(id: &ComponentId, found: &DetectedResource) {
    let attributes = found.attributes.iter().map(|(key, value)| match value {
        AttributeValue::Text(text) => format!("{key}={text}"),
        AttributeValue::Int(number) => format!("{key}={number}"),
        AttributeValue::Texts(texts) => format!("{key}=[{}]", texts.join(", ")),
    });
    info!(
        otelcol.component.id = %id,
        otelcol.component.kind = "processor",
        resource = attributes.collect::<Vec<_>>().join(" "),
        "Detected the resource."
    );
}

fn to_actions(found: &DetectedResource, config: &DetectionConfig) -> Option<Actions> {
    if found.attributes.is_empty() && found.schema_url.is_empty() {
        return None;
    }
    let actions = found.attributes.iter().map(|(key, value)| {
        let source = ValueSource::Value(to_value(value));
        Action {
            key: key.clone(),
            operation: match config.r#override {
                true => Operation::Upsert(source),
                false => Operation::Insert(source),
            },
        }
    });
    Some(Actions::new(actions.collect()).with_schema_url(found.schema_url.as_str()))
}

fn to_value(value: &AttributeValue) -> Value {
    let text = |text: &String| Value::StringValue(text.clone());
    match value {
        AttributeValue::Text(value) => text(value),
        AttributeValue::Int(number) => Value::IntValue(*number),
        AttributeValue::Texts(texts) => Value::ArrayValue(ArrayValue {
            values: texts
                .iter()
                .map(|value| AnyValue {
                    value: Some(text(value)),
                })
                .collect(),
        }),
    }
}
