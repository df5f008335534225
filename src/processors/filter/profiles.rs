//! Filtering profiles, whose attributes are entries of a dictionary.

use super::rules::Rules;
use crate::pipeline::batch::Nack;
use crate::pipeline::output_memory::OutputMemory;
use crate::processors::decoding;
use tributary_otlp::Signal;
use tributary_otlp::edit::Editor;
use tributary_otlp::reader::Field;
use tributary_otlp::sieve::{Sieve, Sieved, sieve};
use tributary_otlp::view::{Message, ResourceEntry, ScopeEntry};
use tributary_ottl::EvaluationTarget;
use tributary_ottl::path::Depth;
use tributary_ottl::profile::{ProfileReader, dictionary, messages};
use tributary_profiles::drop_unreferenced;
use tributary_profiles::reindex::ProfileFault;

/// Returns a profiles request without its dropped profiles, and without the dictionary entries only they referred to.
///
/// # Errors
/// If the request breaks the rules of the dictionary, because conditions cannot be evaluated on unreadable profiles.
pub(super) fn filter(rules: &Rules, request: &[u8], output: &OutputMemory) -> Result<Sieved, Nack> {
    let mut verdicts = verdicts(rules, request)?;
    if verdicts
        .resources
        .iter()
        .chain(&verdicts.scopes)
        .chain(&verdicts.profiles)
        .all(|stays| *stays)
    {
        return Ok(Sieved::Same);
    }
    for stays in [
        &mut verdicts.resources,
        &mut verdicts.scopes,
        &mut verdicts.profiles,
    ] {
        stays.reverse();
    }
    let sieved = sieve(request, output, &mut verdicts)
        .map_err(|error| decoding::unedited(Signal::Profiles, error, output))?;
    Ok(match sieved {
        Sieved::Changed(left) => {
            Sieved::Changed(drop_unreferenced(&left).map_or(left, |collected| collected.to_vec()))
        }
        sieved => sieved,
    })
}

/// Verdicts per resource, scope and profile; `true` keeps the item. The sieve pops them, so they end up reversed.
#[derive(Default)]
struct Verdicts {
    resources: Vec<bool>,
    scopes: Vec<bool>,
    profiles: Vec<bool>,
}

impl Sieve<'_> for Verdicts {
    fn resource(&mut self, _: ResourceEntry<'_>) -> bool {
        self.resources.pop().unwrap_or(true)
    }

    fn scope(&mut self, _: ScopeEntry<'_>) -> bool {
        self.scopes.pop().unwrap_or(true)
    }

    fn item(&mut self, _: &Field<'_>, _: &mut Editor<'_>) -> bool {
        self.profiles.pop().unwrap_or(true)
    }
}

fn verdicts(rules: &Rules, request: &[u8]) -> Result<Verdicts, Nack> {
    let broken = |fault: ProfileFault| {
        Nack::invalid(format!(
            "cannot evaluate conditions on the profiles: {fault}"
        ))
    };
    let entries = dictionary(request).map_err(broken)?;
    let mut reader = ProfileReader::new(&entries);
    let mut verdicts = Verdicts::default();
    for entry in messages(request, 1) {
        let resource = reader.resource(entry).map_err(broken)?;
        let here = EvaluationTarget {
            resource: Message::new(&resource),
            ..EvaluationTarget::default()
        };
        let stays = !rules
            .any_is_true(&rules.conditions, Depth::Resource, &here)
            .map_err(Nack::invalid)?;
        verdicts.resources.push(stays);
        if !stays {
            continue;
        }
        let of_resource = rules.conditions.within(Depth::Resource, &here);
        let of_resource = of_resource.as_ref().unwrap_or(&rules.conditions);
        for entry in messages(entry, 2) {
            let scope = reader.scope(entry).map_err(broken)?;
            let here = EvaluationTarget {
                scope: Message::new(&scope),
                ..here
            };
            let stays = !rules
                .any_is_true(of_resource, Depth::Scope, &here)
                .map_err(Nack::invalid)?;
            verdicts.scopes.push(stays);
            if !stays {
                continue;
            }
            let of_scope = of_resource.within(Depth::Scope, &here);
            let of_scope = of_scope.as_ref().unwrap_or(of_resource);
            for profile in messages(entry, 2) {
                let fields = reader.profile(profile).map_err(broken)?;
                let here = EvaluationTarget {
                    profile: Some(&fields),
                    ..here
                };
                let stays = !rules
                    .any_is_true(of_scope, Depth::Item, &here)
                    .map_err(Nack::invalid)?;
                verdicts.profiles.push(stays);
            }
        }
    }
    Ok(verdicts)
}
