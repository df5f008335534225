//! Removes items from a request, on the wire.

use super::keys::data;
use tributary_otlp::Signal;
use tributary_otlp::edit::Editor;
use tributary_otlp::reader::{Field, Fields};

/// Removes the items marked in `drop`, which is in the order of the items. Metrics, scopes and resources that become
/// empty are removed, too. Returns `None` if nothing changes.
pub(super) fn remove(signal: Signal, request: &[u8], drop: &[bool]) -> Option<Vec<u8>> {
    let mut editor = Editor::new(request);
    let mut drop = drop;
    let way = match signal {
        Signal::Metrics => &TO_POINTS[..],
        _ => &TO_RECORDS[..],
    };
    descend(Fields::new(request), way, &mut drop, &mut editor);
    editor.finish()
}

/// Path of fields from a request to its items.
const TO_RECORDS: [Step; 3] = [Step::Field(1), Step::Field(2), Step::Field(2)];
const TO_POINTS: [Step; 5] = [
    Step::Field(1),
    Step::Field(2),
    Step::Field(2),
    Step::Data,
    Step::Field(1),
];

#[derive(Clone, Copy)]
enum Step {
    /// Messages in the fields with this number.
    Field(u32),
    /// Data of a metric, in any form.
    Data,
}

impl Step {
    fn leads_to(self, field: &Field<'_>) -> bool {
        match self {
            Step::Field(number) => field.number == number && field.value.bytes().is_some(),
            Step::Data => data(field).is_some(),
        }
    }
}

fn descend<'a>(fields: Fields<'a>, way: &[Step], drop: &mut &[bool], editor: &mut Editor<'a>) {
    let Some((step, way)) = way.split_first() else {
        return;
    };
    for field in fields.map_while(Result::ok) {
        if !step.leads_to(&field) {
            continue;
        }
        let items = items(&field, way);
        let (inside, after) = drop.split_at_checked(items).unwrap_or((drop, &[]));
        if !inside.contains(&true) {
            *drop = after;
        } else if !inside.contains(&false) {
            *drop = after;
            editor.delete(&field);
        } else {
            editor.message(&field, |editor| descend(field.fields(), way, drop, editor));
        }
    }
}

/// Returns the number of items in a message at this position of the path; an item counts as one.
fn items(field: &Field<'_>, way: &[Step]) -> usize {
    let Some((step, way)) = way.split_first() else {
        return 1;
    };
    let fields = field.fields().map_while(Result::ok);
    fields
        .filter(|field| step.leads_to(field))
        .map(|field| items(&field, way))
        .sum()
}
