//! Authentication by a token in a header: `bearertokenauth`, for servers and clients.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subtle::{Choice, ConstantTimeEq};

use super::credentials::{self, Reloader};
use super::tries::Tries;
use crate::component::{
    BuildContext, BuildError, Entry, Extension, ExtensionConfig, Origin, Services,
};
use crate::entry;
use crate::metric::shared;
use tributary_config::{Capability, Problems, Secret, Validate};
use tributary_net::auth::{
    AuthFailure, ClientAuthenticator, ServerAuthenticator, UserIdentity, Verdict,
};

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExtensionConfig> = entry!(
    dyn ExtensionConfig,
    Config,
    "bearertokenauth",
    aliases: &[],
    "Authenticates with a token in a header: servers check it, and clients send it.",
    &[],
    collector: Origin::Contrib,
    metrics: &[shared::CREDENTIALS]
);

/// Authentication by a token. One of `token`, `tokens` and `filename` is required.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Header that contains the token. Default: `Authorization`.
    pub header: String,
    /// Prefix of the token, separated by a space; empty for the token alone. Servers ignore its
    /// case. Default: `Bearer`.
    pub scheme: String,
    /// Token. Default: none.
    pub token: Secret,
    /// Several tokens: servers accept each of them, clients send the first. Cannot be combined with `token`. Default:
    /// none.
    pub tokens: Vec<Secret>,
    /// File with tokens, one per line: servers accept each of them, clients send the first. Changes are loaded within
    /// seconds. `token` and `tokens` are then ignored. Default: none.
    pub filename: PathBuf,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            header: "Authorization".to_owned(),
            scheme: "Bearer".to_owned(),
            token: Secret::default(),
            tokens: Vec::new(),
            filename: PathBuf::new(),
        }
    }
}

impl Config {
    fn has_file(&self) -> bool {
        !self.filename.as_os_str().is_empty()
    }

    fn header(&self) -> Result<HeaderName, String> {
        credentials::header_name(&self.header)
    }

    /// Returns the current tokens.
    ///
    /// # Errors
    /// Returns the invalid key and the reason; never a token.
    fn tokens(&self) -> Result<Tokens, (&'static str, String)> {
        if self.has_file() {
            let text = credentials::read(&self.filename).map_err(|error| ("filename", error))?;
            let lines = text.lines().map(str::trim);
            let found = Tokens::new(&self.scheme, lines.filter(|line| !line.is_empty()));
            return found
                .map_err(|reason| ("filename", format!("{}: {reason}", self.filename.display())));
        }
        match (self.token.reveal(), self.tokens.as_slice()) {
            ("", []) => {
                let reason = "a token is required: set `token`, `tokens` or `filename`";
                Err(("", reason.to_owned()))
            }
            ("", tokens) => Tokens::new(&self.scheme, tokens.iter().map(Secret::reveal))
                .map_err(|reason| ("tokens", reason)),
            (token, []) => {
                Tokens::new(&self.scheme, [token].into_iter()).map_err(|reason| ("token", reason))
            }
            (_, _) => {
                let reason = "cannot be combined with `token`: remove one of the two";
                Err(("tokens", reason.to_owned()))
            }
        }
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if let Err(reason) = self.header() {
            problems.error(&["header"], reason);
        }
        if let Err(reason) = HeaderValue::try_from(&self.scheme)
            .map_err(|_| "has characters that are not allowed in a header")
            .and_then(|_| match self.scheme.contains(' ') {
                true => Err("must not contain spaces; the space before the token is added"),
                false => Ok(()),
            })
        {
            problems.error(&["scheme"], reason);
        }
        match self.tokens() {
            Ok(_) => {}
            Err(("", reason)) => problems.error(&[], reason),
            Err((key, reason)) => problems.error(&[key], reason),
        }
        let others = [
            ("token", !self.token.reveal().is_empty()),
            ("tokens", !self.tokens.is_empty()),
        ];
        for (key, _) in others.iter().filter(|(_, set)| *set && self.has_file()) {
            problems.warning(
                &[key],
                "is ignored, because `filename` is set: remove one of the two",
            );
        }
    }
}

