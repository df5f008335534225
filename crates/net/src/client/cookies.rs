//! Cookies of the servers that a client sends to (RFC 6265), for load balancers that route a client to the same
//! backend.

use std::time::{Duration, SystemTime};

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Uri};
use parking_lot::Mutex;

/// Maximum number of cookies of a client, and maximum size of a cookie in bytes: the minimum that RFC 6265,
/// 6.1, requires of browsers.
const MAX_COOKIES: usize = 50;
const COOKIE_BYTES: usize = 4096;

/// Cookies in memory. A cookie is sent only to the host that set it, even if its `Domain` attribute allows more hosts.
#[derive(Debug, Default)]
pub struct CookieJar(Mutex<Vec<Cookie>>);

#[derive(Debug)]
struct Cookie {
    host: String,
    name: String,
    value: String,
    path: String,
    is_secure: bool,
    expires: Option<SystemTime>,
}

impl CookieJar {
    /// Stores the cookies of a response from `url`.
    pub fn store(&self, url: &Uri, headers: &HeaderMap) {
        let mut found = headers.get_all(SET_COOKIE).iter().peekable();
        if found.peek().is_none() {
            return;
        }
        let mut cookies = self.0.lock();
        for value in found {
            let parsed = value.to_str().ok().and_then(|text| parse(url, text));
            let Some(cookie) = parsed else { continue };
            cookies.retain(|known| {
                (&known.host, &known.name, &known.path)
                    != (&cookie.host, &cookie.name, &cookie.path)
            });
            if is_current(&cookie) {
                if cookies.len() >= MAX_COOKIES {
                    cookies.remove(0);
                }
                cookies.push(cookie);
            }
        }
    }

    /// Adds the cookies for `url` to the headers of a request, after the configured cookies.
    pub fn add(&self, url: &Uri, headers: &mut HeaderMap) {
        let mut cookies = self.0.lock();
        if cookies.is_empty() {
            return;
        }
        cookies.retain(is_current);
        let mut fitting: Vec<&Cookie> = cookies.iter().filter(|cookie| fits(cookie, url)).collect();
        // Longer paths first: RFC 6265, 5.4.
        fitting.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        let configured = headers.get(COOKIE).and_then(|value| value.to_str().ok());
        let all = configured.map(str::to_owned).into_iter();
        let all = all.chain(
            fitting
                .iter()
                .map(|cookie| format!("{}={}", cookie.name, cookie.value)),
        );
        let all: Vec<String> = all.collect();
        if fitting.is_empty() {
            return;
        }
        if let Ok(mut value) = HeaderValue::try_from(all.join("; ")) {
            value.set_sensitive(true);
            headers.insert(COOKIE, value);
        }
    }
}

fn is_current(cookie: &Cookie) -> bool {
    cookie.expires.is_none_or(|end| end > SystemTime::now())
}

fn host(url: &Uri) -> String {
    url.host().unwrap_or_default().to_ascii_lowercase()
}

fn fits(cookie: &Cookie, url: &Uri) -> bool {
    let path = url.path();
    let is_below = path
        .strip_prefix(&*cookie.path)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || cookie.path.ends_with('/'));
    cookie.host == host(url) && is_below && (!cookie.is_secure || url.scheme_str() == Some("https"))
}

/// Parses a `Set-Cookie` header; `None` if the header is malformed or for another host.
fn parse(url: &Uri, text: &str) -> Option<Cookie> {
    if text.len() > COOKIE_BYTES {
        return None;
    }
    let mut parts = text.split(';');
    let (name, value) = parts.next()?.split_once('=')?;
    let path = url.path();
    let mut cookie = Cookie {
        host: host(url),
        name: name.trim().to_owned(),
        value: value.trim().to_owned(),
        path: match path.rfind('/') {
            None | Some(0) => "/".to_owned(),
            Some(end) => path.get(..end).unwrap_or("/").to_owned(),
        },
        is_secure: false,
        expires: None,
    };
    let mut age = None;
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim();
        match key.trim().to_ascii_lowercase().as_str() {
            "path" if value.starts_with('/') => value.clone_into(&mut cookie.path),
            "secure" => cookie.is_secure = true,
            "expires" => cookie.expires = httpdate::parse_http_date(value).ok().or(cookie.expires),
            "max-age" => age = value.parse::<i64>().ok().or(age),
            "domain" if !is_within(&cookie.host, value) => return None,
            _ => {}
        }
    }
    // Max-Age takes precedence over Expires.
    if let Some(seconds) = age {
        let age = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        cookie.expires = match SystemTime::now().checked_add(age) {
            Some(_) if seconds <= 0 => Some(SystemTime::UNIX_EPOCH),
            end => end,
        };
    }
    (!cookie.name.is_empty()).then_some(cookie)
}

fn is_within(host: &str, domain: &str) -> bool {
    let domain = domain
        .strip_prefix('.')
        .unwrap_or(domain)
        .to_ascii_lowercase();
    domain.is_empty()
        || host == domain
        || host
            .strip_suffix(&*domain)
            .is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(jar: &CookieJar, url: &'static str) -> Option<String> {
        let mut headers = HeaderMap::new();
        jar.add(&Uri::from_static(url), &mut headers);
        headers
            .get(COOKIE)
            .map(|value| value.to_str().unwrap().to_owned())
    }

    fn jar(url: &'static str, cookies: &[&'static str]) -> CookieJar {
        let jar = CookieJar::default();
        set(&jar, url, cookies);
        jar
    }

    fn set(jar: &CookieJar, url: &'static str, cookies: &[&'static str]) {
        let mut headers = HeaderMap::new();
        for cookie in cookies {
            headers.append(SET_COOKIE, HeaderValue::from_static(cookie));
        }
        jar.store(&Uri::from_static(url), &headers);
    }

    #[test]
    fn cookie_is_sent_only_to_its_host_path_and_scheme() {
        let jar = jar(
            "https://a.test/v1/traces",
            &[
                "here=1",
                "all=2; Path=/",
                "tls=3; Secure; path=/v1",
                "other=4; Domain=b.test",
            ],
        );
        assert_eq!(
            sent(&jar, "https://a.test/v1/logs").unwrap(),
            "here=1; tls=3; all=2"
        );
        assert_eq!(
            sent(&jar, "http://A.test/v1/logs").unwrap(),
            "here=1; all=2"
        );
        assert_eq!(sent(&jar, "http://a.test/v1x").unwrap(), "all=2");
        assert_eq!(sent(&jar, "https://b.test/v1/logs"), None);
    }

    #[test]
    fn cookie_is_replaced_and_expires() {
        let url = "http://a.test/";
        let jar = jar(
            url,
            &[
                "x=1",
                "y=1; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
            ],
        );
        set(&jar, url, &["x=2"]);
        assert_eq!(sent(&jar, url).unwrap(), "y=1; x=2");
        set(
            &jar,
            url,
            &[
                "x=2; Max-Age=0",
                "y=; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
            ],
        );
        assert_eq!(sent(&jar, url), None);
    }

    #[test]
    fn number_of_cookies_is_bounded() {
        let jar = CookieJar::default();
        for at in 0..MAX_COOKIES + 5 {
            let mut headers = HeaderMap::new();
            headers.insert(
                SET_COOKIE,
                HeaderValue::try_from(format!("n{at}=1")).unwrap(),
            );
            jar.store(&Uri::from_static("http://a.test/"), &headers);
        }
        assert_eq!(jar.0.lock().len(), MAX_COOKIES);
    }
}
