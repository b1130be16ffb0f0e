//! How results look: tables, CSV, graphs, a web page and packet captures, as text and bytes.
//!
//! Nothing here reads or writes files, and nothing knows what the results mean. There is one of
//! each, so that all commands look alike.

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