impl ExtensionConfig for Config {
    fn provides(&self) -> Vec<Capability> {
        vec![Capability::ServerAuth, Capability::ClientAuth]
    }

    fn build(&self, cx: &BuildContext) -> Result<Extension, BuildError> {
        let files: Vec<PathBuf> = self
            .has_file()
            .then(|| self.filename.clone())
            .into_iter()
            .collect();
        let watch = Reloader::watch(&files);
        let tokens = self.tokens().map_err(|(key, reason)| {
            BuildError(
                format!("{key}: {reason}")
                    .trim_start_matches(": ")
                    .to_owned(),
            )
        })?;
        let header = self.header().map_err(BuildError)?;
        let scheme = if self.scheme.is_empty() {
            "Bearer"
        } else {
            &self.scheme
        };
        let challenge = HeaderValue::try_from(format!("{scheme} realm=\"collector\""))
            .map_err(|error| BuildError(format!("scheme: {error}")))?;
        let tokens = Arc::new(ArcSwap::from_pointee(tokens));
        let (config, current) = (self.clone(), tokens.clone());
        let reloader = Reloader::new(&cx.id, files, move || {
            let tokens = config.tokens().map_err(|(_, reason)| reason)?;
            let changed = tokens != **current.load();
            if changed {
                current.store(Arc::new(tokens));
            }
            Ok(changed)
        });
        let component = reloader.component(watch);
        let authenticator = Arc::new(Bearer {
            header,
            scheme: self.scheme.clone(),
            challenge,
            tokens,
            tries: Tries::default(),
            reloader,
        });
        Ok(Extension {
            component,
            services: Services {
                storage: None,
                server_auth: Some(authenticator.clone()),
                client_auth: Some(authenticator),
            },
        })
    }
}

/// Authenticator for servers and clients.
struct Bearer {
    header: HeaderName,
    scheme: String,
    challenge: HeaderValue,
    tokens: Arc<ArcSwap<Tokens>>,
    tries: Tries,
    reloader: Arc<Reloader>,
}

/// Tokens that are valid at the same time; at least one.
#[derive(PartialEq)]
struct Tokens {
    accepted: Vec<Box<[u8]>>,
    /// Header value that clients send.
    sent: HeaderValue,
}

impl Tokens {
    fn new<'a>(scheme: &str, tokens: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let unfit =
            || "a token is empty, or has characters that are not allowed in a header".to_owned();
        let mut accepted = Vec::new();
        let mut sent = None;
        for token in tokens {
            let value = match scheme {
                "" => HeaderValue::try_from(token),
                scheme => HeaderValue::try_from(format!("{scheme} {token}")),
            };
            let mut value = value.map_err(|_| unfit())?;
            // HTTP removes leading and trailing spaces.
            if token.trim() != token || token.is_empty() {
                return Err(unfit());
            }
            // Sensitive values are excluded from HPACK tables and debug output.
            value.set_sensitive(true);
            sent.get_or_insert(value);
            accepted.push(token.as_bytes().into());
        }
        match sent {
            Some(sent) => Ok(Tokens { accepted, sent }),
            None => Err("the file has no token".to_owned()),
        }
    }

    /// Whether `token` is valid. The time depends on the lengths and the number of tokens, which
    /// are not secret, and not on how much of a token is right.
    fn accept(&self, token: &[u8]) -> bool {
        let equal = self.accepted.iter().map(|accepted| accepted.ct_eq(token));
        equal.fold(Choice::from(0), |any, equal| any | equal).into()
    }
}

impl ServerAuthenticator for Bearer {
    fn header(&self) -> &HeaderName {
        &self.header
    }

    fn challenge(&self) -> &HeaderValue {
        &self.challenge
    }

