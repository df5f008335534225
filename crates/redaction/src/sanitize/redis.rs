//! Sanitizes commands of Redis, Valkey and memcached.

use std::borrow::Cow;

use super::changed;

/// Arguments of a command that are values. Positions count from 0, after the command.
enum Values {
    /// A single argument.
    At(usize),
    /// An argument and all later arguments, which become a single `?`.
    From(usize),
    /// Every n-th argument from a position on.
    Every(usize, usize),
}

/// Replaces the values of Redis commands by `?` and keeps the keys, as the Collector does: `SET user:1 jane`
/// becomes `SET user:1 ?`. Each line is a command; a quoted text is one argument.
pub fn redis(commands: &str) -> Cow<'_, str> {
    let mut output = String::with_capacity(commands.len());
    for line in lines(commands) {
        if !output.is_empty() {
            output.push('\n');
        }
        output.push_str(&command(line));
    }
    changed(commands, output)
}

/// Keeps the memcached command and removes its data, which follows on a separate line.
pub fn memcached(command: &str) -> Cow<'_, str> {
    let line = command.split("\r\n").next().unwrap_or_default();
    Cow::Borrowed(line.trim())
}

fn command(line: &str) -> String {
    let mut words = arguments(line);
    let Some((name, rest)) = words.split_first_mut() else {
        return String::new();
    };
    let name = name.to_ascii_uppercase();
    let mut last = rest.len();
    match values(&name, rest) {
        Some(Values::At(position)) => {
            if let Some(argument) = rest.get_mut(position) {
                *argument = "?";
            }
        }
        Some(Values::From(position)) => {
            if let Some(argument) = rest.get_mut(position) {
                *argument = "?";
                last = position + 1;
            }
        }
        Some(Values::Every(first, step)) => {
            rest.iter_mut()
                .skip(first)
                .step_by(step)
                .for_each(|argument| *argument = "?");
        }
        None => {}
    }
    words.truncate(last + 1);
    words.join(" ")
}

fn values(name: &str, arguments: &[&str]) -> Option<Values> {
    let is = |position: usize, word: &str| {
        arguments
            .get(position)
            .is_some_and(|argument| argument.eq_ignore_ascii_case(word))
    };
    Some(match name {
        "AUTH" => Values::From(0),
        "APPEND" | "GETSET" | "LPUSHX" | "GEORADIUSBYMEMBER" | "RPUSHX" | "SET" | "SETNX"
        | "SISMEMBER" | "ZRANK" | "ZREVRANK" | "ZSCORE" => Values::At(1),
        "HSETNX" | "LREM" | "LSET" | "SETBIT" | "SETEX" | "PSETEX" | "SETRANGE" | "ZINCRBY"
        | "SMOVE" | "RESTORE" => Values::At(2),
        // Several fields per command since Redis 4.
        "HSET" | "HMSET" => Values::Every(2, 2),
        "LINSERT" => Values::At(3),
        "GEOHASH" | "GEOPOS" | "GEODIST" | "LPUSH" | "RPUSH" | "SREM" | "ZREM" | "SADD" => {
            Values::From(1)
        }
        "GEOADD" => Values::Every(3, 3),
        "MSET" | "MSETNX" => Values::Every(1, 2),
        "CONFIG" if is(0, "SET") => Values::At(2),
        // `HELLO 3 AUTH name password`
        "HELLO" if is(1, "AUTH") => Values::From(2),
        "BITFIELD" => {
            let set = arguments
                .iter()
                .position(|argument| argument.eq_ignore_ascii_case("SET"))?;
            Values::At(set + 3)
        }
        "ZADD" => {
            let options = ["NX", "XX", "GT", "LT", "CH", "INCR"];
            let option = |argument: &&&str| {
                options
                    .iter()
                    .any(|option| argument.eq_ignore_ascii_case(option))
            };
            let options = arguments.iter().skip(1).take_while(option).count();
            Values::Every(options + 2, 2)
        }
        _ => return None,
    })
}

/// Splits a text into lines, except within quotes.
fn lines(text: &str) -> Vec<&str> {
    split(text, |byte| byte == b'\n')
}

/// Splits a line into words, except within quotes.
fn arguments(line: &str) -> Vec<&str> {
    split(line, |byte| byte.is_ascii_whitespace())
}

fn split(text: &str, at: impl Fn(u8) -> bool) -> Vec<&str> {
    let (mut parts, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (position, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            byte if !quoted && at(byte) => {
                parts.push(text.get(start..position).unwrap_or_default());
                start = position + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts.retain(|part| !part.trim().is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_values_are_replaced_and_keys_stay() {
        for (command, expected) in [
            ("GET user:1", "GET user:1"),
            ("AUTH name secret", "AUTH ?"),
            ("SET k \"two words\" EX 5", "SET k ? EX 5"),
            ("set k v", "set k ?"),
            ("HSET k f v f2 v2", "HSET k f ? f2 ?"),
            ("MSET a 1 b 2", "MSET a ? b ?"),
            ("SADD k a b c", "SADD k ?"),
            ("ZADD k NX CH 1 a 2 b", "ZADD k NX CH 1 ? 2 ?"),
            ("GEOADD k 13.3 38.1 Palermo", "GEOADD k 13.3 38.1 ?"),
            ("CONFIG SET requirepass x", "CONFIG SET requirepass ?"),
            ("CONFIG GET x", "CONFIG GET x"),
            ("HELLO 3 AUTH u p", "HELLO 3 AUTH ?"),
            ("BITFIELD k SET u8 0 255", "BITFIELD k SET u8 0 ?"),
            ("MULTI\nSET k \"a\nb\"\nEXEC", "MULTI\nSET k ?\nEXEC"),
            ("", ""),
        ] {
            let once = redis(command);
            assert_eq!(once, expected);
            assert_eq!(redis(&once), once);
        }
    }
}
