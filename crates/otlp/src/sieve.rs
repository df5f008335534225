//! Removes resources, scopes and items from a request.

use super::Malformed;
use super::edit::{EditError, Editor};
use super::reader::{Field, Fields, WireFault};
use super::room::Room;
use super::view::{Message, ResourceEntry, ScopeEntry, View as _};

/// Decides about each part of a request. The first method that returns false removes the part.
pub trait Sieve<'a> {
    /// Whether telemetry of this resource may stay.
    fn resource(&mut self, _entry: ResourceEntry<'a>) -> bool {
        true
    }

    /// Whether telemetry of this scope of the current resource may stay.
    fn scope(&mut self, _entry: ScopeEntry<'a>) -> bool {
        true
    }

    /// Whether this span, metric, log record or profile of the current scope stays. Edits of a removed item
    /// are discarded.
    fn item(&mut self, _item: &Field<'a>, _editor: &mut Editor<'a>) -> bool {
        true
    }
}

/// Result of filtering a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sieved {
    /// The request is unchanged.
    Same,
    /// The rest of the request.
    Changed(Vec<u8>),
    /// No resource is left.
    Nothing,
}

/// Removes parts from a valid request of any signal. A scope or resource that becomes empty is removed too; a scope or
/// resource that was empty before stays.
///
/// # Errors
/// Fails if the request is invalid, or if there is no room for the result.
pub fn sieve<'a>(
    request: &'a [u8],
    room: &'a dyn Room,
    sieve: &mut impl Sieve<'a>,
) -> Result<Sieved, EditError> {
    let mut editor = Editor::within(request, room);
    let left = each(Fields::new(request), 1, &mut editor, |entry, editor| {
        if !sieve.resource(ResourceEntry::view(message(entry))) {
            return Ok(false);
        }
        each(entry.fields(), 2, editor, |scope, editor| {
            if !sieve.scope(ScopeEntry::view(message(scope))) {
                return Ok(false);
            }
            each(scope.fields(), 2, editor, |item, editor| {
                Ok(sieve.item(item, editor))
            })
        })
    });
    match left {
        Err(fault) => Err(Malformed::new(0, fault.text()).into()),
        Ok(false) => Ok(Sieved::Nothing),
        Ok(true) => Ok(editor
            .finish_within()?
            .map_or(Sieved::Same, Sieved::Changed)),
    }
}

fn message<'a>(field: &Field<'a>) -> Message<'a> {
    Message::new(field.value.bytes().unwrap_or_default())
}

/// Removes the messages in the fields `number` for which `keep` returns false. Returns whether any message stays, or
/// there was no message before.
#[inline(always)]
pub fn each<'a>(
    fields: Fields<'a>,
    number: u32,
    editor: &mut Editor<'a>,
    mut stays: impl FnMut(&Field<'a>, &mut Editor<'a>) -> Result<bool, WireFault>,
) -> Result<bool, WireFault> {
    let mut any_stays = false;
    let mut any_goes = false;
    for field in fields {
        let field = field?;
        if field.number != number || field.value.bytes().is_none() {
            continue;
        }
        let mark = editor.mark();
        if editor.message(&field, |editor| stays(&field, editor))? {
            any_stays = true;
        } else {
            editor.rollback(&mark);
            editor.delete(&field);
            any_goes = true;
        }
    }
    Ok(any_stays || !any_goes)
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
    use prost::Message as _;

    use super::*;
    use crate::edit::put_delimited;
    use crate::room::Unbounded;
    use crate::view;

    fn request(resources: &[&[&[&str]]]) -> Vec<u8> {
        let span = |name: &&str| Span {
            name: (*name).to_owned(),
            ..Span::default()
        };
        let scope = |names: &&[&str]| ScopeSpans {
            spans: names.iter().map(span).collect(),
            ..ScopeSpans::default()
        };
        let resource = |scopes: &&[&[&str]]| ResourceSpans {
            scope_spans: scopes.iter().map(scope).collect(),
            ..ResourceSpans::default()
        };
        let request = ExportTraceServiceRequest {
            resource_spans: resources.iter().map(resource).collect(),
        };
        request.encode_to_vec()
    }

    /// Renames every span, and keeps only spans whose name does not begin with `-`.
    struct Renaming;

    impl<'a> Sieve<'a> for Renaming {
        fn item(&mut self, item: &Field<'a>, editor: &mut Editor<'a>) -> bool {
            let name = view::Span::view(message(item)).name();
            let field = item.fields().flatten().find(|field| field.number == 5);
            editor.replace(&field.unwrap(), |output| {
                put_delimited(5, format!("{name}{name}").as_bytes(), output);
            });
            !name.starts_with('-')
        }
    }

    #[test]
    fn emptied_parents_are_removed_with_their_edits() {
        let before = request(&[
            &[&["-a", "b"], &["-c"], &[]],
            &[&["-d"], &["-e"]],
            &[],
            &[&["f"]],
        ]);
        let after = request(&[&[&["bb"], &[]], &[], &[&["ff"]]]);
        assert_eq!(
            sieve(&before, &Unbounded, &mut Renaming),
            Ok(Sieved::Changed(after))
        );
        let gone = request(&[&[&["-a"], &["-b"]]]);
        assert_eq!(sieve(&gone, &Unbounded, &mut Renaming), Ok(Sieved::Nothing));
    }

    struct Everything;

    impl Sieve<'_> for Everything {}

    #[test]
    fn unfiltered_request_is_not_copied() {
        for before in [request(&[]), request(&[&[], &[&[]], &[&["a"]]])] {
            assert_eq!(
                sieve(&before, &Unbounded, &mut Everything),
                Ok(Sieved::Same)
            );
        }
    }
}
