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

pub use csv::Csv;
pub use graph::{Axis, Bar, BarGroup, Colour, Graph, Picture, Series, bars, stacked};
pub use html::Page;
pub use number::{dash, four_digits};
pub use table::{Column, Table, aligned};
