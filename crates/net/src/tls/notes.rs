//! What a handshake leaves behind for those who have to explain it, or to bound what follows from it.
//!
//! rustls gives the verifier's error to the peer as an alert and to us as an error, but neither has room for the names,
//! issuers and files that make an explanation, and after a failure the peer's certificate is gone. The verifier runs in
//! the task of the handshake, so it leaves a note there.

use std::cell::RefCell;
use std::future::Future;

use super::reason::Reason;

/// The notes of one handshake.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Why our verifier did not accept the peer's certificate.
    pub(super) refused: Option<(Reason, String)>,
    /// When the certificates cease to be good that the peer has shown, now or in the session it resumes; seconds
    /// since 1970.
    pub(super) good_until: Option<u64>,
}

tokio::task_local! {
    static NOTES: RefCell<Notes>;
}

/// Runs a handshake, and returns what was noted meanwhile.
pub(super) async fn taken<F: Future>(handshake: F) -> (F::Output, Notes) {
    let noting = async {
        let outcome = handshake.await;
        (outcome, NOTES.with(RefCell::take))
    };
    NOTES.scope(RefCell::default(), noting).await
}

/// Reads or changes the notes; None outside of [`taken`].
pub(super) fn with<R>(change: impl FnOnce(&mut Notes) -> R) -> Option<R> {
    NOTES.try_with(|notes| change(&mut notes.borrow_mut())).ok()
}
