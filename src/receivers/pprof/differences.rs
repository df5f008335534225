//! Processing of files whose values count from the start of a process: their differences are forwarded.

use super::delta::{Deltas, Difference, Fit, Series};
use crate::receivers::profile_intake::{
    Accepted, BATCH_BYTES, Intake, Origin, ReceivedBytes, Refused, Rules, on_a_turn, read,
};
use tributary_profiles::pprof;
use tributary_profiles::write::encode;

impl Deltas {
    /// Processes a file of a series, and forwards the difference to the previous file of the series.
    /// See [`delta`](super::delta).
    ///
    /// # Errors
    /// See [`Refused`]. After a retryable refusal, the next file includes the difference.
    pub(super) async fn forward(
        &self,
        intake: &Intake,
        held: ReceivedBytes,
        origin: Origin,
        name: &str,
    ) -> Result<(Accepted, Fit), Refused> {
        let mut taken = self.take(name);
        // No payload: the file is not the original of its difference.
        let rules = intake.rules(false);
        let (mut taken, subtracted) = on_a_turn(move || {
            let subtracted = subtract(held, &origin, &rules, &mut taken.series);
            (taken, subtracted)
        })
        .await?;
        let (held, difference, repairs) = match subtracted {
            Ok(subtracted) => subtracted,
            Err(refused) => {
                self.put(name, taken);
                intake.not_converted(&refused);
                return Err(refused);
            }
        };
        intake.repaired.count(repairs);
        let profiles = &difference.profiles.profiles;
        let accepted = Accepted {
            profiles: profiles.len(),
            samples: profiles.iter().map(|profile| profile.samples.len()).sum(),
        };
        let result = intake.push(held, accepted.samples, None).await;
        let fit = difference.fit;
        if result
            .as_ref()
            .err()
            .is_none_or(|refused| !refused.is_retryable())
        {
            taken.series.delivered(difference);
        }
        self.put(name, taken);
        result.map(|()| (accepted, fit))
    }
}

/// Computes the encoded difference to the previous file of a series.
fn subtract(
    held: ReceivedBytes,
    origin: &Origin,
    rules: &Rules,
    series: &mut Series,
) -> Result<(ReceivedBytes, Difference, pprof::Repairs), Refused> {
    let (dictionary, relocations) = series.tables();
    let (mut resource, mut permit, repairs) =
        read(held, origin, rules, dictionary, Some(relocations))?;
    let scope = resource.scopes.pop().unwrap_or_default();
    let difference = series.difference(scope);
    resource.scopes.push(difference.profiles.clone());
    let bytes = encode(series.dictionary(), &[resource]);
    permit
        .resize(bytes.len().saturating_add(BATCH_BYTES))
        .map_err(Refused::NoRoom)?;
    Ok((ReceivedBytes { bytes, permit }, difference, repairs))
}
