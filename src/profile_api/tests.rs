//! Tests of the API on a store in a temporary directory.

use std::time::UNIX_EPOCH;

use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyKind;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::profile_stores::StoreLease;
use tributary_profile_store::ProfileStoreOptions;
use tributary_profiles::dictionary::SampleKey;
use tributary_profiles::folded;
use tributary_profiles::model::Samples;

const CPU: &[u8] = include_bytes!("../../tests/profiles/cpu.pb.gz");
const MILLI: u64 = 1_000_000;

/// An API with a store, which is removed at the end.
pub(super) struct Fixture {
    pub(super) api: ProfileApi,
    pub(super) lease: StoreLease,
    /// Milliseconds since 1970 at the start of the test.
    pub(super) now: u64,
    _directory: TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let stores = ProfileStores::default();
        let options = ProfileStoreOptions {
            labels: vec!["service.version".to_owned()],
            ..ProfileStoreOptions::new(directory.path())
        };
        let id = "profile_store/a".parse().unwrap();
        let (lease, _) = stores.open(&id, &options).unwrap();
        lease.publish();
        Fixture {
            api: ProfileApi::new(stores, Budget::new(1 << 30)),
            lease,
            now: u64::try_from(UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap(),
            _directory: directory,
        }
    }

    /// Appends folded stacks of a service, from `seconds` ago.
    pub(super) fn append(&self, service: &str, version: &str, ago: u64, stacks: &str) {
        let mut profiles = folded::read(stacks).unwrap();
        let resource = &mut profiles.resources[0];
        let pairs = [("service.name", service), ("service.version", version)];
        let attribute = |(key, value): (&str, &str)| KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue {
                value: Some(AnyKind::StringValue(value.to_owned())),
            }),
            ..KeyValue::default()
        };
        resource.resource.as_mut().unwrap().attributes = pairs.map(attribute).to_vec();
        let header = &mut resource.scopes[0].profiles[0].header;
        header.time = (self.now - 1000 * ago) * MILLI;
        let store = self.lease.store();
        store.append(profiles.encode(), self.now * MILLI).unwrap();
    }

    /// Appends profiles of two services, 20 minutes and 1 minute old.
    pub(super) fn filled() -> Self {
        let fixture = Fixture::new();
        fixture.append("cart", "1", 1200, "main;parse 6\nmain;write 2\n");
        fixture.append("cart", "2", 60, "main;parse 3\nmain;send 9\n");
        fixture.append("shop", "1", 60, "main;sell 4\n");
        fixture
    }

    pub(super) async fn ask(&self, method: &str, path: &str, body: &[u8]) -> Response<Bytes> {
        let request = Request::builder().method(method).uri(path);
        let body = Bytes::copy_from_slice(body);
        self.api.handle(request.body(body).unwrap()).await
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.ask("GET", &format!("{PREFIX}{path}"), &[]).await;
        json_of(&answer, StatusCode::OK)
    }

    async fn refused(&self, path: &str, status: StatusCode) -> String {
        let answer = self.ask("GET", &format!("{PREFIX}{path}"), &[]).await;
        json_of(&answer, status)["error"]
            .as_str()
            .unwrap()
            .to_owned()
    }
}

pub(super) fn json_of(answer: &Response<Bytes>, status: StatusCode) -> Value {
    let text = String::from_utf8_lossy(answer.body());
    assert_eq!(answer.status(), status, "{text}");
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/json");
    serde_json::from_str(&text).unwrap()
}

/// Percent-encodes a parameter.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn frames(view: &Value) -> Vec<(String, i64, i64)> {
    let name = |frame: &Value| {
        let at = usize::try_from(frame["name"].as_u64().unwrap()).unwrap();
        view["names"][at].as_str().unwrap().to_owned()
    };
    let values = |frame: &Value| {
        let total = |at: usize| frame["total"][at].as_i64().unwrap();
        (name(frame), total(0), total(1))
    };
    view["frames"]
        .as_array()
        .unwrap()
        .iter()
        .map(values)
        .collect()
}

