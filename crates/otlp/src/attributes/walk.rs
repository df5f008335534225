//! Visits the encoded sets of attributes of a request.

use super::plan::{MatchedKeys, Plan};
use super::{Ambiguous, AttributeLevel, AttributeSelector};
use crate::Signal;
use crate::count::metric_data;
use crate::edit::{Editor, put_delimited};
use crate::reader::{Field, Fields, WireFault};
use crate::view::{Message, ResourceEntry, ScopeEntry, View as _};

/// An invalid request is handled like an ambiguous one: neither can be edited without decoding.
impl From<WireFault> for Ambiguous {
    fn from(_: WireFault) -> Self {
        Ambiguous
    }
}

/// Records the edits of all selected sets of a level.
pub(super) struct Walk<'p, 's, 'a, S> {
    plan: &'p Plan,
    signal: Signal,
    level: AttributeLevel,
    select: &'s mut S,
    memory: MatchedKeys<'a>,
}

impl<'p, 's, 'a, S: AttributeSelector> Walk<'p, 's, 'a, S> {
    pub(super) fn new(
        plan: &'p Plan,
        signal: Signal,
        level: AttributeLevel,
        select: &'s mut S,
    ) -> Self {
        Walk {
            plan,
            signal,
            level,
            select,
            memory: MatchedKeys::default(),
        }
    }

    pub(super) fn request(
        &mut self,
        request: &'a [u8],
        editor: &mut Editor<'a>,
    ) -> Result<(), Ambiguous> {
        messages(Fields::new(request), 1, editor, |entry, editor| {
            if !self.select.resource(ResourceEntry::view(message(entry))) {
                return Ok(());
            }
            match self.level {
                AttributeLevel::Resources => self.resource(entry, editor),
                AttributeLevel::Items => self.scopes(entry, editor),
            }
        })
    }

    fn scopes(&mut self, entry: &Field<'a>, editor: &mut Editor<'a>) -> Result<(), Ambiguous> {
        messages(entry.fields(), 2, editor, |scope, editor| {
            if !self.select.scope(ScopeEntry::view(message(scope))) {
                return Ok(());
            }
            messages(scope.fields(), 2, editor, |item, editor| {
                if !self.select.item(message(item)) {
                    return Ok(());
                }
                match self.signal {
                    Signal::Traces => self.plan.edit(item, 9, &mut self.memory, editor),
                    Signal::Logs => self.plan.edit(item, 6, &mut self.memory, editor),
                    _ => self.points(item, editor),
                }
            })
        })
    }

    fn points(&mut self, metric: &Field<'a>, editor: &mut Editor<'a>) -> Result<(), Ambiguous> {
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
                    self.plan.edit(point, attributes, &mut self.memory, editor)
                })
            })?;
        }
        Ok(())
    }

    fn resource(&mut self, entry: &Field<'a>, editor: &mut Editor<'a>) -> Result<(), Ambiguous> {
        let mut resources = 0;
        messages(entry.fields(), 1, editor, |resource, editor| {
            resources += 1;
            if resources > 1 {
                return Err(Ambiguous);
            }
            self.plan.edit(resource, 1, &mut self.memory, editor)
        })?;
        if resources == 0 {
            let attributes = self.plan.for_empty_set(1);
            if !attributes.is_empty() {
                editor.append(entry, |output| put_delimited(1, &attributes, output));
            }
        }
        Ok(())
    }
}

fn message<'a>(field: &Field<'a>) -> Message<'a> {
    Message::new(field.value.bytes().unwrap_or_default())
}

/// Calls `edit` for each message in the fields `number`.
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
