use super::*;
use crate::component::Host;

fn config(yaml: &str) -> Config {
    serde_yaml::from_str(yaml).unwrap()
}

/// Applies the settings to a request with the headers `a: before` and `b: before`.
fn applied(yaml: &str, context: &[(&str, &[&str])]) -> Vec<(String, String)> {
    let id = "headers_setter".parse().unwrap();
    let extension = config(yaml).build(&Host::for_tests().context(&id)).unwrap();
    let before = HeaderValue::from_static("before");
    let mut headers = HeaderMap::from_iter([
        (HeaderName::from_static("a"), before.clone()),
        (HeaderName::from_static("b"), before),
    ]);
    let owned = |(name, values): &(&str, &[&str])| {
        let values = values.iter().map(|value| (*value).to_owned());
        ((*name).to_owned(), values.collect())
    };
    let context = context.iter().map(owned).collect();
    let auth = extension.services.client_auth.unwrap();
    auth.add_for(&context, &mut headers);
    let pairs = headers.iter();
    let mut pairs: Vec<_> = pairs
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    pairs.sort_unstable();
    pairs
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

#[test]
fn actions_look_at_existing_headers() {
    let yaml = "headers: [{key: A, action: insert, value: x}, {key: c, action: insert, value: x}, \
                {key: b, action: update, value: x}, {key: d, action: update, value: x}, {key: e, value: x}]";
    let expected = [("a", "before"), ("b", "x"), ("c", "x"), ("e", "x")];
    assert_eq!(applied(yaml, &[]), owned(&expected));
    let yaml = "headers: [{key: a, action: delete}, {key: c, action: delete}]";
    assert_eq!(applied(yaml, &[]), owned(&[("b", "before")]));
}

#[test]
fn headers_of_the_client_are_copied_or_replaced_by_defaults() {
    let yaml = "headers: [{key: a, from_context: Tenant}, {key: b, from_context: team, default_value: none}, \
                {key: c, from_context: missing}]";
    let context: [(&str, &[&str]); 1] = [("tenant", &["acme", "other"])];
    assert_eq!(
        applied(yaml, &context),
        owned(&[("a", "acme"), ("b", "none")])
    );
}

#[test]
fn values_are_masked() {
    let yaml =
        "headers: [{key: a, value: s3cret}, {key: b, from_context: c, default_value: s3cret}]";
    let settings = config(yaml);
    let shown = serde_yaml::to_string(&settings).unwrap();
    assert!(
        !format!("{settings:?}{shown}").contains("s3cret"),
        "{shown}"
    );
    let id = "headers_setter".parse().unwrap();
    let extension = settings.build(&Host::for_tests().context(&id)).unwrap();
    let auth = extension.services.client_auth.unwrap();
    for context in [vec![], vec![("c".to_owned(), vec!["x".to_owned()])]] {
        let mut headers = HeaderMap::new();
        auth.add_for(&context.into_iter().collect(), &mut headers);
        assert_eq!(headers.len(), 2);
        assert!(headers.values().all(HeaderValue::is_sensitive));
    }
}

#[test]
fn value_that_is_no_header_is_not_copied() {
    let yaml = "headers: [{key: a, from_context: tenant, default_value: none}]";
    let context: [(&str, &[&str]); 1] = [("tenant", &["a\r\nx: y"])];
    assert_eq!(
        applied(yaml, &context),
        owned(&[("a", "none"), ("b", "before")])
    );
}

#[test]
fn wrong_settings_are_reported_at_their_keys() {
    let yaml = "headers: [{value: x}, {key: te, value: x}, {key: a}, {key: a, value: x, from_context: b}, \
                {key: a, action: delete, value: x}, {key: a, value: x, default_value: y}, {key: a, value: \"\\n\"}]";
    let mut problems = Problems::default();
    config(yaml).validate(&mut problems);
    let paths: Vec<String> = problems
        .found()
        .iter()
        .map(|found| found.path.join("."))
        .collect();
    assert_eq!(
        paths,
        [
            "headers.0.key",
            "headers.1.key",
            "headers.2.value",
            "headers.3.from_context",
            "headers.4.value",
            "headers.5.default_value",
            "headers.6.value",
        ]
    );
}
