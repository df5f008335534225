//! The events that are samples, and their sample types.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::constants::Constants;
use super::cursor::Cursor;
use super::metadata::Value;
use super::settings::Settings;
use super::stacks::Stacks;
use crate::builder::Builder;
use crate::error::Fault;

/// A value of an event.
#[derive(Debug, Clone, Copy)]
enum Measure {
    /// One for each event.
    Count,
    /// The first of these fields that is not 0, in bytes.
    Bytes(&'static [&'static str]),
    /// The field `duration`, as nanoseconds.
    Duration,
    /// The time that a sample stands for: nanoseconds if the period is known, else samples.
    Period(&'static str),
}

/// An event and its sample types.
struct Rule {
    event: &'static str,
    types: &'static [(&'static str, &'static str, Measure)],
}

const RULES: &[Rule] = &[
    Rule {
        event: EXECUTION,
        types: &[("cpu", "nanoseconds", Measure::Period("cpu"))],
    },
    Rule {
        event: "jdk.CPUTimeSample",
        types: &[("cpu", "nanoseconds", Measure::Period("cpu"))],
    },
    Rule {
        event: WALL,
        types: &[("wall", "nanoseconds", Measure::Period("wall"))],
    },
    Rule {
        event: "jdk.NativeMethodSample",
        types: &[("native", "nanoseconds", Measure::Period("native"))],
    },
    Rule {
        event: "jdk.ObjectAllocationInNewTLAB",
        types: &[
            ("alloc_in_new_tlab_objects", "count", Measure::Count),
            (
                "alloc_in_new_tlab_bytes",
                "bytes",
                Measure::Bytes(&["tlabSize", "allocationSize"]),
            ),
        ],
    },
    Rule {
        event: "jdk.ObjectAllocationOutsideTLAB",
        types: &[
            ("alloc_outside_tlab_objects", "count", Measure::Count),
            (
                "alloc_outside_tlab_bytes",
                "bytes",
                Measure::Bytes(&["allocationSize"]),
            ),
        ],
    },
    Rule {
        event: "jdk.ObjectAllocationSample",
        types: &[
            ("alloc_sample_objects", "count", Measure::Count),
            ("alloc_sample_bytes", "bytes", Measure::Bytes(&["weight"])),
        ],
    },
    Rule {
        event: "profiler.LiveObject",
        types: &[
            ("live_objects", "count", Measure::Count),
            ("live_bytes", "bytes", Measure::Bytes(&["allocationSize"])),
        ],
    },
    Rule {
        event: "profiler.Malloc",
        types: &[
            ("malloc_objects", "count", Measure::Count),
            ("malloc_bytes", "bytes", Measure::Bytes(&["size"])),
        ],
    },
    Rule {
        event: "jdk.JavaMonitorEnter",
        types: &[
            ("contentions", "count", Measure::Count),
            ("delay", "nanoseconds", Measure::Duration),
        ],
    },
    Rule {
        event: "jdk.ThreadPark",
        types: &[
            ("park_contentions", "count", Measure::Count),
            ("park_delay", "nanoseconds", Measure::Duration),
        ],
    },
];

/// Names of the sample types, in the order of the profiles.
pub(super) fn order() -> Vec<&'static str> {
    let types = RULES.iter().flat_map(|rule| rule.types);
    let names = types.map(|(name, ..)| *name);
    ["samples", "wall_samples", "native_samples"]
        .into_iter()
        .chain(names)
        .collect()
}

const EXECUTION: &str = "jdk.ExecutionSample";
const WALL: &str = "profiler.WallClockSample";

