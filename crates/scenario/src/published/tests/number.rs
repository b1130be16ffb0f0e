//! Numbers in a document's text.

/// Whether a line of text has this number, however it is written: `14,373`, `14 373`, `95.5`.
pub(super) fn has(line: &str, wanted: f64) -> bool {
    // A space may separate thousands, or two numbers.
    [line, &joined(line)].into_iter().flat_map(numbers).any(|number| number == wanted)
}

fn numbers(text: &str) -> impl Iterator<Item = f64> {
    let parts = text.split(|c: char| !(c.is_ascii_digit() || c == '.'));
    parts.filter_map(|part| part.trim_matches('.').parse().ok())
}

/// The line without what separates thousands: a comma or a space before exactly three digits.
fn joined(line: &str) -> String {
    let characters: Vec<char> = line.chars().collect();
    let digit = |at: usize| characters.get(at).is_some_and(char::is_ascii_digit);
    let separates = |at: usize| {
        matches!(characters[at], ',' | ' ' | '\u{a0}')
            && at.checked_sub(1).is_some_and(digit)
            && (at + 1..at + 4).all(digit)
            && !digit(at + 4)
    };
    let kept = (0..characters.len()).filter(|at| !separates(*at));
    kept.map(|at| characters[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_whole_and_however_they_are_written() {
        for (line, number, found) in [
            ("e2e_NewReno 77.5 26.9 17.3/56.5", 56.5, true),
            ("e2e_NewReno 77.5 26.9 17.3/56.5", 7.5, false),
            ("8\t21\t65.57", 21.0, true),
            ("9 114 820 bytes", 9_114_820.0, true),
            ("14,373 bit/s", 14_373.0, true),
            ("about 31 Mbit/s.", 31.0, true),
            ("(95.5%)", 95.5, true),
            ("no number", 0.0, false),
            ("IW 1,2,4", 2.0, true),
            ("Cubic & PEPsal 37 133.9", 37.0, true),
        ] {
            assert_eq!(has(line, number), found, "{line} {number}");
        }
    }
}