    fn authenticate(&self, headers: &HeaderMap, peer: IpAddr) -> Verdict {
        let token = match credentials::of_scheme(headers, &self.header, &self.scheme) {
            Ok(token) => token,
            Err(refused) => return Verdict::Known(Err(refused)),
        };
        let right = self.tokens.load().accept(token);
        Verdict::Known(match right {
            true if self.tries.admits(peer, token) => Ok(UserIdentity::default()),
            false if self.tries.begins(peer) => Err(AuthFailure::Wrong),
            _ => Err(AuthFailure::Busy),
        })
    }
}

impl ClientAuthenticator for Bearer {
    fn add(&self, headers: &mut HeaderMap) {
        headers.insert(self.header.clone(), self.tokens.load().sent.clone());
    }

    fn version(&self) -> u64 {
        self.reloader.version()
    }

    fn refresh(&self) {
        self.reloader.refresh();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv4Addr;

    use tempfile::TempDir;
    use tokio::time::{Duration, Instant, sleep};

    use super::*;
    use crate::component::Host;
    use crate::extensions::tries::{BURST, PAUSE};

    fn build(yaml: &str) -> Extension {
        let config: Config = serde_yaml::from_str(yaml).unwrap();
        let cx = Host::for_tests().context(&"bearertokenauth".parse().unwrap());
        config.build(&cx).unwrap()
    }

    fn says(
        extension: &Extension,
        header: &str,
        values: &[&str],
    ) -> Result<UserIdentity, AuthFailure> {
        let name: HeaderName = header.parse().unwrap();
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name.clone(), value.parse().unwrap());
        }
        let authenticator = extension.services.server_auth.as_ref().unwrap();
        match authenticator.authenticate(&headers, Ipv4Addr::LOCALHOST.into()) {
            Verdict::Known(known) => known,
            Verdict::Pending(_) => panic!("a token is checked at once"),
        }
    }

    fn sends(extension: &Extension, header: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_static("replaced"));
        extension
            .services
            .client_auth
            .as_ref()
            .unwrap()
            .add(&mut headers);
        assert_eq!(headers.get_all(header).iter().count(), 1);
        assert!(headers[header].is_sensitive());
        headers[header].to_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn all_tokens_are_accepted_and_first_is_sent() {
        let extension = build("tokens: [first, second]");
        let ok = Ok(UserIdentity::default());
        assert_eq!(sends(&extension, "authorization"), "Bearer first");
        for (values, expected) in [
            (&["Bearer first"][..], &ok),
            (&["bearer second"], &ok),
            (&["BEARER   second"], &ok),
            (&[], &Err(AuthFailure::Missing)),
            (&["Bearer third"], &Err(AuthFailure::Wrong)),
            (&["Bearer firs"], &Err(AuthFailure::Wrong)),
            (&["Bearer firsts"], &Err(AuthFailure::Wrong)),
            (&["Bearer "], &Err(AuthFailure::Malformed)),
            (&["Bearer"], &Err(AuthFailure::Malformed)),
            (&["first"], &Err(AuthFailure::Malformed)),
            (&["Basic first"], &Err(AuthFailure::Malformed)),
            // Two proxies may disagree about the valid header.
            (
                &["Bearer first", "Bearer third"],
                &Err(AuthFailure::Malformed),
            ),
        ] {
            assert_eq!(
                &says(&extension, "authorization", values),
                expected,
                "{values:?}"
            );
        }
    }

    #[tokio::test]
    async fn header_and_scheme_are_configurable() {
        let extension = build("{header: X-Api-Key, scheme: '', token: secret}");
        assert_eq!(sends(&extension, "x-api-key"), "secret");
        assert!(says(&extension, "x-api-key", &["secret"]).is_ok());
        assert_eq!(
            says(&extension, "authorization", &["secret"]),
            Err(AuthFailure::Missing)
        );
        let extension = build("{scheme: Token, token: secret}");
        assert_eq!(sends(&extension, "authorization"), "Token secret");
        assert!(says(&extension, "authorization", &["Token secret"]).is_ok());
        let challenge = extension.services.server_auth.unwrap().challenge().clone();
        assert_eq!(challenge, "Token realm=\"collector\"");
    }

    #[tokio::test(start_paused = true)]
    async fn changed_file_is_used_and_bad_file_is_ignored() {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("token");
        fs::write(&file, "\n  first \n\n").unwrap();
        let mut extension = build(&format!(
            "{{token: ignored, filename: '{}'}}",
            file.display()
        ));
        extension.component.start();
        let accepts = |token: &str| says(&extension, "authorization", &[token]).is_ok();
        assert!(accepts("Bearer first") && !accepts("Bearer ignored"));

        fs::write(&file, "second\r\nfirst\n").unwrap();
        sleep(Duration::from_secs(3)).await;
        assert!(accepts("Bearer first") && accepts("Bearer second"));
        assert_eq!(sends(&extension, "authorization"), "Bearer second");

        for bad in ["", "\n \n", "two\nl\u{7}nes\n"] {
            fs::write(&file, bad).unwrap();
            sleep(Duration::from_secs(3)).await;
            assert!(
                accepts("Bearer first") && accepts("Bearer second"),
                "{bad:?}"
            );
        }
        fs::remove_file(&file).unwrap();
        sleep(Duration::from_secs(3)).await;
        assert!(accepts("Bearer second"));

        fs::write(&file, "third").unwrap();
        sleep(Duration::from_secs(3)).await;
        assert!(accepts("Bearer third") && !accepts("Bearer second"));

        extension.component.shutdown(Instant::now()).await;
    }

    #[test]
    fn errors_name_key_without_token() {
        let directory = TempDir::new().unwrap();
        let empty = directory.path().join("empty");
        fs::write(&empty, " \n").unwrap();
        let filename = format!("filename: '{}'", empty.display());
        for (yaml, key) in [
            ("{}", ""),
            ("{token: a, tokens: [b]}", "tokens"),
            ("token: \"secret\\n\"", "token"),
            ("tokens: [fine, ' secret']", "tokens"),
            ("tokens: ['']", "tokens"),
            ("filename: /no/such/file", "filename"),
            (&filename, "filename"),
            ("{token: a, header: 'a b'}", "header"),
            ("{token: a, header: Content-Type}", "header"),
            ("{token: a, header: grpc-timeout}", "header"),
            ("{token: a, scheme: 'a b'}", "scheme"),
        ] {
            let config: Config = serde_yaml::from_str(yaml).unwrap();
            let mut problems = Problems::default();
            config.validate(&mut problems);
            let [problem] = problems.found() else {
                panic!("{yaml}: {problems:?}");
            };
            assert_eq!(problem.path.join("."), key, "{yaml}");
            assert!(!problem.message.contains("secret"), "{}", problem.message);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn network_with_many_wrong_tokens_waits() {
        let extension = build("tokens: [first, second]");
        let authenticator = extension.services.server_auth.as_ref().unwrap();
        let ask = |token: &str, peer: [u8; 4]| {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
            match authenticator.authenticate(&headers, Ipv4Addr::from(peer).into()) {
                Verdict::Known(known) => known,
                Verdict::Pending(_) => panic!("a token is checked at once"),
            }
        };
        let (guesser, other) = ([192, 0, 2, 1], [192, 0, 2, 2]);
        assert!(ask("first", guesser).is_ok());
        for number in 0..BURST {
            let guess = format!("guess{number}");
            assert_eq!(ask(&guess, guesser), Err(AuthFailure::Wrong), "{number}");
        }
        assert_eq!(ask("guess", guesser), Err(AuthFailure::Busy));
        // A right guess shows no difference, and clients that were served before stay served.
        assert_eq!(ask("second", guesser), Err(AuthFailure::Busy));
        assert!(ask("first", guesser).is_ok());
        assert!(ask("second", other).is_ok());
        tokio::time::advance(PAUSE).await;
        assert_eq!(ask("guess", guesser), Err(AuthFailure::Wrong));
        assert_eq!(ask("guess", guesser), Err(AuthFailure::Busy));
    }
}
