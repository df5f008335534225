use std::collections::BTreeSet;

use serde_yaml::{Mapping, Value};

use super::*;
use crate::app::config::load;
use tributary_config::Sources;

#[test]
fn committed_pages_are_current() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference");
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        write(&directory).unwrap();
    }
    let files = files();
    for (path, content) in &files {
        let committed = std::fs::read_to_string(directory.join(path)).unwrap_or_default();
        assert!(
            committed == *content,
            "docs/reference/{path} is out of date: run `collector components --markdown docs/reference`, or this test \
             with UPDATE_EXPECTED=1"
        );
    }
    let known: BTreeSet<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
    for folder in [
        "",
        "receivers",
        "processors",
        "exporters",
        "connectors",
        "extensions",
    ] {
        for entry in std::fs::read_dir(directory.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(&directory).unwrap().to_str().unwrap();
            assert!(
                path.is_dir() || known.contains(name),
                "docs/reference/{name} has no component"
            );
        }
    }
}

#[test]
fn pages_describe_every_key() {
    fn check(page: &Page, path: &str, keys: &[Key]) {
        for key in keys {
            let path = format!("{path}{}", key.name);
            assert!(
                !key.description.is_empty(),
                "{} {}: {path} has no description",
                page.kind,
                page.name
            );
            assert!(
                key.kind != "any value" || key.name.contains("value"),
                "{}: {path} has no type",
                page.name
            );
            check(page, &format!("{path}."), &key.keys);
        }
    }
    let pages = pages();
    assert!(pages.len() > 30);
    for page in &pages {
        check(page, "", &page.keys);
    }
}

#[test]
fn examples_are_valid_configurations() {
    for page in pages() {
        // The configuration of `kafka` is read by every build, but a build without it refuses the component.
        if page.feature.is_some() && !cfg!(feature = "kafka") {
            continue;
        }
        let examples = [&page.minimal, &page.full];
        for example in examples.into_iter().filter(|example| !example.is_empty()) {
            let config = around(&page, example);
            let sources = Sources {
                configs: vec![format!("yaml:{config}")],
                sets: Vec::new(),
            };
            let loaded = load(&sources, true);
            let report = loaded.report.render();
            assert!(
                loaded.config.is_some(),
                "{} {}:\n{report}\n{config}",
                page.kind,
                page.name
            );
        }
    }
}

/// Completes an example to a whole configuration.
fn around(page: &Page, example: &str) -> String {
    let mut root: Mapping = serde_yaml::from_str(example).unwrap();
    let signals: Vec<&str> = page.signals.iter().map(|support| support.signal).collect();
    let ids = || {
        let sections: Value = serde_yaml::from_str(example).unwrap();
        let section = sections[format!("{}s", page.kind).as_str()]
            .as_mapping()
            .unwrap()
            .clone();
        let ids = section.keys().map(|id| id.as_str().unwrap().to_owned());
        ids.collect::<Vec<String>>()
    };
    let id = || {
        ids()
            .into_iter()
            .find(|id| id.split('/').next() == Some(page.name))
            .unwrap()
    };
    let mut add = |section: &str, body: &str| {
        let body: Value = serde_yaml::from_str(body).unwrap();
        let section = root.entry(section.into()).or_insert(Mapping::new().into());
        let section = section.as_mapping_mut().unwrap();
        for (key, value) in body.as_mapping().unwrap() {
            section.entry(key.clone()).or_insert(value.clone());
        }
    };
    let pipelines = |receiver: &str,
                     processors: &str,
                     exporter: &str,
                     signals: &[&str],
                     name: &str| {
        let pipelines = signals.iter().map(|signal| {
            format!(
                "  {signal}{name}: {{receivers: [{receiver}], processors: [{processors}], exporters: [{exporter}]}}\n"
            )
        });
        format!("pipelines:\n{}", pipelines.collect::<String>())
    };
    let is_complete = example.contains("\nservice:");
    match page.kind {
        _ if is_complete => {}
        "receiver" => {
            add("exporters", "nop:");
            add("service", &pipelines(&id(), "", "nop", &signals, ""));
        }
        "processor" => {
            add("receivers", "nop:");
            add("exporters", "nop:");
            add("service", &pipelines("nop", &id(), "nop", &signals, ""));
        }
        "exporter" => {
            add("receivers", "nop:");
            add("service", &pipelines("nop", "", &id(), &signals, ""));
        }
        "connector" => {
            add("receivers", "nop:");
            add("exporters", "nop:");
            let emitted = if page.emits.is_empty() {
                &signals
            } else {
                &page.emits
            };
            let into = pipelines("nop", "", &id(), &signals, "/in");
            let out = pipelines(&id(), "", "nop", emitted, "/out").replace("pipelines:\n", "");
            add("service", &format!("{into}{out}"));
        }
        "extension" => {
            add("receivers", "nop:");
            add("exporters", "nop:");
            add("service", &format!("extensions: [{}]", ids().join(", ")));
            add("service", &pipelines("nop", "", "nop", &["traces"], ""));
        }
        _ => {
            add("receivers", "nop:");
            add("exporters", "nop:");
            add("service", &pipelines("nop", "", "nop", &["traces"], ""));
        }
    }
    serde_yaml::to_string(&root).unwrap()
}

