//! Credentials for targets, which may be in files that other programs renew.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;

use super::config::{Authorization, BasicAuth};
use tributary_config::Secret;
use tributary_net::files::read_regular;

/// Maximum size of a file with credentials, in bytes.
const MAX_FILE: u64 = 64 << 10;

/// Source of the header `Authorization`.
#[derive(Debug, Clone, Default)]
pub(super) enum Credentials {
    /// No header.
    #[default]
    None,
    /// User name and password.
    Basic { user: Part, password: Part },
    /// A scheme with credentials, such as a bearer token.
    Token { scheme: String, token: Part },
}

/// A text, or a file with it.
#[derive(Debug, Clone)]
pub(super) enum Part {
    Text(Secret),
    File(PathBuf),
}

impl Part {
    pub(super) fn new(text: &Secret, file: &Path) -> Self {
        match file.as_os_str().is_empty() {
            true => Part::Text(text.clone()),
            false => Part::File(file.to_owned()),
        }
    }

    fn read(&self) -> Result<String, String> {
        match self {
            Part::Text(text) => Ok(text.reveal().to_owned()),
            Part::File(path) => {
                let bytes = read_regular(path, MAX_FILE).map_err(|error| error.to_string())?;
                let text = String::from_utf8(bytes);
                let text = text.map_err(|_| format!("{} is not UTF-8", path.display()))?;
                Ok(text.trim().to_owned())
            }
        }
    }

    fn is_file(&self) -> bool {
        matches!(self, Part::File(_))
    }
}

impl Credentials {
    /// Returns the credentials of these sections, of which at most one is given.
    pub(super) fn of(basic: Option<&BasicAuth>, authorization: Option<&Authorization>) -> Self {
        match (basic, authorization) {
            (Some(basic), _) => Credentials::Basic {
                user: Part::new(&basic.username.as_str().into(), &basic.username_file),
                password: Part::new(&basic.password, &basic.password_file),
            },
            (None, Some(authorization)) => Credentials::Token {
                scheme: authorization.scheme.trim().to_owned(),
                token: Part::new(&authorization.credentials, &authorization.credentials_file),
            },
            (None, None) => Credentials::None,
        }
    }

    /// Returns the header. Files are read each time, on a blocking thread.
    ///
    /// # Errors
    /// A sentence that names the file and the reason.
    pub(super) async fn header(&self) -> Result<Option<HeaderValue>, String> {
        let has_file = match self {
            Credentials::None => return Ok(None),
            Credentials::Basic { user, password } => user.is_file() || password.is_file(),
            Credentials::Token { token, .. } => token.is_file(),
        };
        if !has_file {
            return self.read().map(Some);
        }
        let own = self.clone();
        let read = tokio::task::spawn_blocking(move || own.read());
        let header = read
            .await
            .unwrap_or_else(|_| Err("the collector is shutting down".to_owned()));
        header.map(Some)
    }

    fn read(&self) -> Result<HeaderValue, String> {
        let text = match self {
            Credentials::None => String::new(),
            Credentials::Basic { user, password } => {
                let pair = format!("{}:{}", user.read()?, password.read()?);
                format!("Basic {}", STANDARD.encode(pair))
            }
            Credentials::Token { scheme, token } => format!("{scheme} {}", token.read()?),
        };
        let header = HeaderValue::try_from(text);
        let mut header = header
            .map_err(|_| "the credentials have characters that a header cannot have".to_owned())?;
        header.set_sensitive(true);
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn credentials_come_from_texts_and_files() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "from-file\n").unwrap();
        let basic = BasicAuth {
            username: "jane".to_owned(),
            password_file: file.clone(),
            ..BasicAuth::default()
        };
        let header = |credentials: Credentials| async move {
            let header = credentials.header().await.unwrap();
            header.map(|header| header.to_str().unwrap().to_owned())
        };
        let made = header(Credentials::of(Some(&basic), None)).await;
        assert_eq!(made.as_deref(), Some("Basic amFuZTpmcm9tLWZpbGU="));
        let token = Authorization {
            credentials_file: file.clone(),
            ..Authorization::default()
        };
        let token = Credentials::of(None, Some(&token));
        assert_eq!(
            header(token.clone()).await.as_deref(),
            Some("Bearer from-file")
        );
        std::fs::write(&file, "renewed").unwrap();
        assert_eq!(
            header(token.clone()).await.as_deref(),
            Some("Bearer renewed")
        );
        std::fs::remove_file(&file).unwrap();
        assert!(token.header().await.unwrap_err().contains("token"));
        assert_eq!(header(Credentials::None).await, None);
    }
}
