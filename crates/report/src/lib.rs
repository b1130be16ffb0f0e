//! Output formats of results: tables, CSV, graphs, a web page and packet captures, as text and bytes.
//!
//! The crate neither reads nor writes files, and does not interpret results. There is one
//! implementation of each format, so that the output of all commands looks alike.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

pub mod csv;
mod escape;
mod graph;
mod html;
mod number;
pub mod pcapng;
mod table;

pub use csv::CsvText;
pub use graph::{
    Axis, BarGroup, Graph, GraphSeries, SeriesColour, SvgPicture, TimeBar, bars, stacked,
};
pub use html::HtmlPage;
pub use number::{dash, four_digits};
pub use table::{TableColumn, TextTable, aligned};