fn owned(frames: &[(&str, i64, i64)]) -> Vec<(String, i64, i64)> {
    let frames = frames.iter();
    frames
        .map(|(name, first, second)| ((*name).to_owned(), *first, *second))
        .collect()
}

#[tokio::test]
async fn stores_and_labels_are_listed() {
    let fixture = Fixture::filled();
    let stores = fixture.get("stores").await;
    let store = &stores["stores"][0];
    assert_eq!(store["id"], "profile_store/a");
    assert_eq!(store["series"], 3);
    assert_eq!(store["dropped"]["too_old"], 0);
    let oldest = store["oldest"].as_u64().unwrap();
    assert!(oldest <= fixture.now - 1_200_000 && oldest > fixture.now - 1_220_000);
    let types = fixture.get("types").await;
    assert_eq!(types["types"].as_array().unwrap().len(), 1);
    assert!(types["types"][0]["id"].as_str().unwrap().contains(':'));
    assert_eq!(
        fixture.get("labels").await["labels"],
        serde_json::json!(["service_name", "service_version"])
    );
    let values = fixture.get("labels/service_name/values").await;
    assert_eq!(values["values"], serde_json::json!(["cart", "shop"]));
    // The name of the attribute is accepted, too.
    for label in ["service_version", "service.version"] {
        let query = encoded("{service_name=\"cart\"}");
        let path = format!("labels/{label}/values?from=now-5m&query={query}");
        assert_eq!(fixture.get(&path).await["values"], serde_json::json!(["2"]));
    }
    let series = fixture.get("series?query=service_name%3D%22shop%22").await;
    assert_eq!(series["series"].as_array().unwrap().len(), 1);
    assert_eq!(series["series"][0]["labels"]["service_version"], "1");
}

#[tokio::test]
async fn totals_are_added_by_step_and_label() {
    let fixture = Fixture::filled();
    let totals = fixture
        .get("totals?step=2h&by=service_name&from=now-1h")
        .await;
    assert_eq!(totals["step"], 7_200_000);
    let sums = |totals: &Value| -> Vec<i64> {
        let series = totals["series"].as_array().unwrap().iter();
        series
            .map(|series| {
                let points = series["points"].as_array().unwrap().iter();
                points.map(|point| point[1].as_i64().unwrap()).sum()
            })
            .collect()
    };
    assert_eq!(sums(&totals), [20, 4]);
    let all = fixture.get("totals?by=").await;
    assert_eq!(sums(&all), [24]);
    // 240 steps at most, of whole windows.
    assert_eq!(all["step"], 20_000);
    let all = fixture.get("totals").await;
    assert_eq!(sums(&all), [8, 12, 4]);
}

#[tokio::test]
async fn flamegraph_has_frames_with_names_and_values() {
    let fixture = Fixture::filled();
    let query = encoded("{service_name=\"cart\"}");
    let view = fixture.get(&format!("flamegraph?query={query}")).await;
    let expected = [
        ("", 20, 0),
        ("main", 20, 0),
        ("parse", 9, 0),
        ("send", 9, 0),
        ("write", 2, 0),
    ];
    assert_eq!(frames(&view), owned(&expected));
    assert_eq!(
        (&view["compares"], &view["damaged"]),
        (&false.into(), &0.into())
    );
    assert_eq!(view["scales"], serde_json::json!([1.0, 1.0]));
    assert!(view["covered"][0].as_u64().unwrap() <= fixture.now - 1_200_000);
    let zoomed = encoded("[\"main\"]");
    let view = fixture
        .get(&format!(
            "flamegraph?query={query}&zoom={zoomed}&skip=1&max_frames=1"
        ))
        .await;
    assert_eq!(view["zoomed"], 1);
    assert_eq!(view["skipped"], 9.0);
    let frame = &view["frames"][3];
    assert_eq!((&frame["elided"], &frame["skip"]), (&1.into(), &2.into()));
    let nothing = fixture.get("flamegraph?query=service_name%3D%22x%22").await;
    assert_eq!(nothing["frames"], serde_json::json!([]));
    assert_eq!(nothing["compares"], false);
    let none = fixture
        .get("flamegraph?trace_id=0123456789abcdef0123456789abcdef")
        .await;
    assert_eq!(none["frames"], serde_json::json!([]));
}

