//! Tests of Pyroscope's query API.

use http::{Request, header};
use opentelemetry_proto::tonic::profiles::v1development::Link;
use prost::Message;
use serde_json::{Value, json as value};

use super::super::tests::{Fixture, json_of};
use super::super::{PREFIX, PYROSCOPE_PREFIX};
use super::call::{JSON, LARGEST_REQUEST};
use super::messages::{
    LabelValuesRequest, NamesResponse, ProfileTypesRequest, ProfileTypesResponse,
};
use super::*;
use tributary_compression::Codec;

/// Sends a request in JSON.
async fn ask(fixture: &Fixture, method: &str, request: &Value) -> Response<Bytes> {
    send(fixture, method, JSON, request.to_string().into()).await
}

async fn send(fixture: &Fixture, method: &str, content_type: &str, body: Bytes) -> Response<Bytes> {
    let request = Request::post(format!("{PYROSCOPE_PREFIX}{method}"))
        .header(header::CONTENT_TYPE, content_type)
        .header("connect-protocol-version", "1");
    fixture.api.handle(request.body(body).unwrap()).await
}

async fn get(fixture: &Fixture, method: &str, request: Value) -> Value {
    json_of(&ask(fixture, method, &request).await, StatusCode::OK)
}

/// Sends a request in protobuf, and returns the response.
async fn proto<A: Message + Default>(fixture: &Fixture, method: &str, request: &impl Message) -> A {
    let answer = send(fixture, method, PROTO, request.encode_to_vec().into()).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()[header::CONTENT_TYPE], PROTO);
    A::decode(&**answer.body()).unwrap()
}

async fn type_id(fixture: &Fixture) -> String {
    let types = get(fixture, "ProfileTypes", value!({})).await;
    types["profileTypes"][0]["ID"].as_str().unwrap().to_owned()
}

/// Times of the last five minutes, as texts.
fn recent(fixture: &Fixture) -> (String, String) {
    let end = fixture.now + 20_000;
    ((end - 320_000).to_string(), end.to_string())
}

