//! Matches home directories, which contain the name of a person.

use super::context;
use super::{Span, before, byte, run, run_back, starts, word};

/// Directories that exist next to home directories.
const SHARED: [&[u8]; 9] = [
    b"Shared",
    b"shared",
    b"Public",
    b"public",
    b"Default",
    b"default",
    b"linuxbrew",
    b"lost+found",
    b"All",
];

/// Directories in which root file systems are mounted, or which immutable distributions use (`/var/home`). A path below
/// such a directory may be a home directory too.
const ROOTS: [&[u8]; 12] = [
    b"/merged", b"/diff", b"/rootfs", b"/host", b"/root", b"/c", b"/fs", b"/Data", b"/usr",
    b"/export", b"/var", b"/..",
];

/// `/home/NAME`, `/Users/NAME`, `C:\Users\NAME` or `C:\Documents and Settings\NAME` whose first separator is at
/// `separator`. The path must begin at the separator, or below a drive or a root file system;
/// `https://example.com/home/news` is a page.
pub(in super::super) fn home(text: &[u8], separator: usize) -> Option<Span> {
    let slash = byte(text, separator);
    // `C:\\Users` in escaped texts.
    let mut at = separator
        + run(
            text.get(..text.len().min(separator + 2))?,
            separator,
            |byte| byte == slash,
        )
        .len();
    if slash == b'/' && at != separator + 1 {
        return None;
    }
    let directories: &[&[u8]] = if slash == b'/' {
        &[b"home", b"Users"]
    } else {
        &[b"Users", b"users", b"USERS", b"Documents and Settings"]
    };
    let directory = directories
        .iter()
        .find(|directory| starts(text, at, directory))?;
    at += directory.len();
    let separators = run(text.get(..text.len().min(at + 2))?, at, |byte| {
        byte == slash
    })
    .len();
    if separators == 0 || (slash == b'/' && separators != 1) {
        return None;
    }
    let name_start = at + separators;
    let name = run(
        text.get(..text.len().min(name_start + 64))
            .unwrap_or_default(),
        name_start,
        |byte| byte > b' ' && byte != 0x7f && !b"/\\:\"'`,;()[]{}<>|*?&=#!$".contains(&byte),
    );
    let name_with_spaces = spaced(text, separator, name_start, name);
    // A full stop at the end of a sentence.
    let name = name.get(..name.iter().rposition(|byte| *byte != b'.')? + 1)?;
    if SHARED.contains(&name)
        || !name
            .iter()
            .any(|byte| byte.is_ascii_alphanumeric() || *byte >= 0x80)
    {
        return None;
    }
    let start = beginning(text, separator, slash)?;
    if slash == b'/'
        && start == separator
        && is_page(text, separator, name, name_start + name.len())
    {
        return None;
    }
    Some(start..name_start + name.len().max(name_with_spaces))
}

/// Returns the length of a Windows name with spaces, as in `C:\Users\Jane Roe\Desktop`. The name must end at
/// a separator or at the quote before the path; otherwise the length is 0.
fn spaced(text: &[u8], separator: usize, start: usize, first: &[u8]) -> usize {
    let slash = byte(text, separator);
    let drive = before(text, separator) == b':';
    if (slash != b'\\' && !drive) || byte(text, start + first.len()) != b' ' {
        return 0;
    }
    let limit = text.get(..text.len().min(start + 64)).unwrap_or_default();
    let name = run(limit, start, |byte| {
        byte >= 0x80 || byte.is_ascii_alphanumeric() || b" .-_'()".contains(&byte)
    });
    let quote = separator.checked_sub(3).map_or(0, |at| byte(text, at));
    let end = byte(text, start + name.len());
    let ends = end == slash || (matches!(quote, b'"' | b'\'') && end == quote);
    if ends && !name.ends_with(b" ") {
        name.len()
    } else {
        0
    }
}

