//! `--feature-gates`, an option of command lines written for the OpenTelemetry Collector.

/// Gates whose feature is always on here.
const ALWAYS_ON: [&str; 1] = ["service.profilesSupport"];

/// Returns notes about the gates for the user.
///
/// # Errors
/// An unknown gate, because its feature would not change.
pub(super) fn check(arguments: &[String]) -> Result<Vec<String>, String> {
    let mut notes = Vec::new();
    let gates = arguments.iter().flat_map(|argument| argument.split(','));
    for gate in gates.map(str::trim).filter(|gate| !gate.is_empty()) {
        let name = gate.trim_start_matches(['+', '-']);
        if !ALWAYS_ON.contains(&name) {
            return Err(format!(
                "unknown feature gate `{name}`; known: {}",
                ALWAYS_ON.join(", ")
            ));
        }
        notes.push(if gate.starts_with('-') {
            format!("the feature gate `{name}` cannot be disabled: it is always on here")
        } else {
            format!("the feature gate `{name}` has no effect: it is always on here")
        });
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redundant_gates_cause_notice_and_others_error() {
        let check = |text: &str| check(&[text.to_owned()]);
        assert_eq!(check("service.profilesSupport").unwrap().len(), 1);
        assert!(check("-service.profilesSupport").unwrap()[0].contains("cannot be disabled"));
        assert!(
            check("+service.profilesSupport,other")
                .unwrap_err()
                .contains("`other`")
        );
        assert_eq!(check(" , ").unwrap(), Vec::<String>::new());
    }
}
