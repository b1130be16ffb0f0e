//! Permits in etcd, by its JSON API (v3), beside those in a directory of files.
//!
//! A hub reads all permits under a prefix, then follows their changes. While etcd is unreachable
//! the last ones stay in force; a copy in `state` serves for a start at such a time.

pub(crate) mod answer;
mod api;
mod cache;
#[cfg(test)]
pub(crate) mod fake;
mod follow;
#[cfg(test)]
mod tests;

pub(crate) use api::{EtcdClient, EtcdError};
pub(crate) use cache::PermitCache;
pub(crate) use follow::follow;

pub(crate) use crate::config::permits::PermitTexts;
