//! Sections of the features that crate `gateway` has as services.

pub(crate) mod bundles;
pub(crate) mod dlep;
pub(crate) mod dns;
pub(crate) mod etcd;
pub(crate) mod http;
pub(crate) mod tunnel;
