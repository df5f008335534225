use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development as proto;

use super::*;
use tributary_memory::Budget;

const ROOM: Bounds = Bounds {
    frames: u64::MAX,
    names: u64::MAX,
};

/// CPU profiles with these stacks of the same two locations: one with 100 lines, and one with
/// one line. All lines belong to the same function, with a name of 50 letters.
fn request(profiles: usize, stacks: &[[i32; 2]]) -> Vec<u8> {
    let line = proto::Line {
        function_index: 1,
        ..Default::default()
    };
    let location = |lines: usize| proto::Location {
        lines: vec![line; lines],
        ..Default::default()
    };
    let of_locations = |locations: &[i32; 2]| proto::Stack {
        location_indices: locations.to_vec(),
    };
    let name = "f".repeat(50);
    let strings = ["", "cpu", "nanoseconds", &name];
    let dictionary = proto::ProfilesDictionary {
        string_table: strings.map(str::to_owned).into(),
        function_table: vec![
            Default::default(),
            proto::Function {
                name_strindex: 3,
                ..Default::default()
            },
        ],
        location_table: vec![Default::default(), location(100), location(1)],
        stack_table: std::iter::once(Default::default())
            .chain(stacks.iter().map(of_locations))
            .collect(),
        mapping_table: vec![Default::default()],
        link_table: vec![Default::default()],
        attribute_table: vec![Default::default()],
    };
    let sample = |stack: i32| proto::Sample {
        stack_index: stack,
        values: vec![1],
        ..Default::default()
    };
    let profile = proto::Profile {
        sample_type: Some(proto::ValueType {
            type_strindex: 1,
            unit_strindex: 2,
        }),
        // Repeated stacks are walked once.
        samples: (1..)
            .take(stacks.len())
            .cycle()
            .take(2 * stacks.len())
            .map(sample)
            .collect(),
        duration_nano: 1,
        ..Default::default()
    };
    let request = ExportProfilesServiceRequest {
        resource_profiles: vec![proto::ResourceProfiles {
            scope_profiles: vec![proto::ScopeProfiles {
                profiles: vec![profile; profiles],
                ..Default::default()
            }],
            ..Default::default()
        }],
        dictionary: Some(dictionary),
    };
    request.encode_to_vec()
}

fn measured(request: &[u8], bounds: Bounds, room: usize) -> Result<(), Unmeasured> {
    let mut memory = Budget::new(room).empty_permit();
    measure(request, &[], bounds, &mut memory).map(drop)
}

#[test]
fn frames_count_as_often_as_the_stacks_of_profiles_share_them() {
    let request = request(3, &[[1, 2], [2, 1]]);
    let frames = 3 * 2 * 101;
    let bounds = |frames| Bounds { frames, ..ROOM };
    assert_eq!(measured(&request, bounds(frames), 1 << 20), Ok(()));
    let error = measured(&request, bounds(frames - 1), 1 << 20).unwrap_err();
    let Unmeasured::TooMuch { what, found, most } = error else {
        panic!("{error}");
    };
    assert_eq!((what, found, most), ("frames", frames, frames - 1));
}

#[test]
fn names_count_as_often_as_profiles_have_them_and_take_memory() {
    let request = request(3, &[[1, 2]]);
    let bounds = |names| Bounds { names, ..ROOM };
    assert_eq!(measured(&request, bounds(150), 1 << 20), Ok(()));
    let error = measured(&request, bounds(149), 1 << 20).unwrap_err();
    assert!(error.to_string().contains("150 bytes of names"), "{error}");
    assert_eq!(measured(&request, ROOM, 150), Err(Unmeasured::NoRoom));
}
