//! Return addresses on the stack, which follow their call, are named by the call.

use std::process::Command;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use prost::Message as _;

use crate::symbolication::{PLAIN, Program, World, frames, profile};

/// A function that ends with a call which never returns. The return address is in the next function. `stop` prints the
/// offset of the return address from the start of that function.
const SOURCE: &str = "#include <stdio.h>
#include <stdlib.h>
int next(int x);
__attribute__((noipa, noreturn)) void stop(void) {
    printf(\"%ld\\n\", (long)((char *)__builtin_return_address(0) - (char *)&next));
    exit(0);
}
__attribute__((noipa)) void last(int x) {
    stop();
}
__attribute__((noipa)) int next(int x) {
    return x + 1;
}
int main(int count, char **arguments) {
    last(next(count));
}
";

/// A stack of `stop` and its return address, in a profile of this scope. With `alone`, the return address is also the
/// innermost frame of another stack.
fn stack(program: &Program, returns_to: u64, scope: &str, alone: bool) -> Vec<u8> {
    let addresses = [program.address("stop"), returns_to];
    let bytes = profile(&[&program.build_id], &addresses);
    let mut request = ExportProfilesServiceRequest::decode(&bytes[..]).unwrap();
    let scopes = &mut request.resource_profiles[0].scope_profiles[0];
    scopes.scope = Some(InstrumentationScope {
        name: scope.to_owned(),
        ..InstrumentationScope::default()
    });
    let tables = request.dictionary.as_mut().unwrap();
    tables.stack_table[1].location_indices = vec![1, 2];
    if !alone {
        // The second sample has a stack of the second location alone.
        scopes.profiles[0].samples.pop();
        tables.stack_table.pop();
    }
    request.encode_to_vec()
}

#[tokio::test]
async fn return_addresses_are_named_by_their_call() {
    let flags = [
        "-g",
        "-fno-align-functions",
        "-fno-toplevel-reorder",
        "-fno-reorder-functions",
    ];
    let program = Program::of(SOURCE, &flags);
    let said = Command::new(&program.file).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert_eq!(said, "0\n", "the call is the last instruction of `last`");
    let returns_to = program.address("next");
    const CALL: &str = "last program.c:9";
    const BEHIND: &str = "next program.c:12";
    for (call_sites, scope, alone, expected) in [
        ("{}", "any", false, BEHIND),
        ("{default: return_addresses}", "any", false, CALL),
        ("{default: return_addresses}", "any", true, BEHIND),
        ("{scopes: {raw: return_addresses}}", "raw", false, CALL),
        ("{scopes: {raw: return_addresses}}", "other", false, BEHIND),
        (
            "{default: return_addresses, scopes: {fine: adjusted}}",
            "fine",
            false,
            BEHIND,
        ),
    ] {
        let world = World::start(&format!("call_sites: {call_sites},"), PLAIN).await;
        let place = program.place_in(&world.symbols());
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(&program.file, place).unwrap();
        let request = stack(&program, returns_to, scope, alone);
        let arrived = world.send_request(request).await;
        let found = frames(&arrived);
        assert!(found[0][0].starts_with("stop program.c:"), "{found:?}");
        assert_eq!(found[1], [expected], "{call_sites} {scope}");
        let tables = arrived.dictionary.unwrap();
        assert_eq!(
            tables.location_table[2].address, returns_to,
            "it stays as it was"
        );
    }
}