#[tokio::test]
async fn types_and_labels_are_listed_in_both_encodings() {
    let fixture = Fixture::filled();
    let types = get(&fixture, "ProfileTypes", value!({"start": "0", "end": 0})).await;
    let first = &types["profileTypes"][0];
    let parts: Vec<&str> = first["ID"].as_str().unwrap().split(':').collect();
    assert_eq!(parts.len(), 5);
    assert_eq!(first["name"], parts[0]);
    assert_eq!(first["sampleType"], parts[1]);
    assert_eq!(first["sampleUnit"], parts[2]);
    let request = ProfileTypesRequest::default();
    let types: ProfileTypesResponse = proto(&fixture, "ProfileTypes", &request).await;
    assert_eq!(types.profile_types[0].id, first["ID"].as_str().unwrap());

    let names = get(&fixture, "LabelNames", value!({})).await;
    let names = names["names"].as_array().unwrap();
    assert!(names.contains(&"service_name".into()) && names.contains(&"__profile_type__".into()));
    let request = value!({"name": "service_name", "matchers": ["{service_version=\"1\"}"]});
    let values = get(&fixture, "LabelValues", request).await;
    assert_eq!(values["names"], value!(["cart", "shop"]));
    let (start, end) = recent(&fixture);
    let request = LabelValuesRequest {
        name: "service_version".to_owned(),
        matchers: vec!["{service_name=\"cart\"}".to_owned()],
        start: start.parse().unwrap(),
        end: end.parse().unwrap(),
    };
    let values: NamesResponse = proto(&fixture, "LabelValues", &request).await;
    assert_eq!(values.names, ["2"]);

    let request = value!({"labelNames": ["service_name"], "matchers": []});
    let series = get(&fixture, "Series", request).await;
    let set = |name: &str| value!({"labels": [{"name": "service_name", "value": name}]});
    assert_eq!(series["labelsSet"], value!([set("cart"), set("shop")]));
    let stats = get(&fixture, "GetProfileStats", value!({})).await;
    assert_eq!(stats["dataIngested"], true);
    let oldest: u64 = stats["oldestProfileTime"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(oldest > fixture.now - 1_220_000 && oldest <= fixture.now - 1_200_000);
}

#[tokio::test]
async fn merged_stacks_are_levels_of_numbers() {
    let fixture = Fixture::filled();
    let id = type_id(&fixture).await;
    let request = value!({"profileTypeID": id, "labelSelector": "{service_name=\"cart\"}"});
    let answer = get(&fixture, "SelectMergeStacktraces", request).await;
    let graph = &answer["flamegraph"];
    assert_eq!(
        (&graph["total"], &graph["maxSelf"]),
        (&"20".into(), &"9".into())
    );
    let names: Vec<&str> = graph["names"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    let level = |at: usize| -> Vec<(i64, i64, i64, &str)> {
        let values = graph["levels"][at]["values"].as_array().unwrap();
        let number = |value: &Value| value.as_str().unwrap().parse::<i64>().unwrap();
        let frame = |frame: &[Value]| {
            let name = names[usize::try_from(number(&frame[3])).unwrap()];
            (
                number(&frame[0]),
                number(&frame[1]),
                number(&frame[2]),
                name,
            )
        };
        values.chunks(4).map(frame).collect()
    };
    assert_eq!(level(0), [(0, 20, 0, "total")]);
    assert_eq!(level(1), [(0, 20, 0, "main")]);
    assert_eq!(
        level(2),
        [(0, 9, 9, "parse"), (0, 9, 9, "send"), (0, 2, 2, "write")]
    );
    assert_eq!(graph["levels"].as_array().unwrap().len(), 3);
    let request = MergeStacktracesRequest {
        profile_type_id: id.clone(),
        max_nodes: Some(2),
        ..MergeStacktracesRequest::default()
    };
    let answer: MergeStacktracesResponse =
        proto(&fixture, "SelectMergeStacktraces", &request).await;
    let graph = answer.flamegraph.unwrap();
    assert_eq!((graph.total, graph.levels.len()), (24, 3));
    let last = graph.levels[2].values.chunks(4).last().unwrap().to_vec();
    assert_eq!(graph.names[usize::try_from(last[3]).unwrap()], "other");
    let nothing = value!({"profileTypeID": id, "labelSelector": "{service_name=\"x\"}"});
    let answer = get(&fixture, "SelectMergeStacktraces", nothing).await;
    assert_eq!(answer["flamegraph"]["total"], "0");
}

#[tokio::test]
async fn distances_are_relative_to_previous_frame_of_level() {
    let fixture = Fixture::new();
    // The callee of `b` begins behind the width of `a` and the own value of `b`.
    fixture.append("cart", "1", 10, "a 5\nb 1\nb;c 2\n");
    let answer = get(&fixture, "SelectMergeStacktraces", value!({})).await;
    let levels = &answer["flamegraph"]["levels"];
    let numbers = |at: usize| levels[at]["values"].as_array().unwrap().clone();
    assert_eq!(numbers(1)[..3], ["0", "5", "5"]);
    assert_eq!(numbers(1)[4..7], ["0", "3", "1"]);
    assert_eq!(numbers(2)[..3], ["6", "2", "2"]);
}

#[tokio::test]
async fn diff_has_both_sides() {
    let fixture = Fixture::filled();
    let id = type_id(&fixture).await;
    let side = |service: &str| value!({"profileTypeID": id, "labelSelector": format!("{{service_name=\"{service}\"}}")});
    let request = value!({"left": side("shop"), "right": side("cart")});
    let answer = get(&fixture, "Diff", request).await;
    let graph = &answer["flamegraph"];
    assert_eq!(graph["leftTicks"], "4");
    assert_eq!(graph["rightTicks"], "20");
    assert_eq!(graph["total"], "24");
    let main = graph["levels"][1]["values"].as_array().unwrap();
    assert_eq!(main[..6], ["0", "4", "0", "0", "20", "0"]);
    let request = value!({"left": side("shop")});
    let answer = ask(&fixture, "Diff", &request).await;
    assert_eq!(
        json_of(&answer, StatusCode::BAD_REQUEST)["code"],
        "invalid_argument"
    );
}

#[tokio::test]
async fn series_have_points_per_step() {
    let fixture = Fixture::filled();
    let id = type_id(&fixture).await;
    let (start, end) = recent(&fixture);
    let request = value!({
        "profileTypeID": id, "labelSelector": "{}", "start": start, "end": end,
        "groupBy": ["service_name"], "step": 3600.0, "limit": "1",
    });
    let answer = get(&fixture, "SelectSeries", request).await;
    let series = answer["series"].as_array().unwrap();
    assert_eq!(series.len(), 1);
    assert_eq!(
        series[0]["labels"],
        value!([{"name": "service_name", "value": "cart"}])
    );
    let values = series[0]["points"].as_array().unwrap().iter();
    let sum: f64 = values.map(|point| point["value"].as_f64().unwrap()).sum();
    assert_eq!(sum, 12.0);
    for wrong in [
        value!({"start": start, "end": end, "step": 0}),
        value!({"start": start, "end": end, "step": "x"}),
        value!({"start": end, "end": start, "step": 15}),
    ] {
        let answer = ask(&fixture, "SelectSeries", &wrong).await;
        let error = json_of(&answer, StatusCode::BAD_REQUEST);
        assert_eq!(error["code"], "invalid_argument", "{wrong}");
    }
    let average = value!({
        "step": 15, "start": start, "end": end,
        "aggregation": "TIME_SERIES_AGGREGATION_TYPE_AVERAGE",
    });
    let answer = ask(&fixture, "SelectSeries", &average).await;
    assert_eq!(
        json_of(&answer, StatusCode::NOT_IMPLEMENTED)["code"],
        "unimplemented"
    );
}

#[tokio::test]
async fn merged_profile_is_a_pprof_file() {
    let fixture = Fixture::filled();
    let id = type_id(&fixture).await;
    let request = MergeProfileRequest {
        profile_type_id: id.clone(),
        ..MergeProfileRequest::default()
    };
    let answer = send(
        &fixture,
        "SelectMergeProfile",
        PROTO,
        request.encode_to_vec().into(),
    )
    .await;
    assert_eq!(answer.status(), StatusCode::OK);
    let file = answer.body().clone();
    let view = fixture.ask("POST", &format!("{PREFIX}view"), &file).await;
    assert_eq!(json_of(&view, StatusCode::OK)["totals"], value!([24, 0]));
    let profile = get(
        &fixture,
        "SelectMergeProfile",
        value!({"profileTypeID": id}),
    )
    .await;
    let samples = profile["sample"].as_array().unwrap().iter();
    let sum: i64 = samples
        .map(|sample| sample["value"][0].as_str().unwrap().parse::<i64>().unwrap())
        .sum();
    assert_eq!(sum, 24);
    let names = profile["stringTable"].as_array().unwrap();
    assert!(names.contains(&"parse".into()));
    let functions = profile["function"].as_array().unwrap().len();
    assert_eq!(functions, 5);
}

/// Appends a profile of two samples, each linked to its own span.
fn append_linked(fixture: &Fixture) {
    let time = (fixture.now - 60_000) * NANOS_PER_MILLI;
    let mut request = tributary_profiles::testing_requests::named("cart", time, ["a", "b"]);
    let links = &mut request.dictionary.as_mut().unwrap().link_table;
    links.extend([1, 2].map(|span| Link {
        trace_id: vec![9; 16],
        span_id: vec![span; 8],
    }));
    let samples = &mut request.resource_profiles[0].scope_profiles[0].profiles[0].samples;
    for (sample, link) in samples.iter_mut().zip([1, 2]) {
        sample.link_index = link;
        sample.values = vec![10 * i64::from(link)];
    }
    let now = fixture.now * NANOS_PER_MILLI;
    let store = fixture.lease.store();
    store.append(request.encode_to_vec().into(), now).unwrap();
}

#[tokio::test]
async fn stacks_of_spans_are_merged_in_both_encodings() {
    let fixture = Fixture::new();
    append_linked(&fixture);
    let total = async |spans: Value| {
        let request = value!({"spanSelector": spans, "labelSelector": "{}"});
        get(&fixture, "SelectMergeSpanProfile", request).await["flamegraph"]["total"].clone()
    };
    assert_eq!(total(value!(["0101010101010101"])).await, "10");
    assert_eq!(
        total(value!(["0101010101010101", "0202020202020202"])).await,
        "30"
    );
    assert_eq!(total(value!([])).await, "0");
    let request = MergeSpanProfileRequest {
        span_selector: vec!["0202020202020202".to_owned()],
        label_selector: "{}".to_owned(),
        ..MergeSpanProfileRequest::default()
    };
    let answer: MergeStacktracesResponse =
        proto(&fixture, "SelectMergeSpanProfile", &request).await;
    assert_eq!(answer.flamegraph.unwrap().total, 20);
    let wrong = value!({"spanSelector": ["xyz"]});
    let answer = ask(&fixture, "SelectMergeSpanProfile", &wrong).await;
    let message = json_of(&answer, StatusCode::BAD_REQUEST)["message"].to_string();
    assert!(message.contains("16 hexadecimal digits"), "{message}");
}

#[tokio::test]
async fn field_numbers_match_proto_files() {
    let fixture = Fixture::filled();
    let id = type_id(&fixture).await;
    let selector = "{service_name=\"shop\"}";
    // Type, selector, start and end, written by hand.
    let mut body = vec![0x0a, u8::try_from(id.len()).unwrap()];
    body.extend_from_slice(id.as_bytes());
    body.extend_from_slice(&[0x12, u8::try_from(selector.len()).unwrap()]);
    body.extend_from_slice(selector.as_bytes());
    body.extend_from_slice(&[0x18, 1, 0x20]);
    body.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0x3f]);
    let answer = send(&fixture, "SelectMergeStacktraces", PROTO, body.into()).await;
    assert_eq!(answer.status(), StatusCode::OK);
    // The total of the graph is its field 3, the largest own value field 4.
    let end = &answer.body()[answer.body().len() - 4..];
    assert_eq!(end, [0x18, 4, 0x20, 4]);
    assert_eq!(answer.body()[0], 0x0a);
}

