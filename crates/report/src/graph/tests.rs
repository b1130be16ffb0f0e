use super::*;

/// The numbers of an attribute of all elements with this colour.
fn attributes(svg: &str, colour: &str, name: &str) -> Vec<String> {
    let lines = svg.lines().filter(|line| line.contains(colour));
    let value = |line: &str| {
        let (_, rest) = line.split_once(&format!(" {name}=\""))?;
        Some(rest.split_once('"')?.0.trim().to_owned())
    };
    lines.filter_map(value).collect()
}

fn axes() -> (Axis, Axis) {
    (Axis::new("time (s)").range(0.0..10.0), Axis::new("MB").range(0.0..20.0))
}

#[test]
fn a_point_is_where_its_numbers_say() {
    let (x, y) = axes();
    let mut graph = Graph::new("t", x, y);
    graph.add(GraphSeries::line(
        "a",
        SeriesColour::Blue,
        vec![(0.0, 0.0), (5.0, 10.0), (10.0, 20.0)],
    ));
    let svg = graph.picture().inline();
    let lines = attributes(&svg, "#0B6BCB", "points");
    let points: Vec<(f64, f64)> = lines[1]
        .split(' ')
        .map(|point| {
            let (x, y) = point.split_once(',').unwrap();
            (x.parse().unwrap(), y.parse().unwrap())
        })
        .collect();
    let [(left, bottom), middle, (right, top)] = points[..] else { panic!("{points:?}") };
    assert!(left < right && top < bottom, "{points:?}");
    assert!((middle.0 - (left + right) / 2.0).abs() <= 1.0, "{points:?}");
    assert!((middle.1 - (top + bottom) / 2.0).abs() <= 1.0, "{points:?}");
}

#[test]
fn every_shape_is_drawn_and_named_and_nothing_empty() {
    let (x, y) = axes();
    let mut graph = Graph::new("all", x, y);
    let points = || vec![(1.0, 2.0), (3.0, 4.0)];
    let spans = || vec![(1.0, 2.0, 3.0), (3.0, 4.0, 6.0)];
    for series in [
        GraphSeries::line("a line", SeriesColour::Blue, points()),
        GraphSeries::dashed("a dashed line", SeriesColour::Grey, points()),
        GraphSeries::dots("dots", SeriesColour::Orange, points()),
        GraphSeries::crosses("crosses", SeriesColour::Red, points()).marked("Rs"),
        GraphSeries::diamonds("diamonds", SeriesColour::Sky, points()),
        GraphSeries::spans("spans", SeriesColour::Purple, spans()),
        GraphSeries::level("a level", SeriesColour::Green, spans()),
        GraphSeries::area("an area", SeriesColour::Blue, spans()),
        GraphSeries::dots("nothing", SeriesColour::Blue, Vec::new()),
    ] {
        graph.add(series);
    }
    let svg = graph.picture().inline();
    let count = |part: &str| svg.matches(part).count();
    for name in
        ["a line", "a dashed line", "dots", "crosses", "diamonds", "spans", "a level", "an area"]
    {
        assert_eq!(count(&format!("\n{name}\n")), 1, "{name}: {svg}");
    }
    assert!(!svg.contains("nothing"), "{svg}");
    // The dots, and the one in the legend.
    assert_eq!((count("<circle"), count("\nRs\n")), (3, 2));
    for colour in ["#0B6BCB", "#848E98", "#E07600", "#D02030", "#3BB0D6", "#862E9C", "#2B8A3E"] {
        assert!(svg.contains(colour), "{colour}: {svg}");
    }
}

#[test]
fn titles_units_and_ticks_are_there() {
    let x = Axis::new("time (s)").range(0.0..60.0);
    let y = Axis::new("outstanding").in_bytes().range(0.0..3e6);
    let graph = Graph::new("Connection 1", x, y);
    let svg = graph.picture().inline();
    for text in ["Connection 1", "time (s)", "outstanding (MB)", "0", "30", "60", "1.5"] {
        assert!(svg.contains(&format!("\n{text}\n")), "{text}: {svg}");
    }
    let narrow = graph.narrow().picture().inline();
    assert!(narrow.contains("aria-label=\"Connection 1\"") && !narrow.contains("\nConnection 1\n"));
}