/// The fields of an event that a sample needs.
#[derive(Default)]
struct Event {
    stack: i64,
    thread: i64,
    class: i64,
    state: i64,
    samples: i64,
    duration: i64,
    sampling_period: i64,
    context: i64,
    /// By the names of [`Measure::Bytes`].
    sizes: [(&'static str, i64); 4],
}

/// Reader of the events of a chunk.
pub(super) struct Events<'e, 'c> {
    constants: &'e Constants<'c>,
    settings: &'e Settings,
    ticks_per_second: u64,
    rules: HashMap<i64, &'static Rule, RandomState>,
    pub(super) stacks: Stacks,
    /// Names of the states of threads, by key.
    states: Vec<Cow<'c, str>>,
}

impl<'e, 'c> Events<'e, 'c> {
    pub(super) fn new(
        chunk: &Cursor<'c>,
        constants: &'e Constants<'c>,
        settings: &'e Settings,
        ticks_per_second: u64,
    ) -> Result<Self, Fault> {
        let mut rules = HashMap::default();
        for rule in RULES {
            if let Some(id) = constants.metadata.id(rule.event) {
                constants.metadata.check(chunk, id)?;
                rules.insert(id, rule);
            }
        }
        Ok(Events {
            constants,
            settings,
            ticks_per_second: ticks_per_second.max(1),
            rules,
            stacks: Stacks::new(constants)?,
            states: constants.enumeration("jdk.types.ThreadState")?,
        })
    }

    /// Adds a sample if the event is one.
    pub(super) fn add(
        &mut self,
        cursor: &mut Cursor<'c>,
        kind: i64,
        builder: &mut Builder<'_>,
    ) -> Result<(), Fault> {
        let Some(rule) = self.rules.get(&kind).copied() else {
            return Ok(());
        };
        let mut event = Event {
            samples: 1,
            sizes: ["tlabSize", "allocationSize", "weight", "size"].map(|name| (name, 0)),
            ..Event::default()
        };
        self.constants
            .metadata
            .visit(cursor, kind, &mut |field, value| {
                let Value::Number(number) = value else { return };
                match &*field.name {
                    "stackTrace" => event.stack = number,
                    "sampledThread" | "eventThread" => event.thread = number,
                    "objectClass" | "monitorClass" | "parkedClass" => event.class = number,
                    "state" => event.state = number,
                    "samples" => event.samples = number,
                    "duration" => event.duration = number,
                    "samplingPeriod" => event.sampling_period = number,
                    "contextId" => event.context = number,
                    name => {
                        if let Some(size) = event.sizes.iter_mut().find(|size| size.0 == name) {
                            size.1 = number;
                        }
                    }
                }
            })?;
        let mut values = [(0, 0); 2];
        for (value, (name, unit, measure)) in values.iter_mut().zip(rule.types) {
            *value = match measure {
                Measure::Count => (builder.sample_type(name, unit)?, 1),
                Measure::Bytes(fields) => {
                    let size = |field: &&str| event.sizes.iter().find(|size| size.0 == *field);
                    let mut sizes = fields.iter().filter_map(size).map(|size| size.1);
                    let size = sizes.find(|size| *size != 0);
                    (builder.sample_type(name, unit)?, size.unwrap_or_default())
                }
                Measure::Duration => (
                    builder.sample_type(name, unit)?,
                    self.nanoseconds(event.duration),
                ),
                Measure::Period(of) => self.time(rule, of, &event, builder)?,
            };
        }
        let attributes =
            self.stacks
                .thread(self.constants, builder, event.thread, event.context)?;
        let stack = self
            .stacks
            .stack(self.constants, builder, event.stack, event.class)?;
        builder.count(
            stack,
            attributes,
            values.get(..rule.types.len()).unwrap_or_default(),
        )
    }

    fn nanoseconds(&self, ticks: i64) -> i64 {
        let nanoseconds = i128::from(ticks) * 1_000_000_000 / i128::from(self.ticks_per_second);
        i64::try_from(nanoseconds).unwrap_or(i64::MAX)
    }

    /// Returns the sample type and the value of a sample that stands for a period.
    fn time(
        &self,
        rule: &Rule,
        mut of: &'static str,
        event: &Event,
        builder: &mut Builder<'_>,
    ) -> Result<(usize, i64), Fault> {
        if rule.event == EXECUTION {
            let state = usize::try_from(event.state).ok();
            let state = state.and_then(|state| self.states.get(state));
            if self.settings.is_wall(state.map_or("", |state| state)) {
                of = "wall";
            }
        }
        if event.sampling_period > 0 {
            let column = builder.sample_type(of, "nanoseconds")?;
            return Ok((column, self.nanoseconds(event.sampling_period)));
        }
        let Some(period) = self.settings.period(of) else {
            // Without a period, the samples have no time.
            let name = match of {
                "cpu" => "samples",
                "wall" => "wall_samples",
                _ => "native_samples",
            };
            return Ok((builder.sample_type(name, "count")?, event.samples));
        };
        let column = builder.sample_type(of, "nanoseconds")?;
        builder.period_of(column, of, "nanoseconds", period);
        Ok((column, event.samples.saturating_mul(period)))
    }
}
