//! Views of random requests.

use bytes::Bytes;
use proptest::prelude::*;

use crate::rebuild::reads_like_prost;
use crate::request;

proptest! {
    #[test]
    fn views_read_what_prost_decodes_and_what_was_admitted_means_the_same(
        (signal, request) in request(),
    ) {
        reads_like_prost(signal, Bytes::from(request));
    }
}
