//! Session resumption that ends with the validity of the certificates.
//!
//! A client that resumes a session presents no certificate, so the verifier does not run. The verifier's decision can
//! change only with the configuration or with time. Every configuration has separate ticket keys, so new authorities,
//! names or revocation lists invalidate all earlier tickets. Every ticket contains the time at which the first of its
//! certificates or revocation lists expires. After this time the ticket is rejected, and the client performs a full
//! handshake, in which it gets an explanation. Sessions are kept in tickets only, because a session cache would bypass
//! this check.

use std::sync::Arc;

use rustls::crypto::ring::Ticketer;
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls_pki_types::UnixTime;

use super::notes;

/// Adds an expiry time to rustls' own tickets, which rotate their keys.
#[derive(Debug)]
struct Tickets {
    inner: Arc<dyn ProducesTickets>,
    /// Whether clients are verified. If so, a ticket without an expiry time must not be issued.
    clients_are_verified: bool,
}

/// Enables the resumption of sessions with this configuration.
///
/// # Errors
/// The system provides no randomness for the keys.
pub(super) fn enable(
    config: &mut rustls::ServerConfig,
    clients_are_verified: bool,
) -> Result<(), rustls::Error> {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = Arc::new(Tickets {
        inner: Ticketer::new()?,
        clients_are_verified,
    });
    Ok(())
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        self.inner.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.inner.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let noted = notes::with(|notes| notes.good_until).flatten();
        let good_until = match self.clients_are_verified {
            true => noted?,
            false => u64::MAX,
        };
        let mut bounded = Vec::with_capacity(size_of::<u64>() + plain.len());
        bounded.extend_from_slice(&good_until.to_be_bytes());
        bounded.extend_from_slice(plain);
        self.inner.encrypt(&bounded)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let mut bounded = self.inner.decrypt(cipher)?;
        let (good_until, _) = bounded.split_first_chunk()?;
        let good_until = u64::from_be_bytes(*good_until);
        if good_until < UnixTime::now().as_secs() {
            return None;
        }
        // Tickets issued in the resumed session expire at the same time.
        notes::with(|notes| notes.good_until = Some(good_until));
        Some(bounded.split_off(size_of::<u64>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(clients_are_verified: bool) -> Tickets {
        Tickets {
            inner: Ticketer::new().unwrap(),
            clients_are_verified,
        }
    }

    #[tokio::test]
    async fn ticket_expires_with_first_certificate() {
        let now = UnixTime::now().as_secs();
        let tickets = tickets(true);
        let given_at = async |good_until| {
            let ticket = async {
                notes::with(|notes| notes.good_until = good_until);
                tickets.encrypt(b"session")
            };
            notes::taken(ticket).await.0
        };
        assert_eq!(given_at(None).await, None, "no client was verified");
        let over = given_at(Some(now - 1)).await.unwrap();
        assert_eq!(tickets.decrypt(&over), None);
        let good = given_at(Some(now + 1000)).await.unwrap();
        let (session, notes) = notes::taken(async { tickets.decrypt(&good) }).await;
        assert_eq!(session.as_deref(), Some(&b"session"[..]));
        assert_eq!(notes.good_until, Some(now + 1000));
    }

    #[test]
    fn ticket_without_client_certificate_does_not_expire() {
        let tickets = tickets(false);
        let ticket = tickets.encrypt(b"session").unwrap();
        assert_eq!(tickets.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
    }
}