/// First segments of paths on web sites.
const PAGES: [&[u8]; 48] = [
    b"page",
    b"pages",
    b"index",
    b"main",
    b"news",
    b"about",
    b"contact",
    b"login",
    b"logout",
    b"signin",
    b"signup",
    b"register",
    b"dashboard",
    b"settings",
    b"profile",
    b"account",
    b"search",
    b"help",
    b"faq",
    b"feed",
    b"blog",
    b"posts",
    b"products",
    b"product",
    b"shop",
    b"cart",
    b"checkout",
    b"welcome",
    b"overview",
    b"assets",
    b"static",
    b"images",
    b"img",
    b"css",
    b"js",
    b"view",
    b"views",
    b"list",
    b"details",
    b"section",
    b"content",
    b"api",
    b"events",
    b"offers",
    b"categories",
    b"create",
    b"edit",
    b"new",
];

/// Endings of files that browsers load.
const WEB: [&[u8]; 9] = [
    b".html", b".htm", b".php", b".jsp", b".aspx", b".js", b".css", b".png", b".svg",
];

/// Words before the path of a request.
const REQUESTS: [&[u8]; 15] = [
    b"GET",
    b"POST",
    b"PUT",
    b"DELETE",
    b"HEAD",
    b"PATCH",
    b"OPTIONS",
    b"route",
    b"endpoint",
    b"href",
    b"redirect",
    b"redirected",
    b"navigate",
    b"visited",
    b"pageview",
];

/// Whether a path is that of a web page.
fn is_page(text: &[u8], separator: usize, name: &[u8], end: usize) -> bool {
    PAGES.iter().any(|page| name.eq_ignore_ascii_case(page))
        || WEB.iter().any(|ending| name.ends_with(ending))
        || name.iter().all(u8::is_ascii_digit)
        || matches!(byte(text, end), b'?' | b'#') && word(byte(text, end + 1))
        || context::said(text, separator, &REQUESTS)
}

/// Returns true if a server stands before the separator: `\\server\Users\jane`. In escaped texts each backslash is two.
fn is_share(text: &[u8], separator: usize) -> bool {
    let slashes = 1 + usize::from(byte(text, separator + 1) == b'\\');
    let host = run_back(text, separator, 64, |byte| {
        byte.is_ascii_alphanumeric() || b".-_".contains(&byte)
    });
    let end = separator - host;
    let begins = run_back(text, end, 5, |byte| byte == b'\\');
    let earlier = before(text, end - begins);
    host > 0 && begins == 2 * slashes && earlier != b':' && !word(earlier)
}

/// Returns the start of the path, drive included; `None` if no path begins there.
fn beginning(text: &[u8], separator: usize, slash: u8) -> Option<usize> {
    let earlier = before(text, separator);
    if earlier == b':' {
        let drive = separator.checked_sub(2);
        let letter = drive.filter(|at| {
            byte(text, *at).is_ascii_alphabetic() && !before(text, *at).is_ascii_alphanumeric()
        });
        // Without a drive: `key:/home/NAME` or `host:/home/NAME`.
        return letter.or((slash == b'/').then_some(separator));
    }
    if slash == b'\\' {
        let begins = earlier != b'\\' && !earlier.is_ascii_alphanumeric();
        return (begins || is_share(text, separator)).then_some(separator);
    }
    if earlier == b'/' {
        // `file:///home/NAME`
        let scheme = text.get(separator.saturating_sub(7)..separator);
        return (scheme == Some(b"file://")).then_some(separator);
    }
    let part_of_path = earlier.is_ascii_alphanumeric() || b".-_~%*]}+\\".contains(&earlier);
    if !part_of_path {
        return Some(separator);
    }
    // `-I/home/NAME/include`
    let option = separator >= 2
        && matches!(earlier, b'I' | b'L')
        && before(text, separator - 1) == b'-'
        && !before(text, separator - 2).is_ascii_alphanumeric();
    if option {
        return Some(separator);
    }
    // The parent directory, unless it belongs to a URL.
    let path = run_back(text, separator, 256, |byte| {
        byte > b' ' && !b"\"'<>=,;".contains(&byte)
    });
    let above = text.get(separator - path..separator)?;
    let mounted = ROOTS.iter().any(|root| above.ends_with(root))
        && memchr::memmem::find(above, b"://").is_none();
    mounted.then_some(separator)
}