#[tokio::test]
async fn diff_compares_ranges_and_series() {
    let fixture = Fixture::filled();
    let (cart, shop) = (
        encoded("{service_name=\"cart\"}"),
        encoded("{service_name=\"shop\"}"),
    );
    let view = fixture
        .get(&format!(
            "diff?query={cart}&from=now-5m&before_from=now-30m&before_until=now-5m"
        ))
        .await;
    let expected = [
        ("", 8, 12),
        ("main", 8, 12),
        ("parse", 6, 3),
        ("send", 0, 9),
        ("write", 2, 0),
    ];
    assert_eq!(frames(&view), owned(&expected));
    assert_eq!(view["compares"], true);
    assert_eq!(view["scales"], serde_json::json!([1.5, 1.0]));
    let view = fixture
        .get(&format!(
            "diff?query={cart}&before_query={shop}&normalize=none"
        ))
        .await;
    assert_eq!(view["scales"], serde_json::json!([1.0, 1.0]));
    assert_eq!(view["totals"], serde_json::json!([4, 20]));
    // One side may be empty.
    for (before, after, totals) in [("x", "shop", [0, 4]), ("shop", "x", [4, 0])] {
        let [before, after] =
            [before, after].map(|name| encoded(&format!("service_name=\"{name}\"")));
        let path = format!("diff?query={after}&before_query={before}");
        assert_eq!(
            fixture.get(&path).await["totals"],
            serde_json::json!(totals)
        );
    }
}

