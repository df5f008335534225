//! Cost of searching a text for private data.
//!
//! `cargo bench --bench redaction` prints nanoseconds per text (best and median over many runs)
//! and, if valgrind is on the path, instructions: for texts without and with private data, with all
//! detectors but `high_entropy` together, and for each detector alone. `cargo test --benches` runs
//! each step once.

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use tributary_config::Secret;
use tributary_redaction::{
    Detector, DetectorConfig, Hits, Scanner, ScannerSettings, SettingsError,
};

/// Typical attributes of spans.
const CLEAN: [&str; 24] = [
    "GET",
    "200",
    "/api/users",
    "/api/v1/orders/{order_id}/items",
    "service-17",
    "checkout",
    "production",
    "http.server.request.duration",
    "550e8400-e29b-41d4-a716-446655440000",
    "4bf92f3577b34da6a3ce929d0e0e4736",
    "2026-11-21T01:08:26.123456Z",
    "checkout-7d9c5b6f4-x2x9z",
    "eu-central-1",
    "text/html; charset=utf-8",
    "SELECT id, name FROM users WHERE id = ?",
    "main.(*Server).handleRequest",
    "std::vector<std::pair<int, long>>::push_back",
    "https://shop.example.com/cart?step=2",
    "application/json",
    "postgresql",
    "grpc",
    "1.27.3",
    "attribute value number 5 of this span",
    "connection refused by upstream after 3 attempts",
];