#[test]
fn page_shows_bounds_defaults_and_differences() {
    let pages = pages();
    let page = |kind: &str, name: &str| {
        let mut pages = pages.iter();
        pages
            .find(|page| page.kind == kind && page.name == name)
            .unwrap()
            .clone()
    };
    let batch = page("processor", "batch");
    let timeout = batch.keys.iter().find(|key| key.name == "timeout").unwrap();
    assert_eq!(
        (timeout.kind.as_str(), timeout.default.as_deref()),
        ("duration", Some("`200ms`"))
    );
    let (own, _) = batch.differences();
    assert_eq!(own, ["send_batch_bytes", "send_batch_max_bytes"]);
    let text = batch.to_text();
    assert!(
        text.contains("timeout  (duration, default: `200ms`)"),
        "{text}"
    );
    assert!(
        text.contains("otelcol_processor_batch_timeout_trigger_send  (counter)"),
        "{text}"
    );
    // A section that is off by default is a comment, with its keys.
    let otlp = page("receiver", "otlp").full;
    let cors = "\n        # cors:\n        #   allowed_origins: []\n";
    assert!(otlp.contains(cors), "{otlp}");
    let pprof = page("receiver", "pprof").full;
    assert!(
        pprof.contains("\n    # targets:\n    #   - endpoint:"),
        "{pprof}"
    );
}

/// The texts state defaults for editors too, where nothing derives them.
#[test]
fn documented_defaults_match_code() {
    fn check(page: &Page, keys: &[Key], wrong: &mut Vec<String>) {
        for key in keys {
            let expected = match &key.value {
                serde_json::Value::String(text) => short(text),
                serde_json::Value::Number(number) => number.to_string(),
                serde_json::Value::Bool(value) => value.to_string(),
                _ => String::new(),
            };
            let is_sentinel = ["", "0", "0s", "0.0"].contains(&expected.as_str());
            let shown = key.default.clone().unwrap_or_default();
            if !is_sentinel && !key.required && !shown.replace('`', "").contains(&expected) {
                wrong.push(format!(
                    "{} {}: {} is {expected}, not {shown}",
                    page.kind, page.name, key.name
                ));
            }
            check(page, &key.keys, wrong);
        }
    }
    let mut wrong = Vec::new();
    for page in pages() {
        check(&page, &page.keys, &mut wrong);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Shortens a duration as texts write it: `1m0s` to `1m`.
fn short(text: &str) -> String {
    let mut text = text;
    for (zero, unit) in [("0s", 'm'), ("0m", 'h')] {
        if let Some(before) = text.strip_suffix(zero)
            && before.ends_with(unit)
        {
            text = before;
        }
    }
    text.to_owned()
}