#[tokio::test]
async fn table_sorts_functions_by_self_or_total() {
    let fixture = Fixture::filled();
    let names = |table: &Value| -> Vec<String> {
        let rows = table["functions"].as_array().unwrap().iter();
        rows.map(|row| row["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let table = fixture.get("table").await;
    assert_eq!(table["total"], 24);
    assert_eq!(names(&table), ["parse", "send", "sell", "write", "main"]);
    let table = fixture.get("table?sort=total&limit=2").await;
    assert_eq!(names(&table), ["main", "parse"]);
    assert_eq!(table["count"], 5);
    assert_eq!(table["functions"][0]["self"], 0);
    assert_eq!(table["functions"][0]["total"], 24);
    let cart = encoded("{service_name=\"cart\"}");
    let table = fixture
        .get(&format!(
            "table?query={cart}&from=now-5m&before_from=now-30m&before_until=now-5m"
        ))
        .await;
    assert_eq!(names(&table), ["send", "parse", "main", "write"]);
    let parse = &table["functions"][1];
    assert_eq!(
        (&parse["self"], &parse["self_before"]),
        (&3.into(), &6.into())
    );
    assert_eq!(
        (&table["total"], &table["total_before"]),
        (&12.into(), &8.into())
    );
}

#[tokio::test]
async fn sandwich_has_callers_and_callees() {
    let fixture = Fixture::filled();
    let sandwich = fixture.get("sandwich?function=parse").await;
    let callers = [("", 9, 0), ("parse", 9, 0), ("main", 9, 0)];
    assert_eq!(frames(&sandwich["callers"]), owned(&callers));
    assert_eq!(frames(&sandwich["callees"]), owned(&callers[..2]));
    let error = fixture
        .refused("sandwich?function=nope", StatusCode::NOT_FOUND)
        .await;
    assert!(error.contains("`nope`"), "{error}");
}

#[tokio::test]
async fn downloads_are_files_with_the_same_values() {
    let fixture = Fixture::filled();
    let cart = encoded("{service_name=\"cart\"}");
    for (format, name, part) in [
        ("pprof", "profile.pb.gz", ""),
        ("folded", "profile.folded", "main;send 9\n"),
        ("svg", "profile.svg", "<svg"),
        ("html", "profile.html", "<!DOCTYPE html>"),
        ("speedscope", "profile.speedscope.json", "speedscope"),
        ("json", "profile.json", "\"frames\""),
    ] {
        let path = format!("{PREFIX}download?format={format}&query={cart}");
        let answer = fixture.ask("GET", &path, &[]).await;
        assert_eq!(answer.status(), StatusCode::OK, "{format}");
        let disposition = &answer.headers()[header::CONTENT_DISPOSITION];
        assert_eq!(disposition, &format!("attachment; filename=\"{name}\""));
        let text = String::from_utf8_lossy(answer.body());
        assert!(text.contains(part), "{format}: {text}");
        if format == "pprof" {
            // The written file can be read again.
            let path = format!("{PREFIX}view?as=table");
            let table = fixture.ask("POST", &path, answer.body()).await;
            assert_eq!(json_of(&table, StatusCode::OK)["total"], 20);
        }
    }
    let error = fixture
        .refused(
            "download?format=folded&before_from=now-2h",
            StatusCode::BAD_REQUEST,
        )
        .await;
    assert!(error.contains("comparison"), "{error}");
    let path = "download?format=svg&query=service_name%3D%22x%22";
    fixture.refused(path, StatusCode::NOT_FOUND).await;
}

#[tokio::test]
async fn heat_map_has_cells_of_samples_with_timestamps() {
    let fixture = Fixture::filled();
    let mut profiles = folded::read("main;a 1\n").unwrap();
    let second = fixture.now / 1000 - 60;
    let times = [second * 1000 * MILLI, (second * 1000 + 999) * MILLI];
    let mut samples = Samples::default();
    samples.push(SampleKey::default(), &[], &times);
    let profile = &mut profiles.resources[0].scopes[0].profiles[0];
    profile.samples = samples;
    profile.header.time = times[0];
    let store = fixture.lease.store();
    let appended = store.append(profiles.encode(), fixture.now * MILLI);
    appended.unwrap();
    let map = fixture.get("heatmap").await;
    let cells = serde_json::json!([[second, 0, 1], [second, 49, 1]]);
    assert_eq!(map, serde_json::json!({"rows": 50, "cells": cells}));
    let path = "heatmap?span_id=0123456789abcdef";
    fixture.refused(path, StatusCode::BAD_REQUEST).await;
}

#[tokio::test]
async fn uploaded_file_is_shown_and_not_kept() {
    let fixture = Fixture::new();
    let view = |path: &'static str, body: Vec<u8>| {
        let path = format!("{PREFIX}view{path}");
        let fixture = &fixture;
        async move { fixture.ask("POST", &path, &body).await }
    };
    let answer = json_of(&view("", CPU.to_vec()).await, StatusCode::OK);
    let types = answer["types"].as_array().unwrap();
    assert_eq!(types.len(), 2, "{types:?}");
    assert!(answer["totals"][0].as_i64().unwrap() > 0);
    let id = types.iter().find(|kind| kind["name"] == "samples").unwrap()["id"].clone();
    let path = "?type=samples:count&as=table&limit=3";
    assert_eq!(id, "samples:count");
    let table = json_of(&view(path, CPU.to_vec()).await, StatusCode::OK);
    assert_eq!(table["functions"].as_array().unwrap().len(), 3);
    assert!(
        table["functions"][0]["file"]
            .as_str()
            .unwrap()
            .contains(".go")
    );
    // OTLP in protobuf and in JSON.
    let request = folded::read("main;a 3\n").unwrap().encode();
    let json = tributary_otlp::json::from_wire(tributary_otlp::Signal::Profiles, &request).unwrap();
    for body in [request.to_vec(), json, b"main;a 3\n".to_vec()] {
        let answer = json_of(&view("?as=flamegraph", body).await, StatusCode::OK);
        assert_eq!(answer["totals"], serde_json::json!([3, 0]));
    }
    let sandwich = view("?as=sandwich&function=a", b"main;a 3\n".to_vec()).await;
    let sandwich = json_of(&sandwich, StatusCode::OK);
    assert_eq!(frames(&sandwich["callers"]).len(), 3);
    let wrong = view("?type=nope", CPU.to_vec()).await;
    let error = json_of(&wrong, StatusCode::BAD_REQUEST)["error"].to_string();
    assert!(error.contains("samples:count"), "{error}");
    let wrong = view("", b"\x1f\x8bnot gzip".to_vec()).await;
    json_of(&wrong, StatusCode::BAD_REQUEST);
    let wrong = view("", b"\xff\xfe\0".to_vec()).await;
    json_of(&wrong, StatusCode::BAD_REQUEST);
    assert_eq!(fixture.api.budget.used(), 0);
    assert_eq!(fixture.lease.store().stats().series, 0);
}

#[tokio::test]
async fn file_beyond_the_memory_budget_is_refused() {
    let fixture = Fixture::new();
    let api = ProfileApi::new(fixture.api.stores.clone(), Budget::new(64 << 10));
    let ask = |body: &'static [u8]| {
        let request = Request::post(format!("{PREFIX}view")).body(Bytes::from_static(body));
        api.handle(request.unwrap())
    };
    let answer = ask(CPU).await;
    let error = json_of(&answer, StatusCode::UNPROCESSABLE_ENTITY)["error"].to_string();
    assert!(error.contains("too large"), "{error}");
    let held = api.budget.acquire(60 << 10).unwrap();
    let answer = ask(b"main;a 3\nmain;b 1000000000\n\
        main;cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc 1\n\
        main;dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd 1\n\
        main;eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee 1\n").await;
    json_of(&answer, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers()[header::RETRY_AFTER], "1");
    drop(held);
}

#[tokio::test]
async fn wrong_requests_are_refused_with_a_hint() {
    let fixture = Fixture::filled();
    for (path, hint) in [
        ("flamegraph?nope=1", "unknown parameter `nope`"),
        ("flamegraph?from=now&from=now", "given twice"),
        ("flamegraph?query=%ff", "percent-encoded"),
        ("flamegraph?query=%7Ba%7D", "at byte 2"),
        ("flamegraph?query=a%3D~%22(%22", "the pattern of `a`"),
        ("flamegraph?from=yesterday", "`now-15m`"),
        ("flamegraph?from=now-1x", "`now-15m`"),
        ("flamegraph?from=now&until=now-1h", "before `until`"),
        ("flamegraph?max_frames=0", "from 1 to 100000"),
        ("flamegraph?zoom=main", "JSON array"),
        ("flamegraph?trace_id=12", "32 hexadecimal"),
        ("flamegraph?span_id=x", "16 hexadecimal"),
        ("totals?step=0s", "`15s`"),
        ("totals?step=1ms", "longer step"),
        ("diff?normalize=half", "total, none"),
        ("table?sort=name", "self, total"),
        ("sandwich", "`function`"),
        ("download?format=png", "speedscope"),
    ] {
        let error = fixture.refused(path, StatusCode::BAD_REQUEST).await;
        assert!(error.contains(hint), "{path}: {error}");
    }
    for (path, hint) in [
        ("nope", "flamegraph"),
        ("flamegraph?store=nope", "profile_store/a"),
        ("flamegraph?zoom=%5B%22nope%22%5D", "`nope`"),
    ] {
        let error = fixture.refused(path, StatusCode::NOT_FOUND).await;
        assert!(error.contains(hint), "{path}: {error}");
    }
    let answer = fixture.ask("POST", &format!("{PREFIX}stores"), &[]).await;
    assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(answer.headers()[header::ALLOW], "GET");
    let answer = fixture.ask("GET", &format!("{PREFIX}view"), &[]).await;
    assert_eq!(answer.headers()[header::ALLOW], "POST");
    let large = vec![0; MAX_BODY + 1];
    let answer = fixture.ask("POST", &format!("{PREFIX}view"), &large).await;
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn several_types_need_a_choice() {
    let fixture = Fixture::filled();
    let file = crate::profile_files::read_profiles(
        &{
            let mut permit = Budget::new(usize::MAX).empty_permit();
            let codec = tributary_compression::Codec::Gzip;
            tributary_compression::decompress::decompress(codec, CPU, 1 << 20, &mut permit).unwrap()
        },
        crate::profile_files::FileKind::Pprof,
        &Default::default(),
        &mut Budget::new(usize::MAX).empty_permit(),
    );
    let (mut profiles, _) = file.unwrap();
    for profile in &mut profiles.resources[0].scopes[0].profiles {
        profile.header.time = fixture.now * MILLI;
    }
    let store = fixture.lease.store();
    store
        .append(profiles.encode(), fixture.now * MILLI)
        .unwrap();
    let until = fixture.now + 20_000;
    let error = fixture
        .refused(
            &format!("flamegraph?until={until}"),
            StatusCode::BAD_REQUEST,
        )
        .await;
    assert!(error.contains("cpu:cpu:nanoseconds"), "{error}");
    let types = fixture.get(&format!("types?until={until}")).await;
    let types = types["types"].as_array().unwrap();
    assert_eq!(types.len(), 3, "{types:?}");
    let cpu = types.iter().find(|kind| kind["name"] == "cpu").unwrap();
    let id = encoded(cpu["id"].as_str().unwrap());
    let view = fixture
        .get(&format!("flamegraph?until={until}&type={id}"))
        .await;
    // The same result as the command line for the same file.
    let kind = tributary_profiles::top::sample_type(&profiles, Some("cpu")).unwrap();
    let top = tributary_profiles::top::top(&profiles, kind, &Default::default());
    assert_eq!(view["totals"][0], top.total);
    let table = fixture
        .get(&format!("table?until={until}&type={id}&limit=100000"))
        .await;
    let rows = table["functions"].as_array().unwrap();
    for expected in &top.rows {
        let row = rows
            .iter()
            .find(|row| row["name"] == expected.name.as_str());
        let row = row.unwrap_or_else(|| panic!("{}", expected.name));
        assert_eq!(row["self"], expected.flat, "{}", expected.name);
        assert_eq!(row["total"], expected.cumulative, "{}", expected.name);
    }
}

#[tokio::test]
async fn query_beyond_its_time_or_memory_is_refused() {
    let mut fixture = Fixture::filled();
    fixture.api.time = Duration::ZERO;
    let error = fixture
        .refused("flamegraph", StatusCode::UNPROCESSABLE_ENTITY)
        .await;
    assert!(error.contains("shorter range"), "{error}");
    fixture.api.time = TIME;
    let small = ProfileStoreOptions {
        max_memory: 1 << 20,
        ..ProfileStoreOptions::clone(&fixture.lease.store().options())
    };
    let stacks: String = (0..4000).map(|at| format!("main;f{at:060} 1\n")).collect();
    fixture.append("large", "1", 60, &stacks);
    fixture.lease.store().reconfigure(small).unwrap();
    let error = fixture
        .refused("flamegraph", StatusCode::UNPROCESSABLE_ENTITY)
        .await;
    assert!(error.contains("bytes of memory"), "{error}");
}

#[tokio::test]
async fn requests_beyond_the_waiting_line_are_refused() {
    let fixture = Fixture::filled();
    let turns = fixture.api.turns.clone();
    let all = u32::try_from(turns.available_permits()).unwrap();
    let running = turns.acquire_many_owned(all).await.unwrap();
    let waiting = fixture
        .api
        .waiting
        .acquire_many(WAITING as u32)
        .await
        .unwrap();
    let answer = fixture.ask("GET", &format!("{PREFIX}stores"), &[]).await;
    let error = json_of(&answer, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        error["error"]
            .as_str()
            .unwrap()
            .contains("retry in a second")
    );
    assert_eq!(answer.headers()[header::RETRY_AFTER], "1");
    drop(waiting);
    let asked = fixture.get("stores");
    let (stores, ()) = tokio::join!(asked, async move { drop(running) });
    assert_eq!(stores["stores"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn missing_store_error_names_the_exporter() {
    let api = ProfileApi::new(ProfileStores::default(), Budget::new(1 << 20));
    let ask = |path: &str| {
        let request = Request::get(format!("{PREFIX}{path}")).body(Bytes::new());
        api.handle(request.unwrap())
    };
    let stores = json_of(&ask("stores").await, StatusCode::OK);
    assert_eq!(stores["stores"], serde_json::json!([]));
    let error = json_of(&ask("types").await, StatusCode::NOT_FOUND);
    assert!(error["error"].as_str().unwrap().contains("profile_store"));
}
