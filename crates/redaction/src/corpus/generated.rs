//! Generates secrets by the rules of their issuers, and look-alikes, with a fixed seed.
//!
//! Token prefixes are concatenated from two parts, so that secret scanners do not report this file.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use fastrand::Rng;

use crate::Detector;

/// Number of texts of each kind per detector.
const COUNT: usize = 1000;

/// A text, and the part that redaction must remove; `None` for a look-alike.
pub(super) struct Sample {
    pub(super) text: String,
    pub(super) secret: Option<String>,
}

/// Returns the texts of a detector, secrets first.
pub(super) fn samples(detector: Detector) -> Vec<Sample> {
    let mut random = Random(Rng::with_seed(17 + detector as u64));
    let secrets = (0..COUNT).map(|_| {
        let (text, secret) = random.secret(detector);
        Sample {
            text: random.around(&text),
            secret: Some(secret),
        }
    });
    let mut samples: Vec<Sample> = secrets.collect();
    samples.extend((0..COUNT).map(|_| {
        let text = random.look_alike(detector);
        Sample {
            text: random.around(&text),
            secret: None,
        }
    }));
    samples
}

/// Returns ambiguous numbers, which only context distinguishes from a secret: name, detector and texts.
pub(super) fn ambiguous() -> Vec<(&'static str, Detector, Vec<String>)> {
    let mut random = Random(Rng::with_seed(5));
    let mut all = |make: fn(&mut Random) -> String| (0..COUNT).map(|_| make(&mut random)).collect();
    vec![
        (
            "16 random digits in one piece",
            Detector::CreditCard,
            all(|random| random.digits(16)),
        ),
        (
            "part numbers of 3, 2 and 4 digits",
            Detector::UsSsn,
            all(|random| random.shape("ddd-dd-dddd")),
        ),
        (
            "versions of four numbers",
            Detector::IpAddress,
            all(|random| {
                let mut number = |to: u32| random.0.u32(..to);
                format!(
                    "{}.{}.{}.{}",
                    number(30),
                    number(30),
                    number(100),
                    number(100)
                )
            }),
        ),
    ]
}

const LOWER: &str = "abcdefghijklmnopqrstuvwxyz";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const ALPHANUMERIC: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const HEX: &str = "0123456789abcdef";
const BASE32: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

const NAMES: [&str; 12] = [
    "jane", "olga", "tomas", "yuki", "chen", "maria", "ahmed", "ingrid", "pavel", "lucia", "noah",
    "fatima",
];
const SURNAMES: [&str; 8] = [
    "doe", "roe", "silva", "novak", "tanaka", "smith", "garcia", "khan",
];
const WORDS: [&str; 16] = [
    "checkout", "payment", "order", "session", "worker", "queue", "service", "gateway", "cluster",
    "catalog", "shipping", "account", "search", "metrics", "storage", "frontend",
];

struct Random(Rng);

