//! Published values and ours over what distinguishes their cases.

use report::{Axis, Colour, Graph, Picture, Series};
use scenario::Output;

use crate::verdict::ValueBeside;

/// A graph of the values of one output; `None` for fewer than two of which a case was run.
pub(super) fn picture(output: &Output, values: &[&ValueBeside<'_>]) -> Option<Picture> {
    let run: Vec<_> = values.iter().filter_map(|value| Some((*value, value.ours?))).collect();
    if run.len() < 2 {
        return None;
    }
    let names: Vec<&str> = run.iter().map(|(value, _)| &value.point.case[..]).collect();
    let (title, places) = abscissa(&names);
    let unit = if output.compare.is_some() { "share".to_owned() } else { output.metric.clone() };
    let title_of_all = format!("{}: {unit} of {}, published and ours", output.place, output.of);
    let mut graph =
        Graph::new(title_of_all, Axis::new(title), Axis::new(unit).from_zero()).narrow();
    let each = || places.iter().zip(&run);
    let published = each().map(|(x, (value, _))| (*x, value.published[0])).collect();
    let ours = each().map(|(x, (_, ours))| (*x, ours.value)).collect();
    let interval = each().filter_map(|(x, (_, ours))| {
        let interval = ours.interval?;
        Some((*x, interval.low, interval.high))
    });
    graph.add(Series::spans("ours, 95 %", Colour::Blue, interval.collect()));
    graph.add(Series::dots("ours", Colour::Blue, ours).width(9));
    graph.add(Series::diamonds("published", Colour::Orange, published));
    Some(graph.picture())
}

/// The title of the horizontal axis, and each case's place on it: the only number in which the cases' names differ, or
/// else their position in the list.
fn abscissa(names: &[&str]) -> (String, Vec<f64>) {
    let in_order = || {
        let places = (1..=names.len()).map(|place| place as f64).collect();
        ("case, in the order of the table".to_owned(), places)
    };
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
    (format!("N in “{}”", title.collect::<Vec<_>>().join(" ")), numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_stand_at_the_number_that_distinguishes_them() {
        let (title, places) = abscissa(&["1 kB, IW 1", "1 kB, IW 4", "1 kB, IW 8"]);
        assert_eq!((&title[..], &places[..]), ("N in “1 kB, IW N”", &[1.0, 4.0, 8.0][..]));
        assert_eq!(abscissa(&["buffer 1e-5, on", "buffer 1e-4, on"]).1, [1e-5, 1e-4]);
    }

    #[test]
    fn other_cases_stand_in_their_order() {
        for names in [&["a 1", "b 2"][..], &["a", "b c"], &["x a", "x b"], &["x", "x"]] {
            assert_eq!(abscissa(names).1, [1.0, 2.0], "{names:?}");
        }
    }
}
