//! Division of random requests of all signals.

use bytes::Bytes;
use proptest::prelude::*;
use tributary::pipeline::split;
use tributary_otlp::Limit;

use crate::oracle::divided_without_loss;
use crate::request;

proptest! {
    #[test]
    fn split_requests_lose_and_reorder_nothing(
        (signal, request) in request(),
        items in prop_oneof![1..8_usize, Just(usize::MAX)],
        bytes in prop_oneof![1..3000_usize, Just(usize::MAX)],
    ) {
        let (request, limit) = (Bytes::from(request), Limit { items, bytes });
        divided_without_loss(signal, &request, limit, split(signal, &request, limit));
    }
}