impl Random {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.0.usize(..from.len())]
    }

    fn chars(&mut self, alphabet: &str, length: usize) -> String {
        let alphabet = alphabet.as_bytes();
        (0..length)
            .map(|_| char::from(alphabet[self.0.usize(..alphabet.len())]))
            .collect()
    }

    fn digits(&mut self, length: usize) -> String {
        let first = self.chars("123456789", 1);
        first + &self.chars("0123456789", length - 1)
    }

    fn base64(&mut self, bytes: usize) -> String {
        let bytes: Vec<u8> = (0..bytes).map(|_| self.0.u8(..)).collect();
        STANDARD.encode(bytes)
    }

    /// Replaces each `d` by a digit; a number does not begin with 0.
    fn shape(&mut self, shape: &str) -> String {
        let mut before = ' ';
        let digits = shape.chars().map(|letter| {
            let digit = match (letter, before.is_ascii_digit() || before == 'd') {
                ('d', true) => char::from(b'0' + self.0.u8(..10)),
                ('d', false) => char::from(b'1' + self.0.u8(..9)),
                (other, _) => other,
            };
            before = letter;
            digit
        });
        digits.collect()
    }

    fn kebab(&mut self, words: usize) -> String {
        let words: Vec<&str> = (0..words).map(|_| self.pick(&WORDS)).collect();
        words.join("-")
    }

    fn uuid(&mut self) -> String {
        [8, 4, 4, 4, 12]
            .map(|length| self.chars(HEX, length))
            .join("-")
    }

    /// Returns surroundings of a value as in logs and attributes.
    fn around(&mut self, text: &str) -> String {
        match self.0.u8(..8) {
            0 => format!("[{text}]"),
            1 => format!("\"{text}\""),
            2 => format!("step 3 {text}"),
            3 => format!("<{text}>"),
            4 => format!("request failed, {text}"),
            5 => format!("{text}\nnext line"),
            _ => text.to_owned(),
        }
    }

    fn password(&mut self) -> String {
        match self.0.u8(..4) {
            0 => format!("{}{}", self.pick(&WORDS), self.0.u32(10..9999)),
            1 => self.chars(&format!("{ALPHANUMERIC}!#*-_"), 12) + "7x",
            2 => self.chars(ALPHANUMERIC, 16) + "3q",
            _ => format!("{}-{}!", self.pick(&NAMES), self.0.u32(100..999)),
        }
    }

    /// Assigns a value to a name in one of the usual notations.
    fn assigned(&mut self, name: &str, value: &str) -> String {
        match self.0.u8(..9) {
            0 => format!("{name}={value}"),
            1 => format!("\"{name}\":\"{value}\""),
            2 => format!("\"{name}\": \"{value}\", \"retries\": 3"),
            3 => format!("{name}: '{value}'"),
            4 => format!("{name} = \"{value}\""),
            5 => format!("https://api.example.com/v1?{name}={value}&page=2"),
            6 => format!("\\\"{name}\\\":\\\"{value}\\\""),
            7 => format!("Server=db;{name}={value};Timeout=30"),
            _ => format!("{{'{name}': '{value}'}}"),
        }
    }

    fn secret(&mut self, detector: Detector) -> (String, String) {
        let same = |text: String| (text.clone(), text);
        match detector {
            Detector::PrivateKey => {
                let label = self.pick(&["RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED ", "DSA "]);
                let lines = self.0.usize(3..30);
                let body: Vec<String> = (0..lines).map(|_| self.base64(48)).collect();
                let line = self.pick(&["\n", "\n", "\\n", " ", "\r\n"]);
                let end = format!("-----END {label}PRIVATE KEY-----");
                let end = if self.0.u8(..4) == 0 { "" } else { &end };
                let text = format!(
                    "-----BEGIN {label}PRIVATE KEY-----{line}{}{line}{end}",
                    body.join(line)
                );
                (text, body[lines - 1].clone())
            }
            Detector::Jwt => {
                let algorithm = self.pick(&["HS256", "RS256", "ES384", "none", "EdDSA"]);
                let header = match self.0.u8(..6) {
                    0 => format!("{{\"alg\":\"{algorithm}\",\"typ\":\"JWT\"}}"),
                    1 => format!("{{ \"alg\": \"{algorithm}\", \"typ\": \"JWT\" }}"),
                    2 => format!("{{\n  \"alg\": \"{algorithm}\",\n  \"typ\": \"JWT\"\n}}"),
                    3 => format!("{{\r\n\t\"alg\": \"{algorithm}\"\r\n}}"),
                    4 => format!("{{\t\"kid\": \"17\", \"alg\": \"{algorithm}\" }}"),
                    _ => format!("{{\"typ\":\"JWT\",\"alg\":\"{algorithm}\",\"kid\":\"a\"}}"),
                };
                let payload = format!(
                    "{{\"sub\":\"{}\",\"iat\":{}}}",
                    self.0.u32(..),
                    self.0.u32(..)
                );
                let signature = self.base64(32).replace(['+', '/'], "-").replace('=', "");
                let [header, payload] = [header, payload].map(|part| URL_SAFE_NO_PAD.encode(part));
                (format!("{header}.{payload}.{signature}"), signature)
            }
            Detector::AwsAccessKey => {
                let prefix = self.pick(&["AK", "AS", "AB"]);
                same(format!("{prefix}IA{}", self.chars(BASE32, 16)))
            }
            Detector::AwsSecretKey => {
                let value = self.base64(30);
                if self.0.u8(..5) == 0 {
                    let id = format!("AK{}{}", "IA", self.chars(BASE32, 16));
                    let sign = self.pick(&[":", " ", ", ", " secret ", "\n"]);
                    return (format!("{id}{sign}{value}"), value);
                }
                let name = self.pick(&[
                    "aws_secret_access_key",
                    "AWS_SECRET_ACCESS_KEY",
                    "SecretAccessKey",
                    "secretAccessKey",
                    "aws_secret_key",
                    "secret_access_key",
                ]);
                (self.assigned(name, &value), value)
            }
            Detector::GcpApiKey => same(format!(
                "AI{}{}",
                "za",
                self.chars(&format!("{ALPHANUMERIC}_-"), 35)
            )),
            Detector::AzureKey => match self.0.u8(..3) {
                0 => {
                    let value = self.base64(64);
                    let name = self.pick(&["AccountKey", "SharedAccessKey", "accountKey"]);
                    let end = self.pick(&[";EndpointSuffix=core.windows.net", ""]);
                    (format!("AccountName=shop;{name}={value}{end}"), value)
                }
                1 => {
                    let value = self
                        .base64(32)
                        .replace('+', "%2B")
                        .replace('/', "%2F")
                        .replace('=', "%3D");
                    let text = format!(
                        "https://shop.blob.core.windows.net/a?sv=2022-11-02&se=2026-12-01&sr=b&sp=r&sig={value}"
                    );
                    (text, value)
                }
                _ => {
                    let tail = self.chars(&format!("{ALPHANUMERIC}_~-"), 33) + "a";
                    let head = self.chars(ALPHANUMERIC, 3);
                    same(format!("{head}8{}{tail}", "Q~"))
                }
            },
            Detector::GithubToken => match self.0.u8(..4) {
                0 => same(format!(
                    "github_{}_{}_{}",
                    "pat",
                    self.chars(ALPHANUMERIC, 22),
                    self.chars(ALPHANUMERIC, 59)
                )),
                _ => {
                    let kind = self.pick(&["p", "o", "u", "s", "r"]);
                    let body = self.chars(ALPHANUMERIC, 30);
                    let mut sum = flate2::Crc::new();
                    sum.update(body.as_bytes());
                    let mut left = sum.sum() as usize;
                    let mut check = Vec::new();
                    for _ in 0..6 {
                        let digits =
                            b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
                        check.insert(0, char::from(digits[left % 62]));
                        left /= 62;
                    }
                    same(format!(
                        "gh{kind}_{body}{}",
                        check.iter().collect::<String>()
                    ))
                }
            },
            Detector::GitlabToken => {
                let prefix = self.pick(&["pat", "dt", "rt", "cbt", "soat", "ft"]);
                let body = self.chars(&format!("{ALPHANUMERIC}_-"), 20);
                same(format!("gl{prefix}-{body}"))
            }
            Detector::NpmToken => same(format!("np{}{}", "m_", self.chars(ALPHANUMERIC, 36))),
            Detector::PypiToken => {
                let length = self.0.usize(100..160);
                let body = self.chars(&format!("{ALPHANUMERIC}_-"), length);
                same(format!("pypi-{}cHlwaS5vcmc{body}", "AgEI"))
            }
            Detector::SlackToken => match self.0.u8(..3) {
                0 => {
                    let path = format!(
                        "T{}/B{}/{}",
                        self.chars(&UPPER[..9], 8),
                        self.digits(8),
                        self.chars(ALPHANUMERIC, 24)
                    );
                    (
                        format!("https://hooks.{}.com/services/{path}", "slack"),
                        path,
                    )
                }
                1 => same(format!(
                    "xa{}-1-A{}-{}-{}",
                    "pp",
                    self.digits(9),
                    self.digits(13),
                    self.chars(HEX, 64)
                )),
                _ => {
                    let kind = self.pick(&["b", "p", "a", "r", "s"]);
                    same(format!(
                        "xo{}{kind}-{}-{}-{}",
                        "x",
                        self.digits(12),
                        self.digits(13),
                        self.chars(ALPHANUMERIC, 24)
                    ))
                }
            },
            Detector::StripeKey => match self.0.u8(..5) {
                0 => same(format!("wh{}_{}", "sec", self.chars(ALPHANUMERIC, 32))),
                1 => same(format!(
                    "sk_{}_{}",
                    "live",
                    self.chars(&format!("{UPPER}{LOWER}"), 24)
                )),
                _ => {
                    let kind = self.pick(&["sk", "rk"]);
                    let mode = self.pick(&["live", "test"]);
                    let length = self.0.usize(24..100);
                    same(format!(
                        "{kind}_{mode}_{}",
                        self.chars(ALPHANUMERIC, length)
                    ))
                }
            },
            Detector::BasicAuth => {
                let value = STANDARD.encode(format!("{}:{}", self.pick(&NAMES), self.password()));
                (format!("Authorization: Basic {value}"), value)
            }
            Detector::BearerToken => {
                let value = match self.0.u8(..3) {
                    0 => self.chars(HEX, 32) + "7",
                    1 => self.base64(30),
                    _ => self.chars(&format!("{ALPHANUMERIC}._-"), 40) + "4z",
                };
                let name = self.pick(&[
                    "Authorization: Bearer",
                    "authorization=bearer",
                    "Bearer",
                    "BEARER",
                ]);
                (format!("{name} {value}"), value)
            }
            Detector::UrlCredentials => {
                let password = self.password();
                let scheme =
                    self.pick(&["postgres", "https", "redis", "amqp", "mongodb+srv", "ftp"]);
                let user = self.pick(&NAMES);
                (
                    format!("{scheme}://{user}:{password}@db.example.com:5432/shop"),
                    password,
                )
            }
            Detector::AssignedSecret => {
                let (name, value) = if self.0.bool() {
                    let names = [
                        "password",
                        "PASSWORD",
                        "db_password",
                        "Pwd",
                        "passwd",
                        "spring.datasource.password",
                        "user_pass",
                        "passphrase",
                        "dbPassword",
                    ];
                    (self.pick(&names), self.password())
                } else {
                    let names = [
                        "api_key",
                        "apikey",
                        "X-Api-Key",
                        "client_secret",
                        "access_token",
                        "auth-token",
                        "secret",
                        "API_KEY",
                        "clientSecret",
                        "refreshToken",
                        "signing_key",
                    ];
                    let value = match self.0.u8(..3) {
                        0 => self.chars(HEX, 32) + "07",
                        1 => self.chars(ALPHANUMERIC, 40),
                        _ => self.uuid(),
                    };
                    (self.pick(&names), value)
                };
                (self.assigned(name, &value), value)
            }
            Detector::Email => {
                let tag = self.pick(&["", "", "+shop", ".2", "_x"]);
                let user = format!("{}.{}{tag}", self.pick(&NAMES), self.pick(&SURNAMES));
                let host = self.pick(&[
                    "example.com",
                    "mail.example.org",
                    "example.co.uk",
                    "firma.example.de",
                ]);
                same(format!("{user}@{host}"))
            }
            Detector::Iban => {
                let (country, bank, digits) = [
                    ("DE", "", 18),
                    ("GB", "NWBK", 14),
                    ("NL", "ABNA", 10),
                    ("ES", "", 20),
                    ("AT", "", 16),
                    ("BE", "", 12),
                    ("PL", "", 24),
                    ("CH", "", 17),
                    ("PT", "", 21),
                    ("DK", "", 14),
                ][self.0.usize(..10)];
                let body = format!("{bank}{}", self.digits(digits));
                let check = 98 - super::super::detect::mod97(format!("{body}{country}00").bytes());
                let text = format!("{country}{check:02}{body}");
                let grouped: Vec<&str> = text
                    .as_bytes()
                    .chunks(4)
                    .map(|chunk| std::str::from_utf8(chunk).unwrap())
                    .collect();
                match self.0.u8(..2) {
                    0 => (text.clone(), text),
                    _ => same(grouped.join(" ")),
                }
            }
            Detector::CreditCard => {
                let (prefix, length) = [
                    ("4", 16),
                    ("51", 16),
                    ("55", 16),
                    ("2223", 16),
                    ("37", 15),
                    ("34", 15),
                    ("6011", 16),
                    ("65", 16),
                    ("3530", 16),
                    ("305", 14),
                    ("36", 14),
                    ("6212", 16),
                ][self.0.usize(..12)];
                let number = self.card(prefix, length);
                let group = |sizes: &[usize], by: &str| {
                    let mut at = 0;
                    let groups = sizes.iter().map(|size| {
                        at += size;
                        number[at - size..at].to_owned()
                    });
                    groups.collect::<Vec<_>>().join(by)
                };
                let by = self.pick(&[" ", "-"]);
                let sizes: &[usize] = match length {
                    16 => &[4, 4, 4, 4],
                    15 => &[4, 6, 5],
                    _ => &[4, 6, 4],
                };
                match self.0.u8(..8) {
                    0 => (
                        format!("%B{number}^DOE/JANE^2812101{}?", self.digits(12)),
                        number,
                    ),
                    1 => (format!(";{number}=2812101{}?", self.digits(8)), number),
                    2..=4 => same(group(sizes, by)),
                    5 => (format!("card={number}"), number),
                    6 => (format!("{{\"pan\":\"{number}\"}}"), number),
                    _ => same(number),
                }
            }
            Detector::UsSsn => {
                let area = loop {
                    let area = self.0.u32(1..900);
                    if area != 666 {
                        break area;
                    }
                };
                let by = self.pick(&["-", "-", " "]);
                let number = format!(
                    "{area:03}{by}{:02}{by}{:04}",
                    self.0.u32(1..100),
                    self.0.u32(1..10000)
                );
                let before =
                    self.pick(&["", "SSN: ", "ssn=", "taxpayer ", "social security number "]);
                (format!("{before}{number}"), number)
            }
            Detector::MacAddress => {
                let bytes: Vec<String> = (0..6).map(|_| self.chars(HEX, 2)).collect();
                match self.0.u8(..4) {
                    0 => same(bytes.join("-").to_uppercase()),
                    1 => same(format!(
                        "{}a{}.{}.{}",
                        &bytes[0][..1],
                        &bytes[1],
                        bytes[2..4].concat(),
                        bytes[4..].concat()
                    )),
                    _ => same(format!("5a:{}", bytes[1..].join(":"))),
                }
            }
            Detector::IpAddress => {
                let address = match self.0.u8(..4) {
                    0 => format!("10.{}.{}.{}", self.0.u8(..), self.0.u8(..), self.0.u8(1..)),
                    1 => format!("192.168.{}.{}", self.0.u8(..), self.0.u8(1..)),
                    2 => format!(
                        "2001:db8:{}:{}::{}",
                        self.chars(HEX, 3),
                        self.chars("123456789", 2),
                        self.chars("123456789", 3)
                    ),
                    _ => format!(
                        "{}.{}.{}.{}",
                        self.0.u8(31..120),
                        self.0.u8(..),
                        self.0.u8(..),
                        self.0.u8(1..)
                    ),
                };
                let v6 = address.contains(':');
                let text = match self.0.u8(..6) {
                    0 if v6 => format!("[{address}]:443"),
                    0 => format!("{address}:443"),
                    1 => format!("client {address} connected"),
                    2 => format!("{{\"ip\":\"{address}\"}}"),
                    3 => format!("dial tcp {address}: i/o timeout").replace(": i", " i"),
                    4 => format!("src={address} dst=eth0"),
                    _ => address.clone(),
                };
                (text, address)
            }
            Detector::Phone => {
                let shape = self.pick(&[
                    "+49 30 dddddddd",
                    "+4915ddddddddd",
                    "+44 20 dddd dddd",
                    "+33 1 dd dd dd dd",
                    "0049 30 ddddddd",
                    "020 7dd6 0ddd",
                    "0151/2dddddd",
                    "01 23 4d dd dd",
                    "(030) 1dddddd",
                    "+81-3-dddd-dddd",
                ]);
                same(match self.0.u8(..3) {
                    0 => {
                        let area = format!("{}{}5", self.0.u8(2..10), self.0.u8(..9));
                        let rest = format!("{}42-{:04}", self.0.u8(2..10), self.0.u32(..10000));
                        match self.0.u8(..3) {
                            0 => format!("({area}) {rest}"),
                            1 => format!("+1 {area} {}", rest.replace('-', " ")),
                            _ => format!("{area}-{rest}"),
                        }
                    }
                    _ => self.shape(shape),
                })
            }
            Detector::HomeDirectory => {
                let name = self.pick(&NAMES);
                let surname = self.pick(&SURNAMES);
                let text = match self.0.u8(..8) {
                    0 => format!("C:\\Users\\{name} {surname}\\Desktop"),
                    1 => format!("C:\\Users\\{name}.{surname}\\AppData"),
                    2 => format!("C:\\\\Users\\\\{name} {surname}\\\\x"),
                    3 => format!("/Users/{name}{surname}/src"),
                    4 => format!("file:///home/{name}-{surname}/x.txt"),
                    5 => format!("open /home/{name}.{surname}: no such file"),
                    6 => format!("HOME=/home/{name}{surname}"),
                    _ => format!("/home/{name}{surname}/go/main.go"),
                };
                (text, surname.to_owned())
            }
            Detector::HighEntropy => {
                let length = self.0.usize(32..64);
                same(self.chars(ALPHANUMERIC, length))
            }
        }
    }

    /// Returns a card number with its check digit.
    fn card(&mut self, prefix: &str, length: usize) -> String {
        let body = format!(
            "{prefix}{}",
            self.chars("0123456789", length - prefix.len() - 1)
        );
        let fits = |digit: &u8| super::super::detect::luhn(format!("{body}{digit}").bytes());
        let digit = (0..10).find(fits).unwrap_or_default();
        format!("{body}{digit}")
    }

    fn look_alike(&mut self, detector: Detector) -> String {
        if self.0.u8(..5) == 0 {
            return match self.0.u8(..8) {
                0 => self.uuid(),
                1 => self.chars(HEX, 32),
                2 => self.kebab(3),
                3 => format!(
                    "2026-11-{:02}T{:02}:08:26.123456Z",
                    self.0.u8(1..31),
                    self.0.u8(..24)
                ),
                4 => format!(
                    "/api/v{}/{}/{}",
                    self.0.u8(1..4),
                    self.pick(&WORDS),
                    self.0.u32(..)
                ),
                5 => format!("17{}", self.digits(14)),
                6 => format!(
                    "{}: {} of {}",
                    self.pick(&WORDS),
                    self.0.u16(..),
                    self.0.u16(..)
                ),
                _ => format!("com.example.{}.{}", self.pick(&WORDS), self.pick(&WORDS)),
            };
        }
        let word = self.pick(&WORDS);
        let number = self.0.u32(100..99999);
        match detector {
            Detector::PrivateKey => {
                let label = self.pick(&[
                    "PUBLIC KEY",
                    "CERTIFICATE",
                    "RSA PUBLIC KEY",
                    "X509 CRL",
                    "CERTIFICATE REQUEST",
                ]);
                format!(
                    "-----BEGIN {label}-----\n{}\n-----END {label}-----",
                    self.base64(48)
                )
            }
            Detector::Jwt => {
                let object = format!("{{\"id\":{number},\"name\":\"{word}\"}}");
                let part = URL_SAFE_NO_PAD.encode(object);
                match self.0.u8(..4) {
                    0 => part,
                    1 => format!("{part}.{}", self.chars(ALPHANUMERIC, 30)),
                    2 => format!("eyJ{}.{}", self.chars(LOWER, 9), self.pick(&WORDS)),
                    _ => format!("ewe.{word}.example.com"),
                }
            }
            Detector::AwsAccessKey => match self.0.u8(..4) {
                0 => format!("AK{}{}", "IA", self.chars(BASE32, 12)),
                1 => format!("AK{}{}", "IA", self.chars(LOWER, 16)),
                2 => format!("AR{}{}", "OA", self.chars(BASE32, 16)),
                _ => format!("ASIA_{}_{number}", word.to_uppercase()),
            },
            Detector::AwsSecretKey => match self.0.u8(..5) {
                0 => format!("commit={}", self.chars(HEX, 40)),
                1 => format!("secret_key={}", self.chars(HEX, 40)),
                2 => format!("aws_secret_access_key=${{env:SECRET_{number}}}"),
                3 => format!("etag: {}", self.base64(30)),
                _ => format!("aws_secret_name: prod/{word}/{number}"),
            },
            Detector::GcpApiKey => {
                let length = [20, 30, 34, 36, 40][self.0.usize(..5)];
                format!("AI{}{}", "za", self.chars(ALPHANUMERIC, length))
            }
            Detector::AzureKey => match self.0.u8(..6) {
                0 => format!("AccountName={word};AccountKey=****"),
                1 => format!("https://h/?sig={number}"),
                2 => format!("AccountKey=${{KEY_{number}}}"),
                3 => format!("{word}~{number}~{}", self.chars(LOWER, 31)),
                4 => format!("PublicKey={}", self.base64(32)),
                _ => format!("sign={}", self.chars(HEX, 64)),
            },
            Detector::GithubToken => match self.0.u8(..4) {
                0 => format!("ghp_{}", "x".repeat(36)),
                1 => format!("ghp_{}", self.chars(ALPHANUMERIC, 20)),
                2 => format!("gha_{}", self.chars(ALPHANUMERIC, 36)),
                _ => format!("github_path_{word}_{number}"),
            },
            Detector::GitlabToken => match self.0.u8(..5) {
                0 => "glpat-your-token-here".to_owned(),
                1 => format!("glpat-{}", self.chars(ALPHANUMERIC, 12)),
                2 => format!("client-{}", self.kebab(3)),
                3 => format!("default-{}-{}", self.kebab(2), self.chars(HEX, 10)),
                _ => format!("glpat-{}", "x".repeat(20)),
            },
            Detector::NpmToken => match self.0.u8(..4) {
                0 => format!("npm_config_{word}_{number}"),
                1 => format!("npm_package_{word}"),
                2 => format!("npm_{}", self.chars(LOWER, 36)),
                _ => format!("npm_{}", self.chars(ALPHANUMERIC, 30)),
            },
            Detector::PypiToken => match self.0.u8(..3) {
                0 => format!("pypi-server-{}-{number}", self.kebab(2)),
                1 => format!("pypi-mirror.{word}.example.com"),
                _ => format!(
                    "pypi-{}",
                    self.chars(ALPHANUMERIC, 60).replacen('A', "B", 9)
                ),
            },
            Detector::SlackToken => match self.0.u8(..4) {
                0 => "xoxb-your-token-goes-here".to_owned(),
                1 => format!("xoxo-{}", self.kebab(2)),
                2 => format!("https://slack.com/services/{word}"),
                _ => format!("xoxb-{}", self.digits(6)),
            },
            Detector::StripeKey => match self.0.u8(..5) {
                0 => format!("pk_{}_{}", "live", self.chars(ALPHANUMERIC, 24)),
                1 => format!("sk_{}_YourSecretKeyGoesHere", "test"),
                2 => format!("task_live_{}", self.chars(HEX, 24)),
                3 => format!("sk_{}_{}", "test", "x".repeat(24)),
                _ => format!("sk_{}_{}", "live", self.chars(ALPHANUMERIC, 8)),
            },
            Detector::BasicAuth => match self.0.u8(..3) {
                0 => format!("Basic {word} plan"),
                1 => format!("Basic realm=\"{word}\""),
                _ => format!("basic {}", self.chars(LOWER, 8)),
            },
            Detector::BearerToken => match self.0.u8(..4) {
                0 => format!(
                    "Bearer {}",
                    self.pick(&["token", "authentication", "credentials", "missing"])
                ),
                1 => format!("Bearer realm=\"{word}\", error=\"invalid_token\""),
                2 => format!("the bearer of {word} {number}"),
                _ => format!("Bearer ${{TOKEN_{number}}}"),
            },
            Detector::UrlCredentials => match self.0.u8(..5) {
                0 => format!("https://{word}.example.com:8080/a@b/{number}"),
                1 => format!("postgres://{word}@db.example.com/shop"),
                2 => format!("redis://${{USER}}:${{PASSWORD}}@{word}:6379/0"),
                3 => format!("https://{word}:****@example.com/x"),
                _ => format!("https://example.com/?to=jane@example.com&n={number}"),
            },
            Detector::AssignedSecret => match self.0.u8(..20) {
                0 => "password=****".to_owned(),
                1 => format!("password=${{env:PASSWORD_{number}}}"),
                2 => "Password: required".to_owned(),
                3 => format!("max_tokens={number}"),
                4 => format!("token_count: {number}"),
                5 => format!("secret: {}", self.kebab(2)),
                6 => format!("unexpected token: {word}"),
                7 => "UPDATE users SET password = ? WHERE id = ?".to_owned(),
                8 => format!("pwd=/srv/{word}"),
                9 => format!("bypass=true&compass={word}"),
                10 => "\"password\":null,\"token\":\"\"".to_owned(),
                11 => "token_type=bearer".to_owned(),
                12 => format!("passed={number} failed=0"),
                13 => format!("primary_key={number}"),
                14 => format!("key={word}-{number}"),
                15 => "error: invalid password: must be at least 8 characters".to_owned(),
                16 => format!("password_file=/run/secrets/{word}"),
                17 => format!("token=/var/run/secrets/{word}/token"),
                18 => format!("partition_key: {word}#{number}"),
                _ => format!("token: {word} expired"),
            },
            Detector::Email => match self.0.u8(..6) {
                0 => format!("memcpy@GLIBC_2.{}", self.0.u8(2..40)),
                1 => format!(
                    "{word}@{}.{}.{}",
                    self.0.u8(1..9),
                    self.0.u8(..30),
                    self.0.u8(..30)
                ),
                2 => format!("{word}@localhost"),
                3 => format!("registry.example.com/{word}@sha256:{}", self.chars(HEX, 64)),
                4 => format!("@{word}/core"),
                _ => format!("{number} req@s"),
            },
            Detector::Iban => {
                let check = self.0.u32(2..99);
                let body = self.digits(18);
                let right = 98 - super::super::detect::mod97(format!("{body}DE00").bytes());
                let check = if check == right {
                    check % 97 + 1
                } else {
                    check
                };
                match self.0.u8(..3) {
                    0 => format!("XX{check:02}{body}"),
                    1 => format!("DE{check:02}{}", self.digits(12)),
                    _ => format!("DE{check:02}{body}"),
                }
            }
            Detector::CreditCard => {
                let prefix = self.pick(&["4", "51", "6011", "55"]);
                let card = self.card(prefix, 16);
                let counter = self.pick(&[
                    "order",
                    "trace",
                    "order_id=",
                    "request id",
                    "seq:",
                    "invoice #",
                    "session_id:",
                    "\"timestamp\":",
                ]);
                match self.0.u8(..6) {
                    0 => format!("{counter} {card}"),
                    1 => {
                        let wrong = (card.as_bytes()[15] - b'0' + self.0.u8(1..10)) % 10;
                        format!("{}{wrong}", &card[..15])
                    }
                    2 => format!("id{}", self.digits(15)),
                    3 => format!("{card}.{number}"),
                    4 => self.shape("dddd-dddd-dddd").to_owned(),
                    _ => format!("x{card}"),
                }
            }
            Detector::UsSsn => match self.0.u8(..5) {
                0 => format!("9{}", self.shape("dd-dd-dddd")),
                1 => {
                    let word = self.pick(&[
                        "part",
                        "part no.",
                        "SKU",
                        "item #",
                        "model",
                        "serial number",
                        "order",
                        "P/N",
                        "part number:",
                    ]);
                    format!("{word} {}", self.shape("ddd-dd-dddd"))
                }
                2 => self.shape("ddd-ddd-dddd"),
                3 => self.shape("dddd-dd-dd"),
                _ => format!("{}-1", self.shape("ddd-dd-dddd")),
            },
            Detector::MacAddress => match self.0.u8(..4) {
                0 => (0..16)
                    .map(|_| self.chars(HEX, 2))
                    .collect::<Vec<_>>()
                    .join(":"),
                1 => format!(
                    "{:02}:{:02}:{:02}",
                    self.0.u8(..24),
                    self.0.u8(..60),
                    self.0.u8(..60)
                ),
                2 => "ff:ff:ff:ff:ff:ff".to_owned(),
                _ => self.shape("dddd.dddd.dddd"),
            },
            Detector::IpAddress => {
                let version = format!(
                    "{}.{}.{}.{}",
                    self.0.u8(1..30),
                    self.0.u8(..30),
                    self.0.u8(..100),
                    self.0.u8(..100)
                );
                match self.0.u8(..12) {
                    0 => format!("version {version}"),
                    1 => format!("\"appVersion\":\"{version}\""),
                    2 => format!("Chrome/{}.0.{}.0", self.0.u8(90..150), self.0.u8(..)),
                    3 => format!(
                        "upgraded from {}.{}.0.1 to 29.1.2.3",
                        self.0.u8(11..30),
                        self.0.u8(..)
                    ),
                    4 => format!("<Version>{version}</Version>"),
                    5 => format!("lib-{version}.jar"),
                    6 => format!("1.3.6.1.4.{}.{}", self.0.u8(..), self.0.u8(..)),
                    7 => format!("127.0.0.{}", self.0.u8(..)),
                    8 => format!("{word}>={version}"),
                    9 => format!("registry.example.com/{word}:{version}"),
                    10 => format!("Version={}.0.0.0, Culture=neutral", self.0.u8(1..20)),
                    _ => format!("std::{word}::Type{number}"),
                }
            }
            Detector::Phone => match self.0.u8(..6) {
                0 => format!("2026-{:02}-{:02}", self.0.u8(1..13), self.0.u8(1..29)),
                1 => format!("part {}", self.shape("2dd-3dd-dddd")),
                2 => self.digits(12),
                3 => format!("10.{}.{}.{}", self.0.u8(..), self.0.u8(..), self.0.u8(..)),
                4 => format!("build {}", self.shape("5dd-7dd-dddd")),
                _ => self.shape("1dd-ddd-dddd"),
            },
            Detector::HomeDirectory => match self.0.u8(..6) {
                0 => format!("GET /home/{word} HTTP/1.1"),
                1 => format!("https://example.com/home/{word}"),
                2 => format!(
                    "/home/{}",
                    self.pick(&[
                        "page",
                        "index.html",
                        "news",
                        "dashboard",
                        "settings?tab=1",
                        "login"
                    ])
                ),
                3 => "C:\\Users\\Public\\Documents".to_owned(),
                4 => format!("/api/home/{number}"),
                _ => format!("/homes/{word}"),
            },
            Detector::HighEntropy => match self.0.u8(..4) {
                0 => self.chars(HEX, 40),
                1 => self.kebab(4),
                2 => {
                    let words: Vec<String> = (0..4)
                        .map(|_| {
                            let word = self.pick(&WORDS);
                            word[..1].to_uppercase() + &word[1..]
                        })
                        .collect();
                    format!("{}{}", words.concat(), self.0.u8(..))
                }
                _ => format!(
                    "_ZN{}{word}{}{}E",
                    word.len(),
                    self.0.u8(3..20),
                    self.kebab(1)
                ),
            },
        }
    }
}
