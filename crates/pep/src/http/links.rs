//! What a page will ask for: the objects that HTML, style sheets and `Link` fields name.
//!
//! Not modelled: what scripts ask for, pictures for other screens (`srcset`), and pictures that are
//! loaded late (`loading=lazy`).

use super::fields::Fields;
use crate::cost;

/// The longest name of an object, and the longest tag, in bytes.
const LONGEST: usize = 2048;
const LONGEST_TAG: usize = 8192;
/// The most names of one page.
const MOST: usize = 256;

/// The language of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// HTML.
    Html,
    /// Style sheets.
    Css,
}

impl Language {
    /// The language that a response says it is in, if it can name objects.
    pub fn of(fields: &Fields) -> Option<Self> {
        fields.parsed("content-type", |text| {
            match text.split(';').next()?.trim().to_ascii_lowercase().as_str() {
                "text/html" | "application/xhtml+xml" => Some(Self::Html),
                "text/css" => Some(Self::Css),
                _ => None,
            }
        })
    }
}

/// Reads a document as it passes, and finds what it names.
#[derive(Debug)]
pub struct LinkReader {
    language: Language,
    /// A tag, a comment or a name that has not ended yet.
    pending: Vec<u8>,
    inside: Inside,
    /// Where `pending` has got to, in a tag.
    quotes: Quotes,
    found: usize,
}

/// Whether a place in a tag is within a quoted value. Followed byte by byte: looking back from each `>`
/// would take quadratic time.
#[derive(Debug, Clone, Copy, Default)]
struct Quotes {
    open: Option<u8>,
    after_equals: bool,
}

