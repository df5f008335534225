//! Notes that a verifier leaves during a handshake, for explanations and expiry times.
//!
//! rustls reports the verifier's error to the peer as an alert and to the caller as an error. Neither has room for the
//! names, issuers and files of an explanation, and after a failure the peer's certificate is gone. The verifier runs in
//! the task of the handshake, so it can leave notes in a task-local variable.

use std::cell::RefCell;
use std::future::Future;

use super::reason::Reason;

#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Reason why the verifier did not accept the peer's certificate.
    pub(super) refused: Option<(Reason, String)>,
    /// End of the validity of the peer's certificates, presented now or in the resumed session, in seconds since 1970.
    pub(super) good_until: Option<u64>,
}

tokio::task_local! {
    static NOTES: RefCell<Notes>;
}

pub(super) async fn taken<F: Future>(handshake: F) -> (F::Output, Notes) {
    let noting = async {
        let outcome = handshake.await;
        (outcome, NOTES.with(RefCell::take))
    };
    NOTES.scope(RefCell::default(), noting).await
}

/// Reads or changes the notes. Returns `None` outside of [`taken`].
pub(super) fn with<R>(change: impl FnOnce(&mut Notes) -> R) -> Option<R> {
    NOTES.try_with(|notes| change(&mut notes.borrow_mut())).ok()
}
