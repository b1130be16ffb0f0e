//! The section of docs/troubleshooting.md for each check. The page is compiled in: where a gateway fails,
//! the documents may be out of reach.

static PAGE: &str = include_str!("../../../../docs/troubleshooting.md");

/// Sections with the checks that they explain.
const SECTIONS: [(&str, &[&str]); 14] = [
    ("the-session-does-not-come-up", &["hub", "route", "running"]),
    ("connections-are-redirected-and-never-answered", &["answers", "bridge"]),
    ("two-gateways-intercept-one-interface", &["shared"]),
    ("it-is-up-but-slow", &["rate"]),
    ("packets-of-full-size-do-not-pass-mtu", &["mtu"]),
    ("drops-at-the-modem", &["modem"]),
    ("the-clock-is-wrong", &["clock"]),
    ("traffic-stops-when-the-gateway-stops", &["forwarding", "forwarding 6", "reverse path"]),
    (
        "it-works-but-not-at-its-best",
        &["UDP buffers", "TCP buffers", "fast open", "descriptors", "IPv6", "loopback"],
    ),
    ("an-interface-or-address-is-not-there", &["address", "interface", "link", "stack"]),
    ("ftp-or-media-fails", &["protocols"]),
    ("what-may-be-reached", &["reach", "accept", "forward rules"]),
    ("bundles-wait", &["bundles"]),
    ("the-lab-does-not-start", &["namespaces"]),
];
/// Section of all other checks.
const DEFAULT_SECTION: &str = "the-gateway-does-not-start";

/// Returns the page and section of docs/ about a check.
pub(super) fn page_of(check: &str) -> String {
    format!("troubleshooting.md#{}", section_of(check).unwrap_or(DEFAULT_SECTION))
}

fn section_of(check: &str) -> Option<&'static str> {
    let section = SECTIONS.iter().find(|(_, checks)| checks.contains(&check));
    section.map(|(section, _)| *section)
}

/// Returns the text of a section, by its name or by the name of a check that it explains.
pub fn explain(topic: &str) -> Option<&'static str> {
    let wanted = section_of(topic).unwrap_or(topic);
    sections().find(|(name, _)| name == wanted).map(|(_, text)| text)
}

/// Returns the names of all sections, in the order of the page.
pub fn topics() -> Vec<String> {
    sections().map(|(name, _)| name).collect()
}

/// Iterates over the names and texts of the page's sections. The texts include the headings.
fn sections() -> impl Iterator<Item = (String, &'static str)> {
    let parts = PAGE.split("\n## ").skip(1);
    parts.map(|text| (anchor(text.lines().next().unwrap_or_default()), text))
}

/// Converts a heading to its anchor, like mdbook and code hosts: lower case, hyphens for spaces, no
/// punctuation.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    heading.chars().filter_map(kept).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_section_is_in_the_page_and_every_link_of_the_page_leads_somewhere() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let read = |name: &str| fs::read_to_string(docs.join(name)).unwrap_or_default();
        let anchors = |page: &str| -> Vec<String> {
            read(page)
                .lines()
                .filter(|line| line.starts_with('#'))
                .map(|line| anchor(line.trim_start_matches('#').trim()))
                .collect()
        };
        let page = "troubleshooting.md";
        let own = anchors(page);
        for section in SECTIONS.iter().map(|(section, _)| *section).chain([DEFAULT_SECTION]) {
            assert!(own.iter().any(|anchor| anchor == section), "{section} is not in {own:?}");
        }
        for link in read(page).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            let file = if file.is_empty() { page } else { file };
            let known = anchors(file);
            assert!(!known.is_empty(), "there is no {file}");
            assert!(section.is_empty() || known.iter().any(|it| it == section), "{link}");
        }
    }

    #[test]
    fn every_section_can_be_read_without_the_documents() {
        let names = topics();
        for section in SECTIONS.iter().map(|(section, _)| *section).chain([DEFAULT_SECTION]) {
            assert!(names.iter().any(|name| name == section), "{section} is not in {names:?}");
        }
        // Every text is a part of the program.
        let page = PAGE.as_bytes().as_ptr_range();
        for name in &names {
            assert!(page.contains(&explain(name).unwrap().as_ptr()), "{name} is read elsewhere");
        }
        let of_check = explain("clock").unwrap();
        assert!(of_check.starts_with("The clock is wrong\n") && !of_check.contains("\n## "));
        assert_eq!(explain("the-clock-is-wrong"), Some(of_check));
        assert_eq!(explain("nonsense"), None);
    }

    #[test]
    fn every_check_that_a_section_names_is_one_of_the_doctor() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/doctor");
        let sources: String = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| !path.ends_with("topic.rs"))
            .map(|path| fs::read_to_string(path).unwrap())
            .collect();
        for check in SECTIONS.iter().flat_map(|(_, checks)| *checks) {
            assert!(sources.contains(&format!("\"{check}\"")), "no check is called {check}");
        }
    }
}
