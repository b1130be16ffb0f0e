//! Tables of figures. A row declares a number once: its field in the status and in its JSON, where it comes
//! from, and the metric that shows it.

/// A group of metrics of one name, and the labels that tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    /// Names of the labels, separated by commas; `None` if the family has one metric only. All others are counters.
    pub(crate) label: Option<&'static str>,
    pub(crate) is_counter: bool,
}

impl Family {
    /// Counters that `label` tells apart, or several labels, separated by commas.
    pub(crate) const fn counters(
        name: &'static str,
        label: &'static str,
        help: &'static str,
    ) -> Self {
        Self { name, help, label: Some(label), is_counter: true }
    }

    /// One counter of the family.
    pub(crate) const fn row(self, value: &'static str) -> Metric {
        Metric { family: self, value, before: None }
    }

    /// A family of one metric.
    const fn single(name: &'static str, help: &'static str, is_counter: bool) -> Metric {
        Self { name, help, label: None, is_counter }.row("")
    }
}

/// One metric: its family, and the values of the family's labels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Metric {
    pub(crate) family: Family,
    pub(crate) value: &'static str,
    /// Name of the family that this one precedes; `None` if it comes in the order of the rows.
    before: Option<&'static str>,
}

impl Metric {
    /// Puts the metric before the family of this name. The order of the rows is that of the JSON, and the
    /// order of metrics that existed earlier differs.
    pub(crate) const fn before(self, family: &'static str) -> Self {
        Self { before: Some(family), ..self }
    }

    /// The labels that tell it from the others of its family.
    pub(crate) fn labels(self) -> impl Iterator<Item = (&'static str, String)> {
        let names = self.family.label.into_iter().flat_map(|names| names.split(','));
        names.zip(self.value.split(',').map(str::to_owned))
    }
}

/// The families of these metrics, in the order in which they are shown.
pub(crate) fn families(metrics: &[Metric]) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for metric in metrics {
        if !families.contains(&metric.family) {
            families.push(metric.family);
        }
    }
    for (family, next) in metrics.iter().filter_map(|metric| Some((metric.family, metric.before?)))
    {
        families.retain(|other| *other != family);
        let at = families.iter().position(|family| family.name == next);
        families.insert(at.unwrap_or(families.len()), family);
    }
    families
}

/// A counter that is the only one of its family, and so has no label of its own.
pub(crate) const fn counter(name: &'static str, help: &'static str) -> Metric {
    Family::single(name, help, true)
}

/// A gauge, which is always the only one of its family.
pub(crate) const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Family::single(name, help, false)
}

/// The value of a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Number {
    Count(u64),
    Measure(f64),
    /// The metric is left out.
    Unknown,
}

impl Number {
    pub(crate) fn measure(self) -> f64 {
        match self {
            Self::Count(count) => count as f64,
            Self::Measure(measure) => measure,
            Self::Unknown => f64::NAN,
        }
    }
}

impl From<u64> for Number {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Number {
    fn from(measure: f64) -> Self {
        Self::Measure(measure)
    }
}

impl From<bool> for Number {
    fn from(is_true: bool) -> Self {
        Self::Count(is_true.into())
    }
}

impl From<Option<u64>> for Number {
    fn from(count: Option<u64>) -> Self {
        count.map_or(Self::Unknown, Self::Count)
    }
}

/// A figure of a row: 0 without a value.
pub(crate) fn or_zero(figure: &Option<u64>) -> u64 {
    figure.unwrap_or_default()
}

/// A figure of a row: the length of a list.
pub(crate) fn number_of<T>(list: &[T]) -> u64 {
    list.len() as u64
}

/// A figure of the status `S` that is a metric, too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figure<S> {
    pub(crate) metric: Metric,
    pub(crate) number: fn(&S) -> Number,
}

/// A part of the status that is declared by a table.
pub(crate) trait Table: Sized + 'static {
    const FIGURES: &'static [Figure<Self>];
}

