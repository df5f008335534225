//! speedscope's JSON, as described by speedscope.app/file-format-schema.json: sampled and evented profiles of one file.
//!
//! All profiles of a unit become one profile, in which the name of the original is the attribute `thread.name`. Times
//! become whole nanoseconds.

use std::borrow::Cow;

use serde::Deserialize;
use tributary_profiles::id::{AttributeSetId, LocationId};

use crate::builder::{Builder, Frame};
use crate::error::Fault;
use crate::json;
use crate::tree::Tree;

const SCHEMA: &str = "speedscope.app/file-format-schema.json";

#[derive(Deserialize)]
struct File<'f> {
    #[serde(borrow)]
    shared: Shared<'f>,
    #[serde(borrow)]
    profiles: Vec<Profile<'f>>,
}

#[derive(Deserialize)]
struct Shared<'f> {
    #[serde(borrow)]
    frames: Vec<SharedFrame<'f>>,
}

#[derive(Deserialize)]
struct SharedFrame<'f> {
    #[serde(borrow)]
    name: Cow<'f, str>,
    #[serde(borrow, default)]
    file: Option<Cow<'f, str>>,
    #[serde(default)]
    line: Option<f64>,
    #[serde(default)]
    col: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile<'f> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'f, str>,
    #[serde(borrow, default)]
    name: Cow<'f, str>,
    #[serde(borrow)]
    unit: Cow<'f, str>,
    start_value: f64,
    end_value: f64,
    /// Of sampled profiles, the root first.
    #[serde(default)]
    samples: Vec<Vec<usize>>,
    #[serde(default)]
    weights: Vec<f64>,
    /// Of evented profiles.
    #[serde(borrow, default)]
    events: Vec<Event<'f>>,
}

#[derive(Deserialize)]
struct Event<'f> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'f, str>,
    frame: usize,
    at: f64,
}

pub(crate) fn begins_like(bytes: &[u8]) -> bool {
    json::mentions(bytes, &[SCHEMA])
}

pub(crate) fn read(bytes: &[u8], builder: &mut Builder<'_>) -> Result<(), Fault> {
    let file: File<'_> = json::parse(bytes, builder)?;
    let mut locations = Vec::new();
    for frame in &file.shared.frames {
        locations.push(builder.frame(&Frame {
            name: &frame.name,
            filename: frame.file.as_deref().unwrap_or_default(),
            line: whole(frame.line.unwrap_or_default()),
            column: whole(frame.col.unwrap_or_default()),
            ..Frame::default()
        })?);
    }
    let several = file.profiles.len() > 1;
    let mut duration = 0;
    for (profile, number) in file.profiles.iter().zip(1..) {
        let unit = Unit::of(&profile.unit).ok_or_else(|| {
            let unit = &profile.unit;
            Fault::whole(format!("profile {number} has the unknown unit `{unit}`"))
        })?;
        let column = builder.sample_type(unit.kind, unit.unit)?;
        if unit.unit == "nanoseconds" {
            let (start, end) = (profile.start_value, profile.end_value);
            let lasted = unit.scaled(end).saturating_sub(unit.scaled(start));
            duration = duration.max(u64::try_from(lasted).unwrap_or_default());
        }
        let mut attributes = AttributeSetId::default();
        if several || profile.name.starts_with("Thread ") {
            attributes = builder.thread(&profile.name, None)?;
        }
        let reader = Reader {
            profile,
            number,
            unit,
            column,
            attributes,
            locations: &locations,
        };
        match &*profile.kind {
            "sampled" => reader.sampled(builder)?,
            "evented" => reader.evented(builder)?,
            kind => {
                let problem =
                    format!("profile {number} has the type `{kind}`, not `sampled` or `evented`");
                return Err(Fault::whole(problem));
            }
        }
    }
    builder.cover(0, duration);
    Ok(())
}

/// A unit of speedscope, and the sample type of values in the unit.
#[derive(Clone, Copy)]
struct Unit {
    kind: &'static str,
    unit: &'static str,
    scale: f64,
}

impl Unit {
    fn of(name: &str) -> Option<Unit> {
        let (kind, unit, scale) = match name {
            "none" => ("samples", "count", 1.0),
            "bytes" => ("space", "bytes", 1.0),
            "nanoseconds" => ("time", "nanoseconds", 1.0),
            "microseconds" => ("time", "nanoseconds", 1e3),
            "milliseconds" => ("time", "nanoseconds", 1e6),
            "seconds" => ("time", "nanoseconds", 1e9),
            _ => return None,
        };
        Some(Unit { kind, unit, scale })
    }

    fn scaled(self, value: f64) -> i64 {
        whole(value * self.scale)
    }
}

/// Rounds a number; numbers beyond 64 bits become the nearest one.
fn whole(value: f64) -> i64 {
    value.round() as i64
}

struct Reader<'r> {
    profile: &'r Profile<'r>,
    number: usize,
    unit: Unit,
    column: usize,
    attributes: AttributeSetId,
    locations: &'r [LocationId],
}

impl Reader<'_> {
    fn sampled(&self, builder: &mut Builder<'_>) -> Result<(), Fault> {
        let (samples, weights) = (&self.profile.samples, &self.profile.weights);
        if samples.len() != weights.len() {
            let (samples, weights) = (samples.len(), weights.len());
            return Err(self.fault(format!("has {samples} samples and {weights} weights")));
        }
        let mut stack = Vec::new();
        for (frames, weight) in samples.iter().zip(weights) {
            stack.clear();
            for frame in frames.iter().rev() {
                stack.push(self.location(*frame)?);
            }
            let value = (self.column, self.unit.scaled(*weight));
            builder.sample(&stack, self.attributes, &[value])?;
        }
        Ok(())
    }

    fn evented(&self, builder: &mut Builder<'_>) -> Result<(), Fault> {
        let mut tree = Tree::new(builder, self.profile.events.len())?;
        let mut open = Vec::new();
        let mut last = self.unit.scaled(self.profile.start_value);
        for (event, at) in self.profile.events.iter().zip(0..) {
            let now = self.unit.scaled(event.at);
            if now < last {
                return Err(self.fault(format!("goes back in time at event {at}")));
            }
            if let Some((node, _)) = open.last() {
                tree.add(*node, now.saturating_sub(last));
            }
            last = now;
            match &*event.kind {
                "O" => {
                    let parent = open.last().map(|(node, _)| *node);
                    let node = tree.child(parent, self.location(event.frame)?);
                    open.push((node, event.frame));
                }
                "C" if open.pop().is_some_and(|(_, frame)| frame == event.frame) => {}
                "C" => {
                    let problem = format!("closes a frame at event {at} that is not the innermost");
                    return Err(self.fault(problem));
                }
                kind => return Err(self.fault(format!("has an event of the type `{kind}`"))),
            }
        }
        if let Some((node, _)) = open.last() {
            let end = self.unit.scaled(self.profile.end_value);
            tree.add(*node, end.saturating_sub(last).max(0));
        }
        tree.finish(builder, self.attributes, self.column)
    }

    fn location(&self, frame: usize) -> Result<LocationId, Fault> {
        let location = self.locations.get(frame).copied();
        location.ok_or_else(|| {
            let frames = self.locations.len();
            self.fault(format!("refers to frame {frame} of {frames}"))
        })
    }

    fn fault(&self, problem: String) -> Fault {
        Fault::whole(format!("profile {} {problem}", self.number))
    }
}
