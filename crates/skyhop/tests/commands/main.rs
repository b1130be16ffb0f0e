//! Commands without a link: files and their checks, questions, output on and off a terminal.

#[path = "../common/mod.rs"]
mod common;

mod check;
mod examples;
mod init;
mod output;
mod pages;
mod security;
mod unwritable;
