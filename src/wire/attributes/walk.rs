//! The way down to the sets of attributes.

use super::plan::Plan;
use super::{Ambiguous, Level};
use crate::batch::Signal;
use crate::wire::count::metric_data;
use crate::wire::edit::{Editor, put_delimited};
use crate::wire::reader::{Fault, Field, Fields};

/// What is not valid is nothing that can be edited here either.
impl From<Fault> for Ambiguous {
    fn from(_: Fault) -> Self {
        Ambiguous
    }
}

/// Notes what has to change in all sets of attributes of that level.
pub(super) fn walk<'a>(
    plan: &Plan,
    signal: Signal,
    level: Level,
    request: &'a [u8],
    editor: &mut Editor<'a>,
) -> Result<(), Ambiguous> {
    if signal == Signal::Profiles {
        return Ok(());
    }
    messages(
        Fields::new(request),
        1,
        editor,
        |resource, editor| match level {
            Level::Resources => resource_attributes(plan, resource, editor),
            Level::Items => messages(resource.fields(), 2, editor, |scope, editor| {
                messages(scope.fields(), 2, editor, |entry, editor| match signal {
                    Signal::Traces => plan.edit(entry, 9, editor),
                    Signal::Logs => plan.edit(entry, 6, editor),
                    _ => points(plan, entry, editor),
                })
            }),
        },
    )
}

/// The data points of a metric.
fn points<'a>(plan: &Plan, metric: &Field<'a>, editor: &mut Editor<'a>) -> Result<(), Ambiguous> {
    let mut forms = 0;
    for field in metric.fields() {
        let field = field?;
        if metric_data(&field).is_none() {
            continue;
        }
        forms += 1;
        if forms > 1 {
            return Err(Ambiguous);
        }
        let attributes = match field.number {
            9 => 9,  // histogram
            10 => 1, // exponential_histogram
            _ => 7,  // gauge, sum, summary
        };
        editor.message(&field, |editor| {
            messages(field.fields(), 1, editor, |point, editor| {
                plan.edit(point, attributes, editor)
            })
        })?;
    }
    Ok(())
}

fn resource_attributes<'a>(
    plan: &Plan,
    entry: &Field<'a>,
    editor: &mut Editor<'a>,
) -> Result<(), Ambiguous> {
    let mut resources = 0;
    messages(entry.fields(), 1, editor, |resource, editor| {
        resources += 1;
        if resources > 1 {
            return Err(Ambiguous);
        }
        plan.edit(resource, 1, editor)
    })?;
    if resources == 0 {
        let attributes = plan.of_nothing(1);
        if !attributes.is_empty() {
            editor.append(entry, |output| put_delimited(1, &attributes, output));
        }
    }
    Ok(())
}

/// Calls `edit` for each message in the fields with that number.
#[inline(always)]
fn messages<'a>(
    fields: Fields<'a>,
    number: u32,
    editor: &mut Editor<'a>,
    mut edit: impl FnMut(&Field<'a>, &mut Editor<'a>) -> Result<(), Ambiguous>,
) -> Result<(), Ambiguous> {
    for field in fields {
        let field = field?;
        if field.number == number && field.value.bytes().is_some() {
            editor.message(&field, |editor| edit(&field, editor))?;
        }
    }
    Ok(())
}