/// Texts, one per detector.
const DIRTY: [(Detector, &str); 25] = [
    (
        Detector::PrivateKey,
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
    ),
    (
        Detector::Jwt,
        "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ),
    (
        Detector::AwsAccessKey,
        concat!("key=AKIA", "IOSFODNN7EXAMPLE"),
    ),
    (
        Detector::GcpApiKey,
        concat!("key=AIza", "SyA-0123456789abcdefghijklmnopqrstu"),
    ),
    (
        Detector::GithubToken,
        concat!("ghp", "_0123456789abcdefghijABCDEFGHIJ012345"),
    ),
    (
        Detector::SlackToken,
        concat!("xox", "b-123456789012-1234567890123-abcdefghij"),
    ),
    (
        Detector::StripeKey,
        concat!("sk", "_test_4eC39HqLyjWDarjtT1zdp7dc"),
    ),
    (
        Detector::BasicAuth,
        "Authorization: Basic dXNlcjpwYXNzd29yZA==",
    ),
    (
        Detector::BearerToken,
        "Authorization: Bearer mF_9.B5f-4.1JqM",
    ),
    (
        Detector::UrlCredentials,
        "postgres://app:s3cret@db.example.com:5432/shop",
    ),
    (
        Detector::AssignedSecret,
        "login of jane, password=hunter2-17 refused",
    ),
    (
        Detector::AwsSecretKey,
        concat!(
            "aws_secret_access_key=",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
        ),
    ),
    (
        Detector::AzureKey,
        concat!(
            "AccountKey=",
            "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq"
        ),
    ),
    (
        Detector::GitlabToken,
        concat!("glp", "at-aB3dE5fG7hJ9kL1mN0pQ"),
    ),
    (
        Detector::NpmToken,
        concat!("npm", "_0123456789abcdefghijABCDEFGHIJ012345"),
    ),
    (
        Detector::PypiToken,
        concat!(
            "pypi-AgEIcHlwaS5vcmc",
            "CJDAxMjM0NTY3LTg5YWItY2RlZi0wMTIzLTQ1Njc4OWFiY2RlZg"
        ),
    ),
    (Detector::Email, "mail to jane.doe@example.com failed"),
    (Detector::Iban, "DE89 3704 0044 0532 0130 00"),
    (Detector::CreditCard, "card 4111 1111 1111 1111"),
    (Detector::UsSsn, "ssn 078-05-1120"),
    (Detector::MacAddress, "link/ether 52:54:00:12:34:56"),
    (Detector::IpAddress, "client 192.0.2.17:51234"),
    (Detector::Phone, "call +49 30 90182012"),
    (Detector::HomeDirectory, "/home/jane/src/main.rs"),
    (Detector::HighEntropy, "api_key=q8Zt3Lw9XbR2mK7vPd4Hs6Yn"),
];

struct Step {
    name: String,
    texts: usize,
    run: Box<dyn Fn()>,
}

/// Number of passes of a step over its texts.
const ROUNDS: usize = 2_000;

fn main() -> Result<(), SettingsError> {
    let arguments: Vec<String> = std::env::args().collect();
    let steps = steps()?;
    // Run by this program to count the instructions of one step.
    if let [_, flag, name, rounds] = arguments.as_slice()
        && flag == "--rounds-of"
    {
        let rounds = rounds.parse().unwrap_or(0);
        for step in steps.iter().filter(|step| step.name == *name) {
            (0..rounds).for_each(|_| (step.run)());
        }
        return Ok(());
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        steps.iter().for_each(|step| (step.run)());
        return Ok(());
    }
    println!(
        "{:<28} {:>9} {:>9} {:>13}",
        "per text", "best ns", "median ns", "instructions"
    );
    for step in &steps {
        let (best, median) = time(step);
        let count =
            instructions(step).map_or_else(|| "-".to_owned(), |count| format!("{count:.0}"));
        println!("{:<28} {best:>9.1} {median:>9.1} {count:>13}", step.name);
    }
    Ok(())
}

fn scanner(detectors: &[DetectorConfig], decode: bool) -> Result<Scanner, SettingsError> {
    let settings = ScannerSettings {
        detectors,
        custom: &[],
        hash_function: None,
        hmac_key: &Secret::default(),
        decode,
    };
    Scanner::new(&settings)
}

fn step(name: String, scanner: Scanner, texts: Vec<&'static str>) -> Step {
    Step {
        name,
        texts: texts.len(),
        run: Box::new(move || {
            let mut hits = Hits::default();
            for text in &texts {
                let _ = black_box(scanner.scan(black_box(text), &mut hits));
            }
        }),
    }
}

fn steps() -> Result<Vec<Step>, SettingsError> {
    let usual: Vec<DetectorConfig> = Detector::usual().map(DetectorConfig::from).collect();
    let short: Vec<&str> = CLEAN
        .iter()
        .copied()
        .filter(|text| text.len() <= 16)
        .collect();
    let long: Vec<&str> = CLEAN
        .iter()
        .copied()
        .filter(|text| text.len() > 16)
        .collect();
    let mut steps = vec![
        step(
            "all, clean, to 16 bytes".to_owned(),
            scanner(&usual, false)?,
            short,
        ),
        step(
            "all, clean, longer".to_owned(),
            scanner(&usual, false)?,
            long,
        ),
        step(
            "all, clean".to_owned(),
            scanner(&usual, false)?,
            CLEAN.to_vec(),
        ),
        step(
            "all and decode, clean".to_owned(),
            scanner(&usual, true)?,
            CLEAN.to_vec(),
        ),
        step(
            "all, private".to_owned(),
            scanner(&usual, false)?,
            DIRTY.iter().map(|(_, text)| *text).collect(),
        ),
    ];
    for text in CLEAN {
        let name: String = text.chars().take(22).collect();
        steps.push(step(
            format!("all, {name}"),
            scanner(&usual, false)?,
            vec![text],
        ));
    }
    for (detector, text) in DIRTY {
        let alone = || scanner(&[detector.into()], false);
        steps.push(step(format!("{detector}, clean"), alone()?, CLEAN.to_vec()));
        steps.push(step(format!("{detector}, private"), alone()?, vec![text]));
    }
    Ok(steps)
}

/// Nanoseconds per text.
fn time(step: &Step) -> (f64, f64) {
    const RUNS: usize = 40;
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            (0..ROUNDS).for_each(|_| (step.run)());
            start.elapsed().as_secs_f64() * 1e9 / (step.texts * ROUNDS) as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    (runs[0], runs[RUNS / 2])
}

/// Instructions per text: the difference between many rounds and one round, so that the start of the program cancels
/// out.
fn instructions(step: &Step) -> Option<f64> {
    const MORE: usize = 20;
    let collected = |rounds: usize| {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(std::env::current_exe().ok()?)
            .args(["--rounds-of", &step.name, &rounds.to_string()])
            .output()
            .ok()?;
        let text = String::from_utf8(output.stderr).ok()?;
        let line = text.lines().find(|line| line.contains("Collected"))?;
        line.rsplit(' ').next()?.parse::<f64>().ok()
    };
    Some((collected(MORE + 1)? - collected(1)?) / (MORE * step.texts) as f64)
}
