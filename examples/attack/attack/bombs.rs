//! Small requests that expand to large ones.

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Location, Profile, ProfilesDictionary, ResourceProfiles,
    Sample, ScopeProfiles, Stack,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use super::report::Finding;
use super::target::{Answer, Side, Target};
use super::{Deadline, Signal, attacks, codec, raw};

/// Requests in flight at the same time.
const AT_ONCE: usize = 8;
/// Most bytes of a gRPC message by default, decompressed.
const GRPC_MOST: usize = (4 << 20) - 1024;

/// A request of an attack.
struct Shot {
    signal: Signal,
    /// The `Content-Type`; gRPC if `None`.
    content: Option<&'static str>,
    encoding: &'static str,
    /// The encoded body, or its parts.
    body: Body,
}

#[derive(Clone)]
enum Body {
    Plain(Bytes),
    Compressed(Bytes),
}

const PROTOBUF: Option<&str> = Some("application/x-protobuf");
const JSON: Option<&str> = Some("application/json");

/// A request in OTLP/JSON of about this many bytes, of empty items.
fn json_bomb(signal: Signal, bytes: usize) -> Vec<u8> {
    let [resources, scopes, items] = match signal {
        Signal::Traces => ["resourceSpans", "scopeSpans", "spans"],
        Signal::Metrics => ["resourceMetrics", "scopeMetrics", "metrics"],
        Signal::Logs => ["resourceLogs", "scopeLogs", "logRecords"],
        Signal::Profiles => ["resourceProfiles", "scopeProfiles", "profiles"],
    };
    let many = ",{}".repeat(bytes.saturating_sub(100) / 3);
    format!(r#"{{"{resources}":[{{"{scopes}":[{{"{items}":[{{}}{many}]}}]}}]}}"#).into_bytes()
}

/// Requests of profiles of about this many bytes, in which an index stands for a long string or a deep stack.
fn index_bombs(bytes: usize) -> Vec<Vec<u8>> {
    let count = bytes / 64;
    let sample = Sample {
        stack_index: 1,
        values: vec![1],
        ..Sample::default()
    };
    let profile = |samples: usize| Profile {
        samples: vec![sample.clone(); samples],
        ..Profile::default()
    };
    let dictionary = |name: usize, depth: usize| ProfilesDictionary {
        mapping_table: vec![Default::default()],
        link_table: vec![Default::default()],
        string_table: vec![String::new(), "n".repeat(name.max(1))],
        function_table: vec![
            Function::default(),
            Function {
                name_strindex: 1,
                ..Function::default()
            },
        ],
        location_table: vec![
            Location::default(),
            Location {
                lines: vec![Line {
                    function_index: 1,
                    ..Line::default()
                }],
                ..Location::default()
            },
        ],
        stack_table: vec![
            Stack::default(),
            Stack {
                location_indices: vec![1; depth],
            },
        ],
        attribute_table: vec![
            KeyValueAndUnit::default(),
            KeyValueAndUnit {
                key_strindex: 1,
                value: Some(AnyValue {
                    value: Some(Value::StringValueStrindex(1)),
                }),
                unit_strindex: 1,
            },
        ],
    };
    let with = |resource, profiles, dictionary| {
        let scope = ScopeProfiles {
            profiles,
            ..ScopeProfiles::default()
        };
        let resource = ResourceProfiles {
            resource,
            scope_profiles: vec![scope],
            ..ResourceProfiles::default()
        };
        ExportProfilesServiceRequest {
            resource_profiles: vec![resource],
            dictionary: Some(dictionary),
        }
        .encode_to_vec()
    };
    let attributes = Resource {
        attributes: vec![
            KeyValue {
                key_strindex: 1,
                value: Some(AnyValue {
                    value: Some(Value::StringValueStrindex(1)),
                }),
                ..KeyValue::default()
            };
            count
        ],
        ..Resource::default()
    };
    let mut indexed = profile(1);
    indexed.attribute_indices = vec![1; bytes / 4];
    vec![
        with(None, vec![profile(count)], dictionary(bytes / 4, bytes / 4)),
        with(Some(attributes), vec![profile(1)], dictionary(bytes / 4, 1)),
        with(None, vec![indexed], dictionary(bytes / 4, 1)),
        with(
            None,
            vec![profile(1); count],
            dictionary(bytes / 4, bytes / 4),
        ),
    ]
}

/// Requests of millions of empty messages, in every encoding.
pub async fn empty_items(target: &Target, signal: Signal) -> Vec<Finding> {
    let bytes = target.options.items * 2;
    let mut plain: Vec<(Option<&'static str>, Bytes)> = Vec::new();
    for body in attacks::bombs(signal, bytes) {
        plain.push((PROTOBUF, body.into()));
    }
    plain.push((JSON, json_bomb(signal, bytes).into()));
    for body in attacks::bombs(signal, bytes.min(GRPC_MOST)) {
        plain.push((None, body.into()));
    }
    let mut shots = Vec::new();
    for encoding in codec::HTTP {
        for (content, body) in &plain {
            if content.is_some() || codec::GRPC.contains(&encoding) {
                shots.push(Shot {
                    signal,
                    content: *content,
                    encoding,
                    body: Body::Plain(body.clone()),
                });
            }
        }
    }
    answers(target, shots).await.findings()
}

/// Profiles in which indices stand for long strings and deep stacks.
pub async fn indices(target: &Target) -> Vec<Finding> {
    let bytes = target.options.items * 2;
    let of_size = |content, bytes| {
        let bodies = index_bombs(bytes).into_iter();
        bodies.map(move |body| Shot {
            signal: Signal::Profiles,
            content,
            encoding: "gzip",
            body: Body::Plain(body.into()),
        })
    };
    let shots = of_size(PROTOBUF, bytes).chain(of_size(None, bytes.min(GRPC_MOST)));
    answers(target, shots.collect()).await.findings()
}

/// Bodies that are above every limit when decompressed, by every codec.
pub async fn compressed(target: &Target) -> Vec<Finding> {
    let Some(&signal) = target.signals.first() else {
        return Vec::new();
    };
    let mut shots = Vec::new();
    for encoding in codec::HTTP {
        if encoding == "identity" {
            continue;
        }
        let body = Bytes::from(attacks::zeros(encoding));
        for content in [PROTOBUF, None].repeat(4) {
            if content.is_none() && !codec::GRPC.contains(&encoding) {
                continue;
            }
            shots.push(Shot {
                signal,
                content,
                encoding,
                body: Body::Compressed(body.clone()),
            });
        }
    }
    let answers = answers(target, shots).await;
    let accepted = answers.0.iter().filter(|one| one.is_accepted());
    let accepted = Finding::none_of("bombs accepted", accepted.count());
    [vec![accepted], answers.findings()].concat()
}

/// pprof files in which one to three bytes decode to a struct.
pub async fn pprof_files(target: &Target) -> Vec<Finding> {
    let Some(address) = target.options.pprof else {
        return Vec::new();
    };
    let files = attacks::pprof_bombs(target.options.items * 2);
    let end = Deadline::start(&target.options);
    let posts = files.into_iter().cycle().take(2 * AT_ONCE).map(|file| {
        let post = target.post(address, "/v1/pprof", &[], file.into(), Side::Attacker);
        end.within(post)
    });
    let answers = stream::iter(posts).buffer_unordered(AT_ONCE);
    Answers::of(answers.collect::<Vec<_>>().await).findings()
}

/// Sends several requests concurrently. Requests without a response at the deadline are cancelled.
async fn answers(target: &Target, shots: Vec<Shot>) -> Answers {
    let end = Deadline::start(&target.options);
    let sent = shots.into_iter().map(|shot| async move {
        match end.has_passed() {
            true => None,
            false => end.within(send(target, shot)).await,
        }
    });
    let answers = stream::iter(sent).buffer_unordered(AT_ONCE);
    Answers::of(answers.collect::<Vec<_>>().await)
}

/// Responses to the requests of an attack, without connections that ended before a response.
struct Answers(Vec<Answer>);

impl Answers {
    fn of(answers: Vec<Option<Result<Answer, String>>>) -> Self {
        Answers(answers.into_iter().flatten().flatten().collect())
    }

    /// Expects each response to be an acceptance or a refusal.
    fn findings(&self) -> Vec<Finding> {
        let unexpected = self.0.iter().filter(|answer| {
            let refused = match answer.grpc {
                // INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED, UNAVAILABLE.
                Some(code) => [3, 8, 12, 14].contains(&code),
                None => [204, 400, 413, 415, 429, 503].contains(&answer.status),
            };
            !answer.is_accepted() && !refused
        });
        vec![
            Finding::none_of("unexpected answers", unexpected.count()),
            Finding::none_of("attacks without an answer", usize::from(self.0.is_empty())),
        ]
    }
}

async fn send(target: &Target, shot: Shot) -> Result<Answer, String> {
    let (side, options) = (Side::Attacker, &target.options);
    let (encoding, is_grpc) = (shot.encoding, shot.content.is_none());
    let body = move || {
        let body = match shot.body {
            Body::Compressed(body) => body,
            Body::Plain(plain) => codec::compress(encoding, &plain).into(),
        };
        match is_grpc {
            true => raw::frame(encoding != "identity", &body).into(),
            false => body,
        }
    };
    let body: Bytes = tokio::task::spawn_blocking(body)
        .await
        .map_err(|error| error.to_string())?;
    match (shot.content, options.grpc, options.http) {
        (None, Some(address), _) => {
            target
                .call(address, shot.signal, shot.encoding, body, side)
                .await
        }
        (Some(content), _, Some(address)) => {
            let headers = [
                ("content-type", content),
                ("content-encoding", shot.encoding),
            ];
            let path = raw::path(shot.signal);
            target.post(address, path, &headers, body, side).await
        }
        _ => Err("there is no such server".to_owned()),
    }
}