/// Declares a part of the status from its table, with rows `field: type = source => metric, figure;`.
///
/// - The source is an expression over the arguments in `from(…)`, which become those of `new`. A field without a source
///   is left for the caller to set, and a table without `from(…)` has no `new`.
/// - With `counted by Counters`, that struct has a [`Counter`](crate::Counter) for each row without a source, and its
///   `status` reads them; the other rows have their sources.
/// - The figure is a function of the field, for a metric in another unit, or of a field that is no number. A field may
///   have several metrics, or none.
macro_rules! table_of_figures {
    (
        $(#[$meta:meta])*
        pub struct $Name:ident counted by $Counters:ident from($($source:ident: $Source:ty),+) {
            $(
                $(#[$about:meta])*
                $field:ident: $Type:ty $(= $value:expr)? $(=> $metric:expr $(, $figure:expr)?)*;
            )+
        }
    ) => {
        $crate::table::table_of_figures! {
            $(#[$meta])*
            pub struct $Name {
                $( $(#[$about])* $field: $Type $(=> $metric $(, $figure)?)*; )+
            }
        }

        #[doc = concat!("Counters of [`", stringify!($Name), "`]; nothing for figures from elsewhere.")]
        #[derive(Debug, Default)]
        pub struct $Counters {
            $(
                #[doc = concat!("See [`", stringify!($Name), "::", stringify!($field), "`].")]
                pub $field: $crate::table::table_of_figures!(@counter $($value)?),
            )+
        }

        impl $Counters {
            /// Reads the counters; other figures are those given.
            pub fn status(&self, $($source: $Source),+) -> $Name {
                $Name { $( $field: $crate::table::table_of_figures!(@count self.$field $(, $value)?), )+ }
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub struct $Name:ident from($($source:ident: $Source:ty),+) {
            $(
                $(#[$about:meta])*
                $field:ident: $Type:ty $(= $value:expr)? $(=> $metric:expr $(, $figure:expr)?)*;
            )+
        }
    ) => {
        $crate::table::table_of_figures! {
            $(#[$meta])*
            pub struct $Name {
                $( $(#[$about])* $field: $Type $(=> $metric $(, $figure)?)*; )+
            }
        }

        impl $Name {
            /// Reads each figure from where it is counted.
            pub fn new($($source: $Source),+) -> Self {
                Self { $( $field: $crate::table::table_of_figures!(@source $($value)?), )+ }
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub struct $Name:ident {
            $(
                $(#[$about:meta])*
                $field:ident: $Type:ty $(=> $metric:expr $(, $figure:expr)?)*;
            )+
        }
    ) => {
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        $(#[$meta])*
        pub struct $Name {
            $( $(#[$about])* pub $field: $Type, )+
        }

        impl $crate::table::Table for $Name {
            const FIGURES: &'static [$crate::table::Figure<Self>] = &[
                $( $( $crate::table::Figure {
                    metric: $metric,
                    number: |status| $crate::table::Number::from(
                        $crate::table::table_of_figures!(@figure status.$field $(, $figure)?)
                    ),
                }, )* )+
            ];
        }
    };
    (@counter) => { $crate::Counter };
    (@counter $value:expr) => { () };
    (@count $counter:expr) => { $counter.get() };
    (@count $counter:expr, $value:expr) => { $value };
    (@source) => { Default::default() };
    (@source $value:expr) => { $value };
    (@figure $field:expr) => { $field };
    (@figure $field:expr, $figure:expr) => { ($figure)(&$field) };
}

pub(crate) use table_of_figures;

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macro declares what users of the crate see")]
mod tests {
    use super::*;

    const FATES: Family = Family::counters("fates", "fate", "Packets by fate");

    table_of_figures! {
        /// A table with a row of each kind.
        pub struct Sample from(sent: u64) {
            /// Set by the caller.
            name: String;
            /// A figure in another unit.
            rtt_ms: f64 = 250.0 => gauge("rtt_seconds", "Round-trip time"), |ms: &f64| ms / 1e3;
            /// A figure of a family, separated from the other.
            sent: u64 = sent => FATES.row("sent");
            /// A field with two metrics.
            rate: Option<u64> = Some(7)
                => gauge("rate_known", "1 if the rate is known"), Option::is_some
                => gauge("rate", "The rate").before("fates"), or_zero;
            /// The family's other figure.
            lost: u64 = 2 => FATES.row("lost");
        }
    }

    const CARRIED: Family = Family::counters("carried", "direction,form", "Bytes");

    table_of_figures! {
        /// A table with its own counters.
        pub struct Carried counted by CarriedCounters from(refused: u64) {
            /// A figure that is counted here.
            sent: u64 => CARRIED.row("out,plain");
            /// A figure from elsewhere.
            refused: u64 = refused;
        }
    }

    #[test]
    fn a_table_has_a_counter_for_each_row_without_a_source() {
        let counters = CarriedCounters::default();
        counters.sent.add(2);
        counters.sent.increment();
        // A figure from elsewhere takes no memory here.
        let () = counters.refused;
        assert_eq!(counters.status(7), Carried { sent: 3, refused: 7 });
    }

    #[test]
    fn several_labels_tell_the_metrics_of_a_family_apart() {
        let labels = Carried::FIGURES[0].metric.labels();
        let expected = [("direction", "out".to_owned()), ("form", "plain".to_owned())];
        assert_eq!(labels.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn families_come_in_the_order_of_their_rows_unless_one_is_put_before_another() {
        let metrics: Vec<Metric> = Sample::FIGURES.iter().map(|figure| figure.metric).collect();
        let names: Vec<&str> = families(&metrics).iter().map(|family| family.name).collect();
        assert_eq!(names, ["rtt_seconds", "rate", "fates", "rate_known"]);
    }

    #[test]
    fn each_metric_has_the_figure_of_its_row() {
        let sample = Sample { name: "ship".to_owned(), ..Sample::new(5) };
        let numbers = Sample::FIGURES.iter().map(|figure| (figure.number)(&sample).measure());
        assert_eq!(numbers.collect::<Vec<_>>(), [0.25, 5.0, 1.0, 7.0, 2.0]);
        assert_eq!(Sample::FIGURES[1].metric.value, "sent");
        let json = r#"{"name":"ship","rtt_ms":250.0,"sent":5,"rate":7,"lost":2}"#;
        assert_eq!(serde_json::to_string(&sample).unwrap(), json);
    }
}
