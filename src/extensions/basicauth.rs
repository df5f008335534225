//! Authentication by user and password (RFC 7617): `basicauth`, for servers (`htpasswd`) or clients (`client_auth`).

mod htpasswd;
mod verifier;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};
use tracing::warn;

use self::verifier::{Users, Verifier};
use super::credentials::{self, Reloader};
use crate::component::{
    BuildContext, BuildError, Entry, Extension, ExtensionConfig, Origin, Services,
};
use crate::entry;
use crate::metric::shared;
use tributary_config::{Capability, Problems, Secret, Validate};
use tributary_net::auth::{AuthFailure, ClientAuthenticator, ServerAuthenticator, Verdict};

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExtensionConfig> = entry!(
    dyn ExtensionConfig,
    Config,
    "basicauth",
    aliases: &[],
    "Authenticates with user name and password: servers check them, and clients send them.",
    &[],
    collector: Origin::Contrib,
    metrics: &[shared::CREDENTIALS]
);

/// Authentication by user and password. Exactly one of `htpasswd` and `client_auth` is required.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// For servers: users that may connect. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub htpasswd: Option<Htpasswd>,
    /// For clients: user and password to send. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_auth: Option<ClientAuth>,
}

/// Users and passwords, one `user:hash` per line, as `htpasswd -B` writes them: hashes of bcrypt. Other
/// hashes are errors; other text is the password itself, with a warning. Passwords have at most 1024
/// bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Htpasswd {
    /// Path of the file. Changes are loaded within seconds. Default: none.
    pub file: PathBuf,
    /// Lines of the file as text. If a user is in both, the line in `inline` counts. Default: none.
    pub inline: Secret,
}

/// User and password of a client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClientAuth {
    /// User name, without a colon. Required, unless `username_file` is set.
    pub username: String,
    /// Password. Required, unless `password_file` is set.
    pub password: Secret,
    /// File with the user name, instead of `username`. Changes are loaded within seconds. Default: none.
    pub username_file: PathBuf,
    /// File with the password, instead of `password`. Changes are loaded within seconds. Default: none.
    pub password_file: PathBuf,
}

