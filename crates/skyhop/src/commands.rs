//! The commands of the program, a module each: arguments, and the calls that they lead to.

pub(crate) mod bundle;
pub(crate) mod check;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod enrol;
pub(crate) mod gateway;
pub(crate) mod init;
pub(crate) mod lab;
pub(crate) mod meter;
pub(crate) mod operate;
pub(crate) mod sim;
pub(crate) mod study;
pub(crate) mod tcp;
pub(crate) mod which;
