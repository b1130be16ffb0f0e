//! Tables of figures. A row declares a number once: its field in the status and in its JSON, where it comes
//! from, and the metric that shows it.

/// A group of metrics of one name, and the label that tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    /// `None` if the family has one metric only. All others are counters.
    pub(crate) label: Option<&'static str>,
    pub(crate) is_counter: bool,
}

impl Family {
    /// Counters that `label` tells apart.
    pub(crate) const fn counters(
        name: &'static str,
        label: &'static str,
        help: &'static str,
    ) -> Self {
        Self { name, help, label: Some(label), is_counter: true }
    }

    /// One counter of the family.
    pub(crate) const fn row(self, value: &'static str) -> Metric {
        Metric { family: self, value }
    }
}

/// One metric: its family, and the value of the family's label.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Metric {
    pub(crate) family: Family,
    pub(crate) value: &'static str,
}

/// A counter that is the only one of its family, and so has no labels.
pub(crate) const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { family: Family { name, help, label: None, is_counter: true }, value: "" }
}

/// A gauge, which is always the only one of its family.
pub(crate) const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { family: Family { name, help, label: None, is_counter: false }, value: "" }
}

/// The value of a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Number {
    Count(u64),
    Measure(f64),
}

impl Number {
    pub(crate) fn count(self) -> u64 {
        match self {
            Self::Count(count) => count,
            Self::Measure(measure) => measure as u64,
        }
    }

    pub(crate) fn measure(self) -> f64 {
        match self {
            Self::Count(count) => count as f64,
            Self::Measure(measure) => measure,
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

/// Declares a part of the status from its table: `field: type = source => metric;`, where the metric may
/// be missing. The source is an expression over the arguments in `from(…)`; without these, the part is filled
/// by whoever counts.
macro_rules! table_of_figures {
    (
        $(#[$meta:meta])*
        pub struct $Name:ident from($($source:ident: $Source:ty),+) {
            $(
                $(#[$about:meta])*
                $field:ident: $Type:ty = $value:expr $(=> $metric:expr)?;
            )+
        }
    ) => {
        $crate::table::table_of_figures! {
            $(#[$meta])*
            pub struct $Name { $( $(#[$about])* $field: $Type $(=> $metric)?; )+ }
        }

        impl $Name {
            /// Reads each figure from where it is counted.
            pub fn new($($source: $Source),+) -> Self {
                Self { $( $field: $value, )+ }
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub struct $Name:ident {
            $(
                $(#[$about:meta])*
                $field:ident: $Type:ty $(=> $metric:expr)?;
            )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        pub struct $Name {
            $( $(#[$about])* pub $field: $Type, )+
        }

        impl $crate::table::Table for $Name {
            const FIGURES: &'static [$crate::table::Figure<Self>] = &[
                $( $( $crate::table::Figure {
                    metric: $metric,
                    number: |status| $crate::table::Number::from(status.$field),
                }, )? )+
            ];
        }
    };
}

pub(crate) use table_of_figures;
