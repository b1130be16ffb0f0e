//! Permits in etcd, by its JSON API (v3), as another place beside a directory of files.
//!
//! A hub reads all permits under a prefix, then follows their changes. What it knows stays in force while
//! etcd is away, and is kept in `state` for a start while etcd is away.

pub(crate) mod answer;
mod api;
mod cache;
#[cfg(test)]
pub(crate) mod fake;
mod follow;
#[cfg(test)]
mod tests;

pub(crate) use api::{Etcd, EtcdError};
pub(crate) use cache::Cache;
pub(crate) use follow::follow;

pub(crate) use crate::config::permits::PermitTexts;