#[test]
fn logarithmic_axes_have_decades() {
    let axis = |title: &str| Axis::new(title).logarithmic();
    let mut graph = Graph::new("", axis("loss ratio"), axis("window (segments)"));
    graph.add(GraphSeries::line("a", SeriesColour::Blue, vec![(1e-4, 1.0), (0.1, 1000.0)]));
    let svg = graph.picture().inline();
    for tick in ["0.001", "0.01", "0.1", "10", "100", "1,000"] {
        assert!(svg.contains(&format!("\n{tick}\n")), "{tick}: {svg}");
    }
}

#[test]
fn stacked_graphs_have_their_y_axes_in_one_line() {
    let graph = |end: f64| {
        let mut graph =
            Graph::new("", Axis::new("s").range(0.0..1.0), Axis::new("B").range(0.0..end));
        graph.add(GraphSeries::line("x", SeriesColour::Red, vec![(0.0, 0.0), (1.0, end)]));
        graph
    };
    let svg = stacked(&[graph(1.0), graph(1e9)]).inline();
    let lines = attributes(&svg, "#D02030", "points");
    let left = |line: &str| line.split_once(',').unwrap().0.to_owned();
    assert_eq!(lines.len(), 4, "each in the legend and in its graph: {lines:?}");
    assert_eq!(left(&lines[1]), left(&lines[3]));
}

#[test]
fn text_cannot_become_markup() {
    let mut graph = Graph::new("<script> & \"x\"", Axis::new("<x>"), Axis::new("<y>"));
    graph.add(
        GraphSeries::line("<series>", SeriesColour::Blue, vec![(0.0, 0.0), (1.0, 1.0)])
            .marked("<m>"),
    );
    let svg = graph.picture().inline();
    for text in ["script", "x", "y", "series"] {
        assert!(
            !svg.contains(&format!("<{text}>")) && svg.contains(&format!("&lt;{text}&gt;")),
            "{svg}"
        );
    }
}

#[test]
fn a_file_is_complete_and_a_page_gets_the_element_only() {
    let (x, y) = axes();
    let picture = Graph::new("t", x, y).picture();
    let file = picture.file();
    assert!(file.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\""));
    assert!(file.contains("prefers-color-scheme: dark") && file.ends_with("</svg>\n"));
    let inline = picture.inline();
    assert!(inline.starts_with("<svg viewBox=\"0 0 4800 "), "{inline}");
    assert!(!inline.contains("http") && !inline.contains("<style>"), "{inline}");
    for tag in ["svg", "text"] {
        let opened = file.matches(&format!("<{tag}")).count();
        assert_eq!(opened, file.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn bars_are_as_long_as_their_times() {
    let bar = |seconds, is_finished| {
        let name = "x".to_owned();
        let colour = SeriesColour::Orange;
        TimeBar { name, colour, seconds, is_finished }
    };
    let group = |bars| BarGroup { title: "T".to_owned(), bars };
    let groups =
        [group(vec![bar(Some(20.0), false), bar(Some(5.0), true)]), group(vec![bar(None, true)])];
    let svg = bars("times", &groups).inline();
    let widths: Vec<f64> = svg
        .lines()
        .filter(|line| line.starts_with("<rect"))
        .map(|line| line.split_once(" width=\"").unwrap().1.split_once('"').unwrap().0)
        .map(|width| width.parse().unwrap())
        .collect();
    assert_eq!(widths.len(), 2, "{svg}");
    assert!((widths[0] / widths[1] - 4.0).abs() < 0.02, "{widths:?}");
    assert!(svg.contains("opacity=\"0.2\"") && svg.contains("\n&gt; 20.0 s\n"), "{svg}");
    assert!(svg.contains("\n5.0 s\n") && svg.contains("\nfailed\n"), "{svg}");
}