#[tokio::test]
async fn wrong_calls_have_codes_of_connect() {
    let fixture = Fixture::filled();
    let code = |answer: Response<Bytes>, status| json_of(&answer, status)["code"].clone();
    let answer = ask(&fixture, "Nope", &value!({})).await;
    assert_eq!(code(answer, StatusCode::NOT_IMPLEMENTED), "unimplemented");
    for request in [
        value!({"labelSelector": "{a}"}),
        value!({"start": "-5"}),
        value!({"start": {}}),
        value!({"format": "PROFILE_FORMAT_NOPE"}),
        value!("{}"),
    ] {
        let answer = ask(&fixture, "SelectMergeStacktraces", &request).await;
        let found = code(answer, StatusCode::BAD_REQUEST);
        assert_eq!(found, "invalid_argument", "{request}");
    }
    for request in [
        value!({"format": "PROFILE_FORMAT_TREE"}),
        value!({"stackTraceSelector": {"callSite": [{"name": "main"}]}}),
        value!({"profileIdSelector": ["7c9e6679-7425-40de-944b-e07fc1f90ae7"]}),
    ] {
        let answer = ask(&fixture, "SelectMergeStacktraces", &request).await;
        let found = code(answer, StatusCode::NOT_IMPLEMENTED);
        assert_eq!(found, "unimplemented", "{request}");
    }
    let answer = send(&fixture, "ProfileTypes", "text/plain", Bytes::new()).await;
    json_of(&answer, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let answer = send(&fixture, "ProfileTypes", PROTO, Bytes::from_static(b"\xff")).await;
    assert_eq!(code(answer, StatusCode::BAD_REQUEST), "invalid_argument");
    let large = Bytes::from(vec![b' '; LARGEST_REQUEST + 1]);
    let answer = send(&fixture, "ProfileTypes", JSON, large).await;
    assert_eq!(
        code(answer, StatusCode::TOO_MANY_REQUESTS),
        "resource_exhausted"
    );
    let path = format!("{PYROSCOPE_PREFIX}ProfileTypes");
    let answer = fixture.ask("GET", &path, &[]).await;
    assert_eq!(answer.headers()[header::ALLOW], "POST");
}

#[tokio::test]
async fn compressed_request_is_decompressed() {
    let fixture = Fixture::filled();
    let gzip = tributary_compression::compress::Compressor::new(Codec::Gzip, None);
    let body = gzip.compress(&[Bytes::from_static(b"{}")]).unwrap();
    let request = Request::post(format!("{PYROSCOPE_PREFIX}ProfileTypes"))
        .header(header::CONTENT_TYPE, "application/json; charset=utf-8")
        .header(header::CONTENT_ENCODING, "gzip");
    let answer = fixture.api.handle(request.body(body).unwrap()).await;
    json_of(&answer, StatusCode::OK);
}
