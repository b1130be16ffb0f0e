//! Graphs of published values and ours over the parameter in which their cases differ.

use report::{Axis, Graph, GraphSeries, SeriesColour, SvgPicture};
use scenario::Output;

use crate::verdict::ValueBeside;

/// Draws a graph of the values of one output; `None` if fewer than two of its cases were run.
pub(super) fn picture(output: &Output, values: &[&ValueBeside<'_>]) -> Option<SvgPicture> {
    let run: Vec<_> = values.iter().filter_map(|value| Some((*value, value.ours?))).collect();
    // A single value makes no curve.
    if run.len() < 2 {
        return None;
    }
    let names: Vec<&str> = run.iter().map(|(value, _)| &value.point.case[..]).collect();
    let (title, places) = abscissa(&names);
    let mut x = Axis::new(title);
    if places.is_none() {
        x = x.categories(short_names(&names));
    }
    let places = places.unwrap_or_else(|| (1..=names.len()).map(|place| place as f64).collect());
    let unit = if output.compare.is_some() { "share".to_owned() } else { output.metric.clone() };
    let title_of_all = format!("{}: {unit} of {}, published and ours", output.place, output.of);
    let mut graph = Graph::new(title_of_all, x, Axis::new(unit).from_zero()).narrow();
    let each = || places.iter().zip(&run);
    let published = each().map(|(x, (value, _))| (*x, value.published[0])).collect();
    let ours = each().map(|(x, (_, ours))| (*x, ours.value)).collect();
    let interval = each().filter_map(|(x, (_, ours))| {
        let interval = ours.interval?;
        Some((*x, interval.low, interval.high))
    });
    // Intervals first: what is added later lies on top.
    graph.add(GraphSeries::spans("ours, 95 %", SeriesColour::Blue, interval.collect()));
    graph.add(GraphSeries::dots("ours", SeriesColour::Blue, ours).width(9));
    graph.add(GraphSeries::diamonds("published", SeriesColour::Orange, published));
    Some(graph.picture())
}

/// Returns the words in which the names of the cases differ, short enough to stand beside each
/// other.
fn short_names(names: &[&str]) -> Vec<String> {
    let words: Vec<Vec<&str>> = names.iter().map(|name| name.split(' ').collect()).collect();
    let has_word = |word: &str| words.iter().all(|other| other.contains(&word));
    let most = (NAMES_WIDTH / names.len().max(1)).max(4);
    let short = |words: &Vec<&str>| {
        // Words that all names have distinguish nothing.
        let own: Vec<&str> = words.iter().copied().filter(|word| !has_word(word)).collect();
        let name = if own.is_empty() { words.join(" ") } else { own.join(" ") };
        let name = name.trim_end_matches(',');
        match name.chars().count() > most {
            true => name.chars().take(most - 1).chain(['…']).collect(),
            false => name.to_owned(),
        }
    };
    words.iter().map(short).collect()
}

/// Characters of all names together that fit below a narrow graph.
const NAMES_WIDTH: usize = 70;

/// Returns the title of the horizontal axis, and each case's place on it: the only number in which
/// the cases' names differ; [`None`] if they differ otherwise.
fn abscissa(names: &[&str]) -> (String, Option<Vec<f64>>) {
    let in_order = || ("case".to_owned(), None);
    let words: Vec<Vec<&str>> = names.iter().map(|name| name.split(' ').collect()).collect();
    let Some(first) = words.first() else { return in_order() };
    if words.iter().any(|other| other.len() != first.len()) {
        return in_order();
    }
    let differs = |at: &usize| words.iter().any(|other| other[*at] != first[*at]);
    let differing: Vec<usize> = (0..first.len()).filter(differs).collect();
    let [at] = differing[..] else { return in_order() };
    let number = |words: &Vec<&str>| words[at].trim_end_matches(',').parse::<f64>().ok();
    let numbers: Option<Vec<f64>> = words.iter().map(number).collect();
    let Some(numbers) = numbers else { return in_order() };
    let title = first.iter().enumerate().map(|(place, word)| if place == at { "N" } else { word });
    (format!("N in “{}”", title.collect::<Vec<_>>().join(" ")), Some(numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_stand_at_the_number_that_distinguishes_them() {
        let (title, places) = abscissa(&["1 kB, IW 1", "1 kB, IW 4", "1 kB, IW 8"]);
        let places = places.unwrap();
        assert_eq!((&title[..], &places[..]), ("N in “1 kB, IW N”", &[1.0, 4.0, 8.0][..]));
        assert_eq!(abscissa(&["buffer 1e-5, on", "buffer 1e-4, on"]).1, Some(vec![1e-5, 1e-4]));
    }

    #[test]
    fn other_cases_stand_in_their_order_with_their_names() {
        for names in [&["a 1", "b 2"][..], &["a", "b c"], &["x a", "x b"], &["x", "x"]] {
            assert_eq!(abscissa(names).1, None, "{names:?}");
        }
        assert_eq!(short_names(&["10 MB, reno", "10 MB, cubic"]), ["reno", "cubic"]);
        assert_eq!(short_names(&["x", "x"]), ["x", "x"]);
        let long = short_names(&["a very long name of a case that nobody could read there", "b"]);
        assert!(long[0].chars().count() <= NAMES_WIDTH / 2 && long[0].ends_with('…'), "{long:?}");
    }
}
