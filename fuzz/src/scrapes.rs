//! The targets for pages that the receiver `prometheus` scrapes, and for its relabelling rules.

use tributary::fuzzing::scrapes::Scrapes;
use tributary_otlp::Signal;
use tributary_prometheus::relabel::{RuleAction, RelabelRule, RuleSettings};
use tributary_prometheus::{ExpositionFormat, LabelBuilder, PageLabels};

/// For any pages of a target, each scrape makes a valid request with the stated number
/// of points, and no memory stays reserved.
pub fn scrape(input: &[u8]) {
    let Some((choices, input)) = input.split_first() else {
        return;
    };
    let format = match choices & 3 {
        0 => ExpositionFormat::Text,
        1 => ExpositionFormat::OpenMetrics,
        _ => ExpositionFormat::Protobuf,
    };
    let mut scrapes = Scrapes::new(choices & 4 != 0, choices & 8 != 0);
    for page in input.split(|byte| *byte == 0xff).take(4).chain([input]) {
        let (request, points) = scrapes.scrape(format, page);
        match tributary_otlp::validate(Signal::Metrics, &request) {
            Ok(items) => assert_eq!(items, points),
            Err(why) => panic!("{why}"),
        }
    }
    assert_eq!(scrapes.end(), 0);
}

/// Any rule compiles or is refused, and has an effect within the rules of labels.
pub fn relabel(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let mut parts = text.split('\n');
    let mut next = || parts.next().unwrap_or_default().to_owned();
    let actions = [
        RuleAction::Replace,
        RuleAction::Keep,
        RuleAction::Drop,
        RuleAction::KeepEqual,
        RuleAction::DropEqual,
        RuleAction::HashMod,
        RuleAction::LabelMap,
        RuleAction::LabelDrop,
        RuleAction::LabelKeep,
        RuleAction::Lowercase,
        RuleAction::Uppercase,
    ];
    let choice = next();
    let action = actions.get(choice.len() % actions.len()).copied().unwrap_or_default();
    let default = RuleSettings::default();
    let rule = RelabelRule::new(RuleSettings {
        regex: next(),
        target_label: next(),
        replacement: next(),
        modulus: u64::from(action == RuleAction::HashMod) * 7,
        source_labels: vec!["a".to_owned(), next()],
        action,
        utf8_names: choice.starts_with('u'),
        ..default
    });
    let Ok(rule) = rule else {
        return;
    };
    let labels = [("a".to_owned(), next()), (next(), next())];
    let mut labels = LabelBuilder::from(PageLabels::from_iter(labels));
    let _ = rule.apply(&mut labels);
    let built = labels.build();
    let names: Vec<&str> = built.iter().map(|(name, _)| name).collect();
    assert!(names.is_sorted(), "{names:?}");
    assert!(built.iter().all(|(_, value)| !value.is_empty()));
}