impl Quotes {
    fn step(&mut self, byte: u8) {
        match (self.open, byte) {
            (Some(open), byte) if open == byte => self.open = None,
            (None, b'"' | b'\'') if self.after_equals => self.open = Some(byte),
            _ => {}
        }
        self.after_equals = byte == b'=' || (self.after_equals && byte.is_ascii_whitespace());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// Text, or style rules.
    Text,
    /// From `<` on.
    Tag,
    Comment,
    /// Raw text up to the end tag of this element.
    Raw(&'static str),
}

impl LinkReader {
    /// At the beginning of a document.
    pub fn new(language: Language) -> Self {
        let (pending, quotes) = (Vec::new(), Quotes::default());
        Self { language, pending, inside: Inside::Text, quotes, found: 0 }
    }

    /// Reads on, and hands out names as they stand there, each at most once at a place.
    pub fn read(&mut self, bytes: &[u8], mut found: impl FnMut(&str)) {
        for byte in bytes {
            if self.found >= MOST {
                return;
            }
            cost::count(1);
            match self.language {
                Language::Html => self.html(*byte, &mut found),
                Language::Css => self.css(*byte, &mut found),
            }
        }
    }

    fn html(&mut self, byte: u8, found: &mut impl FnMut(&str)) {
        match self.inside {
            Inside::Text if byte == b'<' => {
                (self.inside, self.quotes) = (Inside::Tag, Quotes::default());
                self.pending.clear();
            }
            Inside::Text => {}
            Inside::Tag => {
                if byte == b'>' && self.quotes.open.is_none() {
                    let tag = std::mem::take(&mut self.pending);
                    self.inside = self.tag(&tag, found);
                    return;
                }
                self.pending.push(byte);
                self.quotes.step(byte);
                if self.pending == b"!--" {
                    self.inside = Inside::Comment;
                } else if self.pending.len() > LONGEST_TAG {
                    self.inside = Inside::Text;
                }
            }
            Inside::Comment => self.until(byte, b"-->"),
            Inside::Raw(element) => {
                self.pending.push(byte.to_ascii_lowercase());
                let excess = self.pending.len().saturating_sub(element.len());
                self.pending.drain(..excess);
                if self.pending == element.as_bytes() {
                    self.inside = Inside::Text;
                }
            }
        }
    }

    fn until(&mut self, byte: u8, end: &[u8]) {
        self.pending.push(byte);
        let excess = self.pending.len().saturating_sub(end.len());
        self.pending.drain(..excess);
        if self.pending == end {
            self.inside = Inside::Text;
        }
    }

    fn tag(&mut self, tag: &[u8], found: &mut impl FnMut(&str)) -> Inside {
        cost::count(tag.len());
        let tag = String::from_utf8_lossy(tag);
        let end = tag.find(|c: char| c.is_ascii_whitespace() || c == '/').unwrap_or(tag.len());
        let (element, attributes) = (tag[..end].to_ascii_lowercase(), attributes(&tag[end..]));
        let get = |name: &str| {
            let mut named = attributes.iter().filter(|(it, _)| it == name);
            named.next().map(|(_, value)| value.as_str())
        };
        let is_late = get("loading").is_some_and(|it| it.eq_ignore_ascii_case("lazy"));
        let name = match &element[..] {
            "img" if !is_late => get("src"),
            "script" => get("src"),
            "link" if get("rel").is_some_and(is_loaded) => get("href"),
            _ => None,
        };
        self.hand_out(name, found);
        match &element[..] {
            "script" => Inside::Raw("</script"),
            "style" => Inside::Raw("</style"),
            "textarea" => Inside::Raw("</textarea"),
            "title" => Inside::Raw("</title"),
            _ => Inside::Text,
        }
    }

    fn hand_out(&mut self, name: Option<&str>, found: &mut impl FnMut(&str)) {
        let name = name.map(str::trim).filter(|it| (1..=LONGEST).contains(&it.len()));
        if let Some(name) = name {
            self.found += 1;
            found(name);
        }
    }

    /// Names in `url(…)` and `@import "…"`.
    fn css(&mut self, byte: u8, found: &mut impl FnMut(&str)) {
        if self.inside == Inside::Comment {
            return self.until(byte, b"*/");
        }
        self.pending.push(byte);
        if self.pending.ends_with(b"/*") {
            self.pending.clear();
            self.inside = Inside::Comment;
            return;
        }
        if !matches!(byte, b')' | b';' | b'{' | b'}') && self.pending.len() < LONGEST_TAG {
            return;
        }
        let rule = std::mem::take(&mut self.pending);
        cost::count(rule.len());
        let rule = String::from_utf8_lossy(&rule);
        // Letters of another length in the other case would shift what follows.
        let lower = rule.to_ascii_lowercase();
        let name = match (lower.rfind("url("), lower.find("@import")) {
            (Some(at), _) if byte == b')' => Some(rule[at + 4..].trim_end_matches(')')),
            (None, Some(at)) => Some(rule[at + 7..].trim_end_matches(';')),
            _ => None,
        };
        let name = name.map(|name| name.trim().trim_matches(['"', '\'']).to_owned());
        self.hand_out(name.as_deref().filter(|it| !it.contains(['"', '\''])), found);
    }
}

/// Whether a browser loads what a link with these relations names.
fn is_loaded(relations: &str) -> bool {
    let loaded = ["stylesheet", "preload", "modulepreload", "icon"];
    let mut relations = relations.split_ascii_whitespace();
    relations.any(|it| loaded.iter().any(|loaded| it.eq_ignore_ascii_case(loaded)))
}

/// Names, in lower case, and values of a tag's attributes.
fn attributes(text: &str) -> Vec<(String, String)> {
    let (mut found, mut rest) = (Vec::new(), text);
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
        let end = rest
            .char_indices()
            .find(|(at, c)| c.is_ascii_whitespace() || *c == '/' || (*c == '=' && *at > 0))
            .map_or(rest.len(), |(at, _)| at);
        if end == 0 {
            return found;
        }
        let name = rest[..end].to_ascii_lowercase();
        rest = rest[end..].trim_start();
        let value = match rest.strip_prefix('=') {
            None => "",
            Some(behind) => {
                let behind = behind.trim_start();
                let quote = behind.chars().next().filter(|c| matches!(c, '"' | '\''));
                let (value, next) = match quote {
                    Some(quote) => behind[1..].split_once(quote).unwrap_or((&behind[1..], "")),
                    None => {
                        let end = behind.find(|c: char| c.is_ascii_whitespace());
                        behind.split_at(end.unwrap_or(behind.len()))
                    }
                };
                rest = next;
                value
            }
        };
        found.push((name, value.replace("&amp;", "&")));
    }
}

/// What `Link` fields want loaded (RFC 8288): the targets of `preload`, `modulepreload` and
/// `stylesheet`.
pub fn in_fields(fields: &Fields) -> Vec<String> {
    let mut found = Vec::new();
    for value in fields.values("link") {
        let Ok(value) = core::str::from_utf8(value) else { continue };
        for part in value.split('<').skip(1) {
            let Some((target, parameters)) = part.split_once('>') else { continue };
            let wanted = parameters.split(';').any(|it| {
                let (name, relations) = it.split_once('=').unwrap_or((it, ""));
                let relations = relations.trim().trim_end_matches(',').trim_matches('"');
                name.trim().eq_ignore_ascii_case("rel") && is_loaded(relations)
            });
            if wanted && found.len() < MOST && target.len() <= LONGEST {
                found.push(target.trim().to_owned());
            }
        }
    }
    found
}

/// The target of a request for what a document at `base` on `host` names, if that is on the same host
/// and has the `scheme` of the document.
pub fn resolve(scheme: &str, host: &str, base: &str, name: &str) -> Option<String> {
    let name = name.split('#').next().unwrap_or_default();
    let is_target = |c: char| c.is_ascii_graphic() && !['\\', '<', '>', '"'].contains(&c);
    if name.is_empty() || !name.chars().all(is_target) {
        return None;
    }
    let of_host = |rest: &str| {
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let same = rest[..end].eq_ignore_ascii_case(host);
        let path = if rest[end..].starts_with('/') { "" } else { "/" };
        same.then(|| format!("{path}{}", &rest[end..]))
    };
    let path = base.split(['?', '#']).next().unwrap_or_default();
    let target = if let Some(rest) = name.strip_prefix("//") {
        of_host(rest)?
    } else if name.starts_with('/') {
        name.to_owned()
    } else if name.starts_with('?') {
        format!("{path}{name}")
    } else if let Some((said, rest)) = name.split_once(':')
        && !said.contains(['/', '?'])
    {
        let rest = rest.strip_prefix("//").filter(|_| said.eq_ignore_ascii_case(scheme))?;
        of_host(rest)?
    } else {
        let folder = path.rfind('/').map_or("/", |at| &path[..=at]);
        format!("{folder}{name}")
    };
    Some(without_dots(&target))
}

/// RFC 3986 §5.2.4.
fn without_dots(target: &str) -> String {
    let (path, query) = match target.find('?') {
        Some(at) => target.split_at(at),
        None => (target, ""),
    };
    let mut kept: Vec<&str> = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            part => kept.push(part),
        }
    }
    format!("/{}{query}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(language: Language, text: &str, piece: usize) -> Vec<String> {
        let (mut reader, mut found) = (LinkReader::new(language), Vec::new());
        text.as_bytes()
            .chunks(piece)
            .for_each(|piece| reader.read(piece, |it| found.push(it.to_owned())));
        found
    }

    #[test]
    fn html_names_what_a_browser_loads() {
        let html = "<!DOCTYPE html><title>x<img src=no></title><!-- <img src=no2> -->\
            <LINK REL='Stylesheet' HREF=\"a.css?x=1&amp;y=2\"><link rel=\"next\" href=no3>\
            <link rel=\"shortcut icon\" href=i.ico><script async src=/b.js>var a = '<img src=no4>'</script>\
            <img alt=\"a > b\" src='c.png'/><img src=d.png loading=lazy><a href=no5><img data-src=no6>\
            <style>x { background: url(no7) }</style><img src = e.png ><img src=f.png";
        for piece in [1, 7, 10_000] {
            let found = read(Language::Html, html, piece);
            assert_eq!(found, ["a.css?x=1&y=2", "i.ico", "/b.js", "c.png", "e.png"], "{piece}");
        }
    }

    #[test]
    fn style_sheets_name_pictures_fonts_and_others() {
        let css = "@import \"a.css\"; @import url('b.css');/* url(no.png) */ .x{background:URL( c.png ) no-repeat}\
            @font-face { src: url(\"d.woff2\") format('woff2'), url(e.woff) }";
        for piece in [1, 9, 1000] {
            assert_eq!(
                read(Language::Css, css, piece),
                ["a.css", "b.css", "c.png", "d.woff2", "e.woff"]
            );
        }
    }

    #[test]
    fn fields_name_what_is_to_be_loaded_first() {
        let mut fields = Fields::default();
        fields.push("Link", "</a.css>; rel=preload; as=style, </no>; rel=next");
        fields.push("Link", "<b.js>; as=script; rel=\"modulepreload\"");
        assert_eq!(in_fields(&fields), ["/a.css", "b.js"]);
    }

    #[test]
    fn names_become_targets_on_the_same_host_only() {
        for (name, target) in [
            ("a.png", Some("/x/a.png")),
            ("../a.png", Some("/a.png")),
            ("../../../a.png", Some("/a.png")),
            ("./b/./../a.png#f", Some("/x/a.png")),
            ("/a?b=../c", Some("/a?b=../c")),
            ("?q", Some("/x/y.html?q")),
            ("http://H.example/a", Some("/a")),
            ("//h.example", Some("/")),
            ("//h.example?q", Some("/?q")),
            ("//other.example/a", None),
            ("http://h.example:81/a", None),
            ("http://h.example@other/a", None),
            ("https://h.example/a", None),
            ("data:image/png;base64,AA", None),
            ("javascript:alert(1)", None),
            ("a b", None),
            ("a\r\nX: y", None),
            ("#f", None),
            ("", None),
        ] {
            let resolved = resolve("http", "h.example", "/x/y.html?z", name);
            assert_eq!(resolved.as_deref(), target, "{name:?}");
            let secure = name.replace("http:", "https:");
            let resolved = resolve("https", "h.example", "/x/y.html?z", &secure);
            assert!(secure == name || resolved.as_deref() == target, "{secure:?}");
        }
    }

    /// Each `>` might end the tag.
    #[test]
    fn the_work_grows_with_the_document_only() {
        for open in ["<img alt=\"", "<img alt='", "<a b=c ", "<!--", "<script>", "<", ""] {
            for text in [">", "<", "\"", "=", "a=\"b", "-", "</script", "url(", "@import;", "/*"] {
                for language in [Language::Html, Language::Css] {
                    let document = format!("{open}{}", text.repeat(100_000 / text.len()));
                    let ((), cost) = cost::of(|| {
                        LinkReader::new(language).read(document.as_bytes(), |_| {});
                    });
                    assert!(cost <= 2 * document.len() as u64, "{open}{text}…: {cost}");
                }
            }
        }
    }

    #[test]
    fn a_document_without_end_takes_no_memory() {
        let mut reader = LinkReader::new(Language::Html);
        for _ in 0..10_000 {
            reader.read(b"<img alt=\"0123456789", |_| panic!("it never ends"));
        }
        assert!(reader.pending.len() <= LONGEST_TAG + 1);
        let mut reader = LinkReader::new(Language::Css);
        for _ in 0..10_000 {
            reader.read(b"0123456789", |_| panic!("it never ends"));
        }
        assert!(reader.pending.len() <= LONGEST_TAG);
        let (mut reader, mut count) = (LinkReader::new(Language::Html), 0);
        (0..1000).for_each(|_| reader.read(b"<img src=a>", |_| count += 1));
        assert_eq!(count, MOST);
    }
}