/// Configuration error: the key, and the reason.
type Wrong = (&'static str, String);

/// Error or warning about one line of a list of users.
struct Finding {
    wrong: Wrong,
    is_error: bool,
}

impl Htpasswd {
    fn files(&self) -> Vec<PathBuf> {
        existing([&self.file])
    }

    /// Reads the users, with the findings: invalid lines, and passwords in plain text. Examples for the Collector have
    /// plain text in `inline`, but a file of hashes has none.
    fn read(&self) -> Result<(Users, Vec<Finding>), Wrong> {
        let mut text = String::new();
        if is_set(&self.file) {
            text = credentials::read(&self.file).map_err(|reason| ("file", reason))?;
        }
        let file = self.file.display().to_string();
        let sources = [
            ("file", file.as_str(), text.as_str()),
            ("inline", "the text", self.inline.reveal()),
        ];
        let (mut entries, mut found) = (Vec::new(), Vec::new());
        for (key, source, text) in sources {
            let (users, wrong) = htpasswd::parse(text);
            let plain = users.iter();
            let plain = plain.filter(|entry| matches!(entry.hash, htpasswd::Hash::Plain(_)));
            found.extend(plain.map(|htpasswd::Entry { line, .. }| Finding {
                wrong: (
                    key,
                    format!("line {line} of {source} has a password in plain text: use bcrypt (`htpasswd -B`)"),
                ),
                is_error: key == "file",
            }));
            found.extend(wrong.into_iter().map(|(line, reason)| Finding {
                wrong: (key, format!("line {line} of {source} is ignored: {reason}")),
                is_error: matches!(reason, htpasswd::NoEntry::Unsupported(_)),
            }));
            entries.extend(users);
        }
        if entries.is_empty() {
            let (key, what) = match is_set(&self.file) {
                true => ("file", self.file.display().to_string()),
                false => ("inline", "the text".to_owned()),
            };
            let reason = found.first().map(|found| format!(": {}", found.wrong.1));
            let reason = reason.unwrap_or_default();
            return Err((key, format!("{what} has no valid user{reason}")));
        }
        let users = Users::new(entries).map_err(|reason| ("file", reason))?;
        Ok((users, found))
    }
}

impl ClientAuth {
    fn files(&self) -> Vec<PathBuf> {
        existing([&self.username_file, &self.password_file])
    }

    fn read(&self) -> Result<HeaderValue, Wrong> {
        let file = |key, path: &Path| match is_set(path) {
            true => credentials::read(path)
                .map(Some)
                .map_err(|reason| (key, reason)),
            false => Ok(None),
        };
        let user = file("username_file", &self.username_file)?;
        let password = file("password_file", &self.password_file)?;
        let (user_key, user) = match &user {
            Some(text) => ("username_file", text.trim()),
            None => ("username", self.username.as_str()),
        };
        let (password_key, password) = match &password {
            Some(text) => ("password_file", text.trim()),
            None => ("password", self.password.reveal()),
        };
        // RFC 7617, 2.
        if user.contains(':') {
            return Err((user_key, "a user name must not contain a colon".to_owned()));
        }
        for (key, text) in [(user_key, user), (password_key, password)] {
            if text.chars().any(char::is_control) {
                let reason = "control characters, such as line ends, are not allowed";
                return Err((key, reason.to_owned()));
            }
        }
        for (key, text) in [(user_key, user), (password_key, password)] {
            if text.is_empty() && key.ends_with("_file") {
                return Err((key, "the file is empty".to_owned()));
            }
        }
        if user.is_empty() && password.is_empty() {
            let reason = "set `username` and `password`, or `username_file` and `password_file`";
            return Err(("", reason.to_owned()));
        }
        let encoded = STANDARD.encode(format!("{user}:{password}"));
        let value = HeaderValue::try_from(format!("Basic {encoded}"));
        let mut value = value.map_err(|error| ("password", error.to_string()))?;
        // Sensitive values are excluded from HPACK tables and debug output.
        value.set_sensitive(true);
        Ok(value)
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        let mut wrong = |section: &str, (key, reason): Wrong, warning: bool| {
            let path: Vec<&str> = [section, key]
                .into_iter()
                .filter(|key| !key.is_empty())
                .collect();
            match warning {
                true => problems.warning(&path, reason),
                false => problems.error(&path, reason),
            }
        };
        match (&self.htpasswd, &self.client_auth) {
            (Some(_), Some(_)) => {
                let reason =
                    "`htpasswd` and `client_auth` cannot be combined: define two extensions";
                wrong("", ("client_auth", reason.to_owned()), false);
            }
            (None, None) => {
                let reason =
                    "set `htpasswd` to check clients, or `client_auth` to authenticate to servers";
                wrong("", ("", reason.to_owned()), false);
            }
            (Some(htpasswd), None) => match htpasswd.read() {
                Ok((_, found)) => {
                    for found in found {
                        wrong("htpasswd", found.wrong, !found.is_error);
                    }
                }
                Err(error) => wrong("htpasswd", error, false),
            },
            (None, Some(client)) => {
                if let Err(error) = client.read() {
                    wrong("client_auth", error, false);
                }
            }
        }
    }
}

impl ExtensionConfig for Config {
    fn provides(&self) -> Vec<Capability> {
        let server = self.htpasswd.as_ref().map(|_| Capability::ServerAuth);
        let client = self.client_auth.as_ref().map(|_| Capability::ClientAuth);
        server.into_iter().chain(client).collect()
    }

    fn build(&self, cx: &BuildContext) -> Result<Extension, BuildError> {
        let failed =
            |section: &str, (key, reason): Wrong| BuildError(format!("{section}::{key}: {reason}"));
        if let Some(htpasswd) = self.htpasswd.clone() {
            let files = htpasswd.files();
            let watch = Reloader::watch(&files);
            let (users, _) = htpasswd.read().map_err(|error| failed("htpasswd", error))?;
            let server = Arc::new(Server(Verifier::new(users)));
            let (reloaded, id) = (server.clone(), cx.id.clone());
            let reloader = Reloader::new(&cx.id, files, move || {
                let (users, found) = htpasswd.read().map_err(|(_, reason)| reason)?;
                let changed = reloaded.0.replace(users);
                for reason in found.iter().map(|found| &found.wrong.1).filter(|_| changed) {
                    warn!(
                        otelcol.component.id = %id,
                        otelcol.component.kind = "extension",
                        "{}", reason
                    );
                }
                Ok(changed)
            });
            return Ok(Extension {
                component: reloader.component(watch),
                services: Services {
                    server_auth: Some(server),
                    ..Services::default()
                },
            });
        }
        let client = self.client_auth.clone().unwrap_or_default();
        let files = client.files();
        let watch = Reloader::watch(&files);
        let value = client
            .read()
            .map_err(|error| failed("client_auth", error))?;
        let value = Arc::new(ArcSwap::from_pointee(value));
        let current = value.clone();
        let reloader = Reloader::new(&cx.id, files, move || {
            let value = client.read().map_err(|(_, reason)| reason)?;
            let changed = value != **current.load();
            if changed {
                current.store(Arc::new(value));
            }
            Ok(changed)
        });
        let component = reloader.component(watch);
        Ok(Extension {
            component,
            services: Services {
                client_auth: Some(Arc::new(Client { value, reloader })),
                ..Services::default()
            },
        })
    }
}

struct Server(Verifier);

impl ServerAuthenticator for Server {
    fn header(&self) -> &HeaderName {
        &AUTHORIZATION
    }

    fn challenge(&self) -> &HeaderValue {
        static CHALLENGE: HeaderValue =
            HeaderValue::from_static("Basic realm=\"collector\", charset=\"UTF-8\"");
        &CHALLENGE
    }

    fn authenticate(&self, headers: &HeaderMap, peer: IpAddr) -> Verdict {
        let encoded = match credentials::of_scheme(headers, &AUTHORIZATION, "Basic") {
            Ok(encoded) => encoded,
            Err(refused) => return Verdict::Known(Err(refused)),
        };
        let mut decoded: SmallVec<[u8; 128]> = smallvec![0; encoded.len()];
        let length = OPTIONAL_PADDING.decode_slice(encoded, &mut decoded).ok();
        let decoded = length.and_then(|length| decoded.get(..length));
        let parts = decoded.and_then(|decoded| {
            let colon = memchr::memchr(b':', decoded)?;
            decoded.split_at_checked(colon)
        });
        match parts {
            Some((user, [_, password @ ..])) => self.0.verify(user, password, peer),
            _ => Verdict::Known(Err(AuthFailure::Malformed)),
        }
    }
}

struct Client {
    /// Value of the header.
    value: Arc<ArcSwap<HeaderValue>>,
    reloader: Arc<Reloader>,
}

impl ClientAuthenticator for Client {
    fn add(&self, headers: &mut HeaderMap) {
        headers.insert(AUTHORIZATION, HeaderValue::clone(&self.value.load()));
    }

    fn version(&self) -> u64 {
        self.reloader.version()
    }

    fn refresh(&self) {
        self.reloader.refresh();
    }
}

/// Base64 with optional padding, because some clients omit the padding.
const OPTIONAL_PADDING: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

fn is_set(path: &Path) -> bool {
    !path.as_os_str().is_empty()
}

fn existing<const N: usize>(paths: [&PathBuf; N]) -> Vec<PathBuf> {
    paths
        .into_iter()
        .filter(|path| is_set(path))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv4Addr;

    use tempfile::TempDir;
    use tokio::time::{Duration, sleep};

    use super::*;
    use crate::component::Host;
    use tributary_net::auth::UserIdentity;

    fn build(yaml: &str) -> Extension {
        let config: Config = serde_yaml::from_str(yaml).unwrap();
        let cx = Host::for_tests().context(&"basicauth".parse().unwrap());
        config.build(&cx).unwrap()
    }

    async fn says(extension: &Extension, value: &str) -> Result<UserIdentity, AuthFailure> {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
        let authenticator = extension.services.server_auth.as_ref().unwrap();
        match authenticator.authenticate(&headers, Ipv4Addr::LOCALHOST.into()) {
            Verdict::Known(known) => known,
            Verdict::Pending(pending) => pending.await,
        }
    }

    fn basic(credentials: &str) -> String {
        format!("Basic {}", STANDARD.encode(credentials))
    }

    #[test]
    fn plain_password_in_file_and_unknown_hash_are_errors() {
        let lines = "bob:word\ndes:rqXexS6ZhobKA\nold:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/";
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("htpasswd");
        fs::write(&file, lines).unwrap();
        let inline = format!("inline: \"{}\"", lines.replace('\n', "\\n"));
        for (users, plain_is_warning) in [
            (format!("file: '{}'", file.display()), false),
            (inline, true),
        ] {
            let config: Config = serde_yaml::from_str(&format!("htpasswd: {{{users}}}")).unwrap();
            let mut problems = Problems::default();
            config.validate(&mut problems);
            let found = problems.found();
            assert_eq!(found.len(), 3, "{found:?}");
            for (expected, line, is_warning) in [
                ("in plain text", "line 1", plain_is_warning),
                ("DES hash", "line 2", false),
                ("MD5 hash of Apache", "line 3", false),
            ] {
                let says = |message: &str| message.contains(expected) && message.contains(line);
                let problem = found.iter().find(|problem| says(&problem.message)).unwrap();
                assert_eq!(problem.warning, is_warning, "{problem:?}");
                assert!(problem.message.contains("`htpasswd -B`"), "{problem:?}");
                assert!(!problem.message.contains("word\n"), "{problem:?}");
            }
        }
    }

    #[tokio::test]
    async fn inline_text_overrides_file_and_allows_colons() {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("htpasswd");
        fs::write(
            &file,
            "alice:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\nbob:old",
        )
        .unwrap();
        let inline = "inline: \"bob:new\\ncarol:a:b\"";
        let extension = build(&format!(
            "htpasswd: {{file: '{}', {inline}}}",
            file.display()
        ));
        let user = |name: &str| {
            Ok(UserIdentity {
                user: Some(name.into()),
            })
        };
        for (value, expected) in [
            (basic("alice:secret"), user("alice")),
            (basic("bob:new"), user("bob")),
            (basic("carol:a:b"), user("carol")),
            (
                basic("carol:a:b").trim_end_matches('=').to_owned(),
                user("carol"),
            ),
            (basic("bob:old"), Err(AuthFailure::Wrong)),
            (basic("carol"), Err(AuthFailure::Malformed)),
            ("Basic !!!".to_owned(), Err(AuthFailure::Malformed)),
            ("Bearer abc".to_owned(), Err(AuthFailure::Malformed)),
            (
                "Basic ".to_owned() + &"A".repeat(100_000),
                Err(AuthFailure::Malformed),
            ),
        ] {
            assert_eq!(says(&extension, &value).await, expected, "{value}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changed_files_count_within_seconds_on_both_sides() {
        let directory = TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name);
        let write = |name: &str, text: &str| fs::write(path(name), text).unwrap();
        write("htpasswd", "alice:first");
        write("user", "alice\n");
        write("password", " first\n");
        let mut server = build(&format!(
            "htpasswd: {{file: '{}'}}",
            path("htpasswd").display()
        ));
        let mut client = build(&format!(
            "client_auth: {{username: x, username_file: '{}', password_file: '{}'}}",
            path("user").display(),
            path("password").display()
        ));
        server.component.start();
        client.component.start();
        let sent = || {
            let mut headers = HeaderMap::new();
            client
                .services
                .client_auth
                .as_ref()
                .unwrap()
                .add(&mut headers);
            assert!(headers[AUTHORIZATION].is_sensitive());
            headers[AUTHORIZATION].to_str().unwrap().to_owned()
        };
        assert_eq!(sent(), basic("alice:first"));
        assert!(says(&server, &sent()).await.is_ok());

        write("htpasswd", "alice:second");
        write("password", "second");
        sleep(Duration::from_secs(3)).await;
        assert_eq!(sent(), basic("alice:second"));
        assert!(says(&server, &sent()).await.is_ok());
        assert!(says(&server, &basic("alice:first")).await.is_err());

        write("htpasswd", "nothing");
        write("password", "");
        sleep(Duration::from_secs(3)).await;
        assert_eq!(sent(), basic("alice:second"));
        assert!(says(&server, &sent()).await.is_ok());
    }

    #[test]
    fn errors_name_key_without_password() {
        for (yaml, key, warning) in [
            ("{}", "", false),
            (
                "{htpasswd: {inline: 'a:b'}, client_auth: {username: a}}",
                "client_auth",
                false,
            ),
            ("htpasswd: {}", "htpasswd.inline", false),
            ("htpasswd: {inline: secret}", "htpasswd.inline", false),
            (
                "htpasswd: {inline: \"a:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\\nsecret\"}",
                "htpasswd.inline",
                true,
            ),
            (
                "htpasswd: {inline: \"a:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\\nc:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\"}",
                "htpasswd.inline",
                false,
            ),
            ("htpasswd: {file: /no/such/file}", "htpasswd.file", false),
            ("client_auth: {}", "client_auth", false),
            (
                "client_auth: {username: 'a:secret'}",
                "client_auth.username",
                false,
            ),
            (
                "client_auth: {username: a, password: \"secret\\n\"}",
                "client_auth.password",
                false,
            ),
            (
                "client_auth: {username: a, password_file: /no/such/file}",
                "client_auth.password_file",
                false,
            ),
        ] {
            let config: Config = serde_yaml::from_str(yaml).unwrap();
            let mut problems = Problems::default();
            config.validate(&mut problems);
            let [problem] = problems.found() else {
                panic!("{yaml}: {problems:?}");
            };
            assert_eq!(
                (problem.path.join("."), problem.warning),
                (key.to_owned(), warning),
                "{yaml}"
            );
            assert!(!problem.message.contains("secret"), "{}", problem.message);
        }
    }

    #[test]
    fn extension_has_configured_capabilities() {
        let provides = |yaml: &str| serde_yaml::from_str::<Config>(yaml).unwrap().provides();
        assert_eq!(
            provides("htpasswd: {inline: 'a:b'}"),
            [Capability::ServerAuth]
        );
        assert_eq!(
            provides("client_auth: {username: a}"),
            [Capability::ClientAuth]
        );
    }
}
