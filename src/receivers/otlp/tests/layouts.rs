//! Profiles in the layouts of OTLP before 1.10 are refused, with a response that names the cause and the fix.

use super::*;
use tributary_otlp::reader::put_varint;

const PROFILES: &str =
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

fn field(number: u64, body: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    put_varint(number << 3 | 2, &mut output);
    put_varint(body.len() as u64, &mut output);
    output.extend_from_slice(body);
    output
}

fn request_of(profile: &[u8]) -> Vec<u8> {
    field(1, &field(2, &field(2, profile)))
}

/// Old layouts: those whose fields have other types now, and one that decodes as if it were current.
fn old() -> Vec<(&'static str, Vec<u8>)> {
    // Stack 1, value 5; in 1.10 that is the attribute 5.
    let values = field(2, &[8, 1, 18, 1, 5]);
    // The same with attributes, which are the link in 1.10.
    let attributes = field(2, &[8, 1, 18, 1, 5, 26, 1, 1]);
    // Start of the sample's locations, their number, and the value.
    let ranges = [field(2, &[8, 0, 16, 2, 26, 1, 5]), field(3, &[0, 1])].concat();
    vec![
        ("1.9 or earlier", request_of(&values)),
        ("1.9 or earlier", request_of(&attributes)),
        ("1.7 or earlier", request_of(&ranges)),
    ]
}

#[tokio::test]
async fn old_layout_is_refused_with_advice_over_both_transports() {
    let fixture = Fixture::new();
    for (version, body) in old() {
        let reply = fixture.call(PROFILES, &[], framed(0, &body)).await;
        assert_eq!(reply.code, Some(Code::InvalidArgument as i32), "{reply:?}");
        let (status, _, answer) = fixture.post("/v1development/profiles", &[], body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let answer = Status::decode(answer).unwrap().message;
        for said in [&reply.message, &answer] {
            assert!(
                said.contains(&format!("layout of OTLP {version}")),
                "{said}"
            );
            assert!(said.contains("Update the sender"), "{said}");
        }
    }
    let headers = [("content-type", "application/json")];
    let body = r#"{"resourceProfiles":[{"scopeProfiles":[{"profiles":[{"sample":[{}]}]}]}]}"#;
    let (status, _, answer) = fixture
        .post("/v1development/profiles", &headers, body)
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.contains("1.8 or earlier"), "{answer}");
    assert_eq!(fixture.items(), [0; 0]);
    assert_eq!(fixture.budget.used(), 0);
}

#[tokio::test]
async fn the_layout_of_1_10_is_taken_whole() {
    let fixture = Fixture::new();
    let sample = field(2, &[8, 0, 34, 1, 5]);
    let body = request_of(&[sample.clone(), sample].concat());
    let reply = fixture.call(PROFILES, &[], framed(0, &body)).await;
    assert_eq!(reply.code, Some(0), "{reply:?}");
    assert_eq!(fixture.items(), [2]);
}
